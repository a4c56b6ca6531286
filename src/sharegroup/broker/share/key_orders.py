"""The key orders of the share partitions whose group has ``sharegroup.order.by=key``.

`core.delivery.key_order` decides which records are free. This module reads their keys from the log
and keeps no key, only its hash: that of Python, SipHash with a random secret of the process, so a
producer cannot choose keys that delay those of others.

    fetch ──▶ free records:  acquired like any others
              too few:       a walk reads more of the log (`record_jobs`), and wakes the fetches

A thread reads the keys, because it decompresses batches. What it cannot read has no key: no member
can read it either. Records are bounded in each share partition and in all together. A share
partition at its limit learns no new records, so it delivers none behind those that it knows.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from itertools import islice
from operator import lt
from typing import NamedTuple
from weakref import WeakSet

from sharegroup.broker.share.batch_checks import BatchChecks
from sharegroup.broker.share.live_share_partition import LiveKeyOrder, LiveSharePartition
from sharegroup.broker.share.share_reading import LOG_BATCHES_MAX, deliverable
from sharegroup.core.delivery.acquisition import Range
from sharegroup.core.delivery.delivery import AcquireRequest, SharePartitionLimits
from sharegroup.core.delivery.key_order import KeyOrder
from sharegroup.errors import CorruptMessage, KafkaError
from sharegroup.ids import SharePartitionKey
from sharegroup.storage.segment.boundaries import BatchSpans
from sharegroup.wire.batches.batches import UNREADABLE, BatchHeader, scan
from sharegroup.wire.batches.record_pieces import UnreadableRange, read_pieces
from sharegroup.wire.batches.record_walk import Walk, WalkStep
from sharegroup.wire.batches.records import DecodedRecord

log = logging.getLogger(__name__)

KEYS_MAX = 10_000
"""Maximum number of records with a key that are known of one share partition: about 2 MB."""

ALL_KEYS_MAX = 500_000
"""Maximum number of such records of all share partitions together."""

KEYS_MIN = 100
"""Number of records that a share partition may know although `ALL_KEYS_MAX` is reached.

Otherwise groups that settle nothing would stop all others.
"""

ROOM_PART = 8
"""More records are read when this part of a share partition's limit is free.

Otherwise a large batch would be decompressed again for each record that is settled.
"""

CHOICE_FACTOR = 3
"""Number of free records from which a fetch chooses, as a multiple of those that it wants."""

ENOUGH_RECORDS = 50
"""A fetch that has so many records takes no more from batches of which a fifth or more is blocked.

These are better sent later, when more of their records are free.
"""

BLOCKED_TENTHS = 2
"""The tenths of a batch's waiting records from which on it is such a batch."""

READ_BYTES = 256 * 1024
"""Bytes of the log whose keys are read at a time; a larger batch is read as a whole."""

LEARNT_AT_ONCE = 1_000
"""Number of records that are learnt without a pause: about a millisecond."""


class Look(NamedTuple):
    """The first free offset, the request for free records alone, and the log batches from there."""

    position: int
    request: AcquireRequest
    spans: BatchSpans


class KeyOrders:
    """Finds the records that may be acquired by groups whose records are ordered by key."""

    __slots__ = ("_all", "_checks", "_reads_committed", "_tasks", "_wake")

    def __init__(
        self,
        checks: BatchChecks,
        wake: Callable[[SharePartitionKey], None],
        reads_committed: Callable[[LiveSharePartition], bool],
    ) -> None:
        self._checks = checks
        self._wake = wake
        self._reads_committed = reads_committed
        self._all: WeakSet[LiveKeyOrder] = WeakSet()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def record_count(self) -> int:
        """The number of records with a key that are known now."""
        return sum(len(known.order) for known in self._all)

    @property
    def full_count(self) -> int:
        """The number of share partitions that are at their limit."""
        return sum(known.is_full for known in self._all)

    def look(
        self,
        live: LiveSharePartition,
        request: AcquireRequest,
        limits: SharePartitionLimits,
        *,
        end: int,
        bytes_max: int,
    ) -> Look | None:
        """Return where free records are, and the log batches from the first of them on.

        None if no record is free now. If there are too few, more of the log, up to ``end``, is read
        in the background.
        """
        known = live.key_order
        if known is None:
            known = live.key_order = LiveKeyOrder(KeyOrder(live.state.start_offset))
            self._all.add(known)
        # More than are wanted, because those that lie together are chosen.
        count_max = CHOICE_FACTOR * request.records_max
        free = known.order.free(count_max, end=end)
        if sum(range_end - first for first, range_end in free) < count_max:
            self._learn_more(live, known, limits, end)
        if not free:
            return None
        position = free[0][0]
        spans = _spans(live, position, free[-1][1], end=end, bytes_max=bytes_max)
        if not spans.firsts:
            return None
        chosen = _in_few_batches(known.order, free, spans, count_max=request.records_max)
        return Look(position, request._replace(free=chosen), spans)

    def _learn_more(
        self,
        live: LiveSharePartition,
        known: LiveKeyOrder,
        limits: SharePartitionLimits,
        end: int,
    ) -> None:
        """Begin to read keys up to ``end``, unless that is under way or there is no room."""
        if known.is_learning or self._checks.jobs is None or known.order.known_end >= end:
            return
        room = self._room(live, known, limits)
        self._report_fullness(live, known, is_full=room == 0)
        if room == 0:
            return
        known.is_learning = True
        task = asyncio.get_running_loop().create_task(self._learn(live, known, end, room))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _room(
        self, live: LiveSharePartition, known: LiveKeyOrder, limits: SharePartitionLimits
    ) -> int:
        """Return the number of records that may be learnt now."""
        if live.state.is_full(limits):
            return 0  # Of what is learnt now, nothing could be delivered without passing a limit.
        count = len(known.order)
        # Each known record may become a run of its own.
        own_max = min(KEYS_MAX, limits.runs_max - live.state.snapshot().run_count)
        room = own_max - count
        if count and room < own_max // ROOM_PART:
            return 0
        return max(0, min(room, max(ALL_KEYS_MAX - self.record_count, KEYS_MIN - count)))

    async def _learn(
        self, live: LiveSharePartition, known: LiveKeyOrder, end: int, room: int
    ) -> None:
        """Read more keys and wake the fetches that wait for them."""
        jobs = self._checks.jobs
        assert jobs is not None, "it was there when this began"
        walk = self._walk(live, known.order, end, room, bytes_max=jobs.bytes_max)
        try:
            await jobs.complete(walk, self._checks.owner_of(live.key.group_id))
        except KafkaError as error:
            # Nobody is woken: a fetch that polls again tries again.
            log.warning("event=keys_not_read %s error=%r", live, str(error))
            return
        finally:
            known.is_learning = False
        self._wake(live.key)

    def _walk(
        self, live: LiveSharePartition, order: KeyOrder, end: int, room: int, *, bytes_max: int
    ) -> Walk[None]:
        """Learn the keys of the next batches, at most ``room`` of them."""
        yield WalkStep.BEGIN
        # The log may have been truncated at its beginning or, when its leader changed, at its end.
        first = max(order.known_end, live.log.start_offset)
        end = min(end, live.log.high_watermark)
        if live.fenced or first >= end:
            return
        spans = live.log.batches(first, end=end, bytes_max=READ_BYTES, count_max=LOG_BATCHES_MAX)
        if not spans.firsts:
            order.learn(live.state, end, (), ())
            return
        kept: Collection[int] = spans.firsts
        if self._reads_committed(live):
            kept = set(deliverable(live, spans, position=first).firsts)
        found = array("q")
        found.frombytes(
            (yield partial(_keys, _read(live, spans), kept, first, room, bytes_max)) or b""
        )
        yield WalkStep.END
        offsets, hashes = found[::2], found[1::2]
        reached = min(spans.ends[-1], end)
        if len(offsets) > room:
            reached = offsets[room]
        count = bisect_left(offsets, reached)
        for index in range(0, count, LEARNT_AT_ONCE):
            after = min(count, index + LEARNT_AT_ONCE)
            piece_end = offsets[after] if after < count else reached
            order.learn(live.state, piece_end, offsets[index:after], hashes[index:after])
            yield WalkStep.PAUSE
            if live.fenced:
                return
        if count == 0:
            order.learn(live.state, reached, (), ())

    def _report_fullness(
        self, live: LiveSharePartition, known: LiveKeyOrder, *, is_full: bool
    ) -> None:
        """Log once when a share partition learns no new records, and once when it continues."""
        if is_full and not known.is_full:
            log.warning(
                "event=key_order_full %s records=%d all=%d action='settle records; none behind "
                "these are delivered until then'",
                live,
                len(known.order),
                self.record_count,
            )
        elif known.is_full and not is_full:
            log.info("event=key_order_goes_on %s", live)
        known.is_full = is_full


def _spans(
    live: LiveSharePartition, first: int, wanted_end: int, *, end: int, bytes_max: int
) -> BatchSpans:
    """Return the log batches of these offsets; if compaction removed them, those that follow."""
    for spans_end in (wanted_end, end):
        spans = live.log.batches(
            first, end=spans_end, bytes_max=bytes_max, count_max=LOG_BATCHES_MAX
        )
        if spans.firsts:
            break
    return spans


def _in_few_batches(
    order: KeyOrder, free: list[Range], spans: BatchSpans, *, count_max: int
) -> list[Range]:
    """Return free ranges of the first batch, and of others with few blocked records.

    A batch is sent as a whole for a single record of it.  So those of whose waiting records most
    are free come first, and others only until the fetch has `ENOUGH_RECORDS`.  The first
    batch is always among them, so none waits for ever.
    """
    pieces: dict[int, list[Range]] = {}
    counts: dict[int, int] = {}
    index = 0
    for first, end in free:
        while first < end and index < len(spans):
            batch_end = spans.ends[index]
            if batch_end <= first:
                index += 1
                continue
            piece_end = min(end, batch_end)
            pieces.setdefault(index, []).append((first, piece_end))
            counts[index] = counts.get(index, 0) + piece_end - first
            first = piece_end

    def blocked_tenths(number: int) -> int:
        blocked = order.blocked_count(spans.firsts[number], spans.ends[number])
        return 10 * blocked // (blocked + counts[number])

    chosen = [*islice(counts, 1)]
    count = sum(counts[number] for number in chosen)
    enough = min(count_max, ENOUGH_RECORDS)
    # Of batches with as many tenths the lower one is first, because its records block others.
    for tenths, number in sorted((blocked_tenths(at), at) for at in islice(counts, 1, None)):
        if count >= (count_max if tenths < BLOCKED_TENTHS else enough):
            break
        chosen.append(number)
        count += counts[number]
    return [piece for number in sorted(chosen) for piece in pieces[number]]


def _read(live: LiveSharePartition, spans: BatchSpans) -> bytes:
    """Return the batches that can be read; the log may begin in the middle of the first."""
    start = live.log.start_offset
    try:
        return live.log.read_range(max(spans.firsts[0], start), spans.ends[-1])
    except CorruptMessage:
        parts: list[bytes] = []
        for first, end in zip(spans.firsts, spans.ends, strict=True):
            # The fetch that gets the batch reports that it is damaged.
            with suppress(CorruptMessage):
                parts.append(live.log.read_range(max(first, start), end))
        return b"".join(parts)


def _keys(
    records: bytes, kept: Collection[int], first: int, count_max: int, bytes_max: int
) -> bytes:
    """Return pairs of 64-bit numbers: offset and hash of each record with a key, in order.

    They are those from ``first`` on in batches that begin at ``kept`` offsets: ``count_max``, and
    one more if there are more.
    """
    found = array("q")

    def make(decoded: Iterable[DecodedRecord]) -> array[int]:
        pairs = array("q")
        for record in decoded:
            if record.key is not None and record.offset >= first:
                pairs.extend((record.offset, hash(record.key)))
                if len(found) + len(pairs) > 2 * count_max:
                    break
        return pairs

    for position, header in scan(records):
        if header.is_control or header.base_offset not in kept:
            continue
        with suppress(*UNREADABLE):
            for pairs in read_pieces(
                records, position, header, make, decompressed_bytes_max=bytes_max
            ):
                if isinstance(pairs, UnreadableRange) or not _are_in_order(pairs[::2], header):
                    continue
                found += pairs
                if len(found) > 2 * count_max:
                    return found.tobytes()
    return found.tobytes()


def _are_in_order(offsets: array[int], header: BatchHeader) -> bool:
    """Whether these are ascending offsets of the batch: a producer can lie about them."""
    return not offsets or (
        header.base_offset <= offsets[0]
        and offsets[-1] < header.end_offset
        and all(map(lt, offsets, offsets[1:]))
    )
