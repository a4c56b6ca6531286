"""Reads acquired records, around damaged batches; leaves out batches that members must not get.

A reply contains whole log batches; the acquired ranges say which of their offsets are the
member's.  If some batches cannot be read, the others are delivered.  The records of unreadable
batches are returned to the caller, which releases them.  Their deliveries count, so they are
settled in the end, and a damaged batch does not block its partition forever.

A group that reads committed records only (`share.isolation.level`) does not get the batches of
aborted transactions, nor control batches.  `deliverable` leaves both out, so core treats their
offsets as holes and archives them.  The batch header tells which batches these are, so each batch
is read twice for such a group; the page cache has it.  Other groups get the batches of every
transaction, and the offsets of control batches too, as in Kafka: clients acknowledge those as gaps.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from sharegroup.broker.share.live_share_partition import LiveSharePartition
from sharegroup.core.delivery.delivery import (
    Acquired,
    AcquireRequest,
    LogBatches,
    SharePartitionLimits,
)
from sharegroup.errors import CorruptMessage, KafkaError, KafkaStorageError
from sharegroup.protocol_enums import BatchFlag
from sharegroup.storage.segment.boundaries import BatchSpans
from sharegroup.wire.batches.batches import BatchHeader, parse_header, scan
from sharegroup.wire.codec.share_fetch_answer import Batches

log = logging.getLogger(__name__)

LOG_BATCHES_MAX = 2_000
"""Maximum number of log batches that one look of a fetch considers."""

SKIPPED_BYTES_MIN = 16 * 1024
"""Minimum size in bytes of a gap between acquired ranges that is not read along with them."""

READ_AHEAD_BYTES_MIN = 128 * 1024
"""Minimum size of a read that is followed by a read ahead; less takes 20 us, as does scheduling."""


BATCH_BYTES = 22
"""The size of a listed batch in a response."""


class FetchedRecords(NamedTuple):
    """Records for one member: whole log batches, and the offset ranges acquired for it."""

    records: bytes
    acquired: tuple[Acquired, ...]
    batches: Batches | None = None
    """The log batches, listed in place of ``records``."""

    @property
    def log_bytes(self) -> int:
        """The size of the log batches."""
        if self.batches is None:
            return len(self.records)
        return sum(size for _, _, size, _ in self.batches)

    @property
    def sent_bytes(self) -> int:
        """The approximate size in the response."""
        return len(self.records) if self.batches is None else BATCH_BYTES * len(self.batches)


class ReadAcquired(NamedTuple):
    """The acquired ranges that could be read, those that could not, and the first error."""

    fetched: FetchedRecords
    unreadable: tuple[Acquired, ...] = ()
    error: KafkaError | None = None


def log_batches(
    live: LiveSharePartition, wanted: AcquireRequest, *, position: int, end: int, bytes_max: int
) -> BatchSpans:
    """Return the log batches from ``position`` on, below ``end``, in which to look for records.

    Beyond the end offset no record was acquired yet, so ``records_max`` offsets nearly always
    contain enough records.  To look at a single batch takes a tenth of the time of hundreds.  More
    offsets are needed only if compaction has left a hole of that length.

    Below the end offset, available records may be far apart.  If ``records_max`` batches contain
    too few of them, the search continues up to `LOG_BATCHES_MAX` batches.
    """
    count_max = min(wanted.records_max, LOG_BATCHES_MAX)
    state = live.state
    if position == state.end_offset:
        near_end = min(end, position + wanted.records_max)
        spans = live.log.batches(position, end=near_end, bytes_max=bytes_max, count_max=count_max)
        if spans.firsts:
            return spans
    spans = live.log.batches(position, end=end, bytes_max=bytes_max, count_max=count_max)
    if position < state.end_offset and len(spans) == count_max < LOG_BATCHES_MAX:
        takeable_count = state.takeable_count(
            position, spans.ends[-1], count_max=wanted.records_max
        )
        if takeable_count < wanted.records_max:
            return live.log.batches(
                position, end=end, bytes_max=bytes_max, count_max=LOG_BATCHES_MAX
            )
    return spans


def deliverable(live: LiveSharePartition, found: BatchSpans, *, position: int) -> LogBatches:
    """Return the batches found at ``position`` that hold records of committed transactions.

    Unreadable batches are left in, because `read_acquired` reports them.
    """
    first, end = found.firsts[0], found.ends[-1]
    aborted = live.log.aborted_transactions(first, end)
    headers = {header.base_offset: header for header in _headers(live, found)}
    kept = [
        (batch_first, batch_end)
        for batch_first, batch_end in zip(found.firsts, found.ends, strict=True)
        if batch_first not in headers or not _is_withheld(headers[batch_first], aborted)
    ]
    # The look reaches to the end of the withheld batches behind the last kept one, so those are
    # holes, too.
    return LogBatches(
        position,
        [first for first, _ in kept],
        [end for _, end in kept],
        looked_until=end,
        size_of=found.size_of,
    )


def _is_withheld(header: BatchHeader, aborted: tuple[tuple[int, int, int], ...]) -> bool:
    """Return whether the batch ends a transaction, or belongs to an aborted one."""
    return header.is_control or (
        header.is_transactional
        and any(
            # By offset, too: other transactions of the same producer may have been committed.
            producer_id == header.producer_id and first <= header.base_offset <= last
            for producer_id, first, last in aborted
        )
    )


def _headers(live: LiveSharePartition, found: BatchSpans) -> Iterator[BatchHeader]:
    """Yield the headers of the readable batches; the log may begin in the middle of the first."""
    start = live.log.start_offset
    try:
        records = live.log.read_range(max(found.firsts[0], start), found.ends[-1])
    except (CorruptMessage, KafkaStorageError):
        for first, end in zip(found.firsts, found.ends, strict=True):
            # The error is reported when the batch is delivered; until then it stays in place.
            with suppress(CorruptMessage, KafkaStorageError):
                yield parse_header(live.log.read_range(max(first, start), end))
    else:
        for _, header in scan(records):
            yield header


def read_acquired(
    live: LiveSharePartition, ranges: tuple[Acquired, ...], found: BatchSpans
) -> ReadAcquired:
    """Read the log batches, out of those ``found``, that cover ``ranges``."""
    first, end = ranges[0].first, ranges[-1].end
    try:
        if len(ranges) == 1:
            records = live.log.read_range(first, end)
        else:
            parts = [live.log.read_range(*part) for part in _parts(ranges, found)]
            records = parts[0] if len(parts) == 1 else b"".join(parts)
    except (CorruptMessage, KafkaStorageError):
        # One damaged batch must not keep the member from the others.
        return _read_around(live, ranges, found)
    if end == live.state.end_offset and len(records) >= READ_AHEAD_BYTES_MIN:
        # The next look will most likely find as many records, behind these.
        live.log.expect_read(end, end + end - first)
    return ReadAcquired(FetchedRecords(records, ranges))


def list_acquired(
    live: LiveSharePartition, ranges: tuple[Acquired, ...], found: BatchSpans, *, committed: bool
) -> ReadAcquired:
    """List the batches that `read_acquired` returns, for a member that needs no records.

    They are read first if this process has not verified them, or if only ``committed`` records are
    read: the header tells which batches were aborted.
    """
    if not committed and (listed := _listed(live, _parts(ranges, found))) is not None:
        return ReadAcquired(FetchedRecords(b"", ranges, listed))
    read = read_acquired(live, ranges, found)
    records, acquired, _ = read.fetched
    first, end = ranges[0].first, ranges[-1].end
    aborted = live.log.aborted_transactions(first, end) if committed else ()
    batches = [
        (header.base_offset, header.end_offset, header.size, _flags(header, aborted))
        for _, header in scan(records)
    ]
    return read._replace(fetched=FetchedRecords(b"", acquired, batches))


def _listed(live: LiveSharePartition, parts: list[tuple[int, int]]) -> Batches | None:
    """Return the batches of these offset ranges; None if they have to be read."""
    batches: list[tuple[int, int, int, int]] = []
    for part in parts:
        try:
            listed = live.log.listed(*part)
        except KafkaStorageError:
            return None  # The locks exist: `read_acquired` releases what cannot be read.
        if listed is None:
            return None
        batches += [
            (first, end, size, BatchFlag.CONTROL * is_control)
            for first, end, size, is_control in listed
        ]
    return batches


def _flags(header: BatchHeader, aborted: tuple[tuple[int, int, int], ...]) -> int:
    if header.is_control:
        return BatchFlag.CONTROL
    return BatchFlag.ABORTED * _is_withheld(header, aborted)


def _parts(ranges: tuple[Acquired, ...], found: BatchSpans) -> list[tuple[int, int]]:
    """Return the offset ranges to read, without longer stretches of batches between ``ranges``."""
    parts: list[tuple[int, int]] = []
    batch_bytes = found.total_bytes // len(found)
    for first, end, _ in ranges:
        if parts:
            part_first, part_end = parts[-1]
            if part_end != first:
                # Without the batches that hold the end of one range and the beginning of the next:
                # they are read anyway.
                batches = bisect_right(found.firsts, first) - bisect_left(found.ends, part_end) - 2
                if batches * batch_bytes >= SKIPPED_BYTES_MIN:
                    parts.append((first, end))
                    continue
            parts[-1] = (part_first, end)
        else:
            parts.append((first, end))
    return parts


def _read_around(
    live: LiveSharePartition, ranges: tuple[Acquired, ...], found: BatchSpans
) -> ReadAcquired:
    """Read batch by batch, which is slow but finds the damaged ones."""
    readable: list[Acquired] = []
    unreadable: list[Acquired] = []
    chunks: list[bytes] = []
    first_error: KafkaError | None = None
    for first, end in zip(found.firsts, found.ends, strict=True):
        inside = [
            Acquired(max(acquired.first, first), min(acquired.end, end), acquired.delivery_count)
            for acquired in ranges
            if acquired.first < end and first < acquired.end
        ]
        if not inside:
            continue
        try:
            chunks.append(live.log.read_range(inside[0].first, inside[-1].end))
        except (CorruptMessage, KafkaStorageError) as error:
            log.warning("event=batch_unreadable %s error=%r", live, str(error))
            first_error = first_error or error
            unreadable += inside
        else:
            readable += inside
    fetched = FetchedRecords(b"".join(chunks), tuple(readable))
    return ReadAcquired(fetched, tuple(unreadable), first_error)


def limits_of_one(
    live: LiveSharePartition, limits: SharePartitionLimits, sharers: int
) -> SharePartitionLimits:
    """Return the limits of one fetch: all room, or an equal part while room is short."""
    if not live.crowded or sharers <= 1:
        return limits
    part = max(1, limits.in_flight_max // sharers)
    acquired_count = live.state.snapshot().acquired_count
    if acquired_count <= part:
        return limits  # Few records are still acquired.
    # The limit counts the locks of all members, so the part of this fetch comes on top of them. It
    # is not exceeded, not even to complete a batch.
    return replace(
        limits,
        in_flight_max=min(limits.in_flight_max, acquired_count + part),
        completion_records_max=0,
    )
