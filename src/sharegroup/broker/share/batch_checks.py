"""Finds log batches that claim thousands of records but hold none, before members get them.

A batch of a few bytes may claim all offsets up to 2^31.  Produce refuses such batches, but a log
may hold older ones, and a compressed batch may claim an allowed number but hold something else.
Members would reject them in pieces, one piece per fetch, and each rejected offset may become a dead
letter.  So the broker reads a large batch once before it delivers the first records of it.  A batch
is large if it has more than `LARGE_BATCH_RECORDS` records.  It is also large if it has more than
`THIN_BATCH_RECORDS` records and fewer bytes than records, which is cheap to send and rare among
readable batches::

    fetch ──▶ large batch ──▶ unknown:    a walk reads it (`record_jobs`), the fetch waits
                              sound:      delivered like any other
                              unreadable: its offsets are archived as a hole, in one state write

Offsets of an unreadable batch get no dead letters: there is nothing to copy, and there may be two
billion of them.  A warning names the batch, and metrics count batches and offsets.  Its bytes stay
in the log until retention deletes them.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from operator import sub

from sharegroup.broker.load.record_jobs import RecordJobs
from sharegroup.broker.share.live_share_partition import LiveSharePartition
from sharegroup.core.security.principal import Principal
from sharegroup.errors import CorruptMessage, KafkaError
from sharegroup.ids import GroupId, SharePartitionKey
from sharegroup.storage.segment.boundaries import BatchSpans
from sharegroup.wire.batches.batches import UNREADABLE, parse_header, record_count_max
from sharegroup.wire.batches.record_walk import Walk, WalkStep, check_batch

log = logging.getLogger(__name__)

LARGE_BATCH_RECORDS = 10_000
"""Maximum number of offsets of an unchecked batch; a member rejects such a batch in few pieces."""

THIN_BATCH_RECORDS = 2_000
"""The limit for batches with fewer bytes than offsets; as many as a group may lock by default."""

VERDICTS_MAX = 64
"""Maximum number of verdicts on large batches that are kept for one share partition."""


class BatchChecks:
    """The batch checks of one broker; ``wake`` is called when fetches may continue."""

    __slots__ = ("_tasks", "_wake", "archived_count", "jobs", "owner_of", "unreadable_count")

    def __init__(self, wake: Callable[[SharePartitionKey], None]) -> None:
        self.jobs: RecordJobs | None = None
        """None while the broker starts, when nothing is checked."""
        self.owner_of: Callable[[GroupId], Principal | None] = lambda _: None
        """Returns the user to whom a group belongs, whose turns the checks take."""
        self.unreadable_count = 0
        """Batches that could not be read, since the broker started."""
        self.archived_count = 0
        """Offsets that were archived because their batch could not be read, over all groups."""
        self._wake = wake
        self._tasks: set[asyncio.Task[None]] = set()

    def known(self, live: LiveSharePartition, found: BatchSpans) -> BatchSpans | None:
        """Return the batches before the first large one that is not known to be sound.

        None while the first batch itself is being read.  If the first batch is unreadable, the
        result is that batch without a beginning: its ``ends`` has one element, ``firsts`` none.
        """
        begin, new = found.firsts[0], 0
        if live.sound_from <= begin <= live.sound_until:
            if found.ends[-1] <= live.sound_until:
                return found
            # The batches follow those that were checked, so only the new ones are looked at.
            begin, new = live.sound_from, bisect_left(found.firsts, live.sound_until)
        if self.jobs is None:
            return found
        for index, count in enumerate(map(sub, found.ends[new:], found.firsts[new:]), new):
            if count <= THIN_BATCH_RECORDS:
                continue
            first, end = found.firsts[index], found.ends[index]
            is_sound = _verdict(live, first, end)
            if is_sound:
                continue
            if index:
                # The bytes are too many, but serve only for an estimate (`share_reading`).
                return replace(found, firsts=found.firsts[:index], ends=found.ends[:index])
            if is_sound is None:
                self._begin(self.jobs, live, first, end)
                return None
            return BatchSpans([], [end], 0)
        live.sound_from, live.sound_until = begin, found.ends[-1]
        return found

    def _begin(self, jobs: RecordJobs, live: LiveSharePartition, first: int, end: int) -> None:
        """Begin to check a batch, unless its check is under way."""
        if first in live.batches_checked:
            return
        live.batches_checked.add(first)
        task = asyncio.get_running_loop().create_task(self._check(jobs, live, first, end))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _check(
        self, jobs: RecordJobs, live: LiveSharePartition, first: int, end: int
    ) -> None:
        """Read a batch, note the verdict, and wake the fetches that wait for it."""
        is_sound = True
        try:
            walk = _has_records(live, first, end, jobs.bytes_max)
            is_sound = await jobs.complete(walk, self.owner_of(live.key.group_id))
        except UNREADABLE as error:
            is_sound = False
            self.unreadable_count += 1
            self.note_archived(live, first, end, str(error))
        except KafkaError:
            pass  # The disk cannot read it now: the fetch that gets the batch reports that.
        finally:
            live.batches_checked.discard(first)
        _note(live, first, is_sound=is_sound)
        self._wake(live.key)

    def note_archived(self, live: LiveSharePartition, first: int, end: int, reason: str) -> None:
        """Count and log offsets that are archived, because the log cannot read their batch."""
        first = max(first, live.log.start_offset)
        self.archived_count += end - first
        log.warning(
            "event=records_unreadable %s first=%d end=%d reason=%r action='the offsets are "
            "archived for this group; their bytes stay in the log until retention deletes them'",
            live,
            first,
            end,
            reason,
        )


def _verdict(live: LiveSharePartition, first: int, end: int) -> bool | None:
    """Return whether members can read the batch; None if it was not checked."""
    count, start = end - first, max(first, live.log.start_offset)
    # Neither large nor thin: to read it first would cost more than the few pieces in which a member
    # rejects it.
    if count <= LARGE_BATCH_RECORDS and live.log.bytes_from(start, end=end) >= count:
        return True
    return live.batch_verdicts.get(first)


def _note(live: LiveSharePartition, first: int, *, is_sound: bool) -> None:
    """Keep the verdict on a batch; with too many verdicts, drop the oldest."""
    if len(live.batch_verdicts) >= VERDICTS_MAX:
        del live.batch_verdicts[next(iter(live.batch_verdicts))]
    live.batch_verdicts[first] = is_sound


def _has_records(live: LiveSharePartition, first: int, end: int, bytes_max: int) -> Walk[bool]:
    """Return whether the batch holds readable records; CorruptMessage if its header is wrong."""
    yield WalkStep.BEGIN
    try:
        batch = live.log.read_range(max(first, live.log.start_offset), end)
    except CorruptMessage:
        return True  # Damaged on the disk: the fetch that gets the batch reports that.
    header = parse_header(batch)
    limit = record_count_max(header)
    if header.record_count > limit:
        raise CorruptMessage(
            f"the batch claims {header.record_count} records, but can contain at most {limit}"
        )
    yield from check_batch(batch, header, bytes_max=bytes_max)
    return header.record_count > 0
