"""The offset ranges that a member holds from one broker, and the share session with it.

It is for a reader that only tracks offsets and leaves the records to others, such as the driver
of a Spark query: 200,000 locks are a few ranges here.  The fetched bytes serve one purpose: to
find acquired offsets without a record (a transaction marker, or a hole after compaction).  Those
offsets are acknowledged as gaps.

When the lock of one record has ended, the broker refuses all acknowledgements of the partition, so
they are halved until the refused ones are alone (`refused_acknowledgements`).  That takes at most
`REQUESTS_MAX` requests; ranges that are not tested by then count as refused.  This is safe: their
locks end by themselves, and the records are delivered again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sharegroup.client.net.cluster import Cluster
from sharegroup.client.share.session.acknowledgements import AckRun
from sharegroup.client.share.session.acquired_records import (
    AcquiredBatches,
    AcquiredRecords,
    acquired_offsets,
    find_missing,
)
from sharegroup.client.share.session.offset_set import EMPTY, OffsetSet, Range, offsets_of
from sharegroup.client.share.session.refused_acknowledgements import (
    Refusal,
    count_offsets,
    divide_at_offset,
    refusal_of,
)
from sharegroup.client.share.session.renewal_schedule import forbids_renewal
from sharegroup.client.share.session.share_requests import FetchLimits
from sharegroup.client.share.session.share_session import (
    FetchedPartition,
    RunsByPartition,
    SessionAnswer,
    ShareSession,
)
from sharegroup.errors import CorruptMessage, KafkaError
from sharegroup.ids import TopicIdPartition
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.wire.batches.batches import scan
from sharegroup.wire.messages.share_fetch_v2 import LogBatch

log = logging.getLogger(__name__)

REQUESTS_MAX = 64
"""Maximum number of requests to halve the refused acknowledgements of one partition."""
TRIES_MAX = 5
"""Maximum number of attempts while the broker cannot write its state; the locks still run."""

OffsetsByPartition = dict[TopicIdPartition, OffsetSet]


@dataclass(slots=True)
class FetchedRanges:
    """The result of one ShareFetch: acquired ranges, errors by partition, and a failure."""

    acquired: dict[TopicIdPartition, tuple[AcquiredRecords, ...]] = field(default_factory=dict)
    """The acquired ranges by partition, without ranges that have no record at all."""
    errors: dict[TopicIdPartition, KafkaError] = field(default_factory=dict)
    failure: KafkaError | None = None
    outdated: set[TopicIdPartition] = field(default_factory=set)
    """The partitions that another broker may lead."""
    record_bytes: int = 0
    """The size of the log batches, fetched or listed."""

    @property
    def offset_count(self) -> int:
        """The number of acquired offsets."""
        return sum(
            acquired.offset_count for ranges in self.acquired.values() for acquired in ranges
        )


class HeldRanges:
    """The offset ranges held from one broker: fetches, acknowledges and renews them."""

    def __init__(
        self,
        session: ShareSession,
        cluster: Cluster,
        *,
        on_records: Callable[[AcquiredBatches], None] | None = None,
        on_moved: Callable[[TopicIdPartition], None] | None = None,
    ) -> None:
        self.session = session
        self._on_moved = on_moved
        """Called with a partition that this broker does not lead any more."""
        self._on_records = on_records
        self.lock_ms: int | None = None
        """The lock duration; None before the first answer."""
        self.backoff = cluster.backoff()
        self._held: OffsetsByPartition = {}
        self._gaps: OffsetsByPartition = {}
        self._empty: OffsetsByPartition = {}
        self._turn = asyncio.Lock()
        self._renewal_refused = False

    @property
    def held(self) -> Mapping[TopicIdPartition, OffsetSet]:
        """The offsets held from this broker by partition, as far as the client knows."""
        return self._held

    async def fetch(self, wanted: Sequence[TopicIdPartition], limits: FetchLimits) -> FetchedRanges:
        """Send one ShareFetch; the acquired offsets are held until they are acknowledged."""
        answer = await self.session.fetch(wanted, {}, limits)
        self._notice(answer)
        fetched = FetchedRanges(failure=answer.failure, outdated=answer.outdated_leaders(wanted))
        for partition in answer.partitions:
            if partition.error is not None:
                fetched.errors[partition.key] = partition.error
                if refusal_of(partition.error) is Refusal.LOCKS_GONE:
                    self._lose(partition.key, partition.error)
            if partition.acquired:
                self._take(partition, fetched)
        return fetched

    async def acknowledge(self, runs: RunsByPartition) -> OffsetsByPartition:
        """Acknowledge the part of the runs that is held here; return the confirmed offsets."""
        async with self._turn:
            return await self._settle({key: self._with_gaps(key, runs[key]) for key in runs})

    async def acknowledge_empty(self) -> None:
        """Acknowledge acquired ranges without records as gaps; `FetchedRanges` leaves them out."""
        empty, self._empty = self._empty, {}
        if empty:
            async with self._turn:
                await self._settle(
                    {
                        key: tuple(_runs(offsets, AcknowledgeType.GAP))
                        for key, offsets in empty.items()
                    }
                )

    async def renew(self) -> None:
        """Renew the locks of all held records."""
        async with self._turn:
            runs = {
                key: tuple(_runs(offsets, AcknowledgeType.RENEW))
                for key, offsets in self._held.items()
            }
            answer = await self.session.acknowledge(runs, renew=True) if runs else SessionAnswer()
            self._notice(answer)
            refused = {key: error for key, error in answer.results.items() if error is not None}
            # Renewals work (again), so a later refusal is worth another warning.
            if not refused:
                self._renewal_refused = False
            for key, error in refused.items():
                await self._renew_parts(key, error)

    async def close(self) -> None:
        """End the session, so that the broker releases the held records."""
        await self.session.acknowledge({}, close=True)
        self._forget()

    # Held offsets.

    def _forget(self) -> None:
        for table in (self._held, self._gaps, self._empty):
            table.clear()

    def _take(self, partition: FetchedPartition, fetched: FetchedRanges) -> None:
        """Add the acquired offsets.  Ranges without any record are not returned in ``fetched``.

        `acknowledge_empty` acknowledges them, because no reader would get them.
        """
        offsets = acquired_offsets(partition.acquired)
        self._held[partition.key] = self._held.get(partition.key, EMPTY) | offsets
        if partition.batches is None:
            batches, present = whole_batches(partition)
            end_offset = batches.end_offset
            fetched.record_bytes += len(partition.records)
            if self._on_records is not None:
                self._on_records(batches)
        else:
            present, end_offset = listed_offsets(partition.batches)
            fetched.record_bytes += sum(batch.size for batch in partition.batches)
        gaps = find_missing(offsets, present, end_offset).gaps
        if gaps:
            self._gaps[partition.key] = self._gaps.get(partition.key, EMPTY) | gaps
        with_records = tuple(
            acquired
            for acquired in partition.acquired
            if gaps.between(acquired.first_offset, acquired.end_offset).count
            < acquired.offset_count
        )
        if with_records:
            fetched.acquired[partition.key] = with_records
        empty = offsets - acquired_offsets(with_records)
        if empty:
            self._empty[partition.key] = self._empty.get(partition.key, EMPTY) | empty

    def _notice(self, answer: SessionAnswer) -> None:
        if answer.lock_ms is not None:
            self.lock_ms = answer.lock_ms
        if answer.lost is not None and self._held:
            log.warning(
                "event=locks.lost offsets=%d reason=%r action='the records are delivered again'",
                sum(offsets.count for offsets in self._held.values()),
                answer.lost,
            )
            self._forget()

    def _lose(self, key: TopicIdPartition, error: KafkaError) -> None:
        """Drop all held offsets of a partition that this broker does not lead any more."""
        if key in self._held:
            log.warning(
                "event=locks.lost key=%s offsets=%d reason=%r action='the records are delivered "
                "again'",
                key,
                self._held[key].count,
                error,
            )
            self._drop(key, self._held[key])

    def _drop(self, key: TopicIdPartition, offsets: OffsetSet) -> None:
        for table in (self._held, self._gaps, self._empty):
            remaining = table.get(key, EMPTY) - offsets
            if remaining:
                table[key] = remaining
            else:
                table.pop(key, None)

    def _with_gaps(self, key: TopicIdPartition, runs: Sequence[AckRun]) -> tuple[AckRun, ...]:
        """Return the runs with offsets without a record marked as gaps."""
        gaps = self._gaps.get(key, EMPTY)
        if not gaps:
            return tuple(runs)
        parts: list[AckRun] = []
        for run in runs:
            holes = gaps.between(run.first, run.end)
            parts += _runs(OffsetSet(((run.first, run.end),)) - holes, run.ack_type)
            parts += _runs(holes, AcknowledgeType.GAP)
        return tuple(sorted(parts))

    # Acknowledging.

    async def _settle(self, runs: RunsByPartition) -> OffsetsByPartition:
        sent = {
            key: held_runs
            for key, key_runs in runs.items()
            if (held_runs := _held_of(key_runs, self._held.get(key, EMPTY)))
        }
        answer = await self._sent(sent)
        confirmed: OffsetsByPartition = {}
        for key, error in answer.results.items():
            sent_offsets = offsets_of(sent[key])
            refused = sent_offsets
            if error is None:
                refused = EMPTY
            elif refusal_of(error) is Refusal.LOCK_ENDED and sent_offsets.count > 1:
                refused = await self._halved(key, sent[key])
            if refused:
                text = "event=acknowledgement.refused key=%s offsets=%d error=%r"
                log.info(text, key, refused.count, error)
            confirmed[key] = sent_offsets - refused
            # The refused ones, too: their locks end by themselves, and the records are delivered
            # again.
            self._drop(key, sent_offsets)
            if error is not None and refusal_of(error) is Refusal.LOCKS_GONE:
                self._lose(key, error)
                if self._on_moved is not None:
                    self._on_moved(key)
        return confirmed

    async def _sent(self, runs: RunsByPartition, *, renew: bool = False) -> SessionAnswer:
        """Send acknowledgements, and repeat while the broker cannot write its state."""
        answer = SessionAnswer()
        waiting = dict(runs)
        for _ in range(TRIES_MAX):
            if not waiting:
                break
            step = await self.session.acknowledge(waiting, renew=renew)
            self._notice(step)
            answer.results |= step.results
            waiting = {
                key: waiting[key]
                for key, error in step.results.items()
                if error is not None
                and step.failure is None
                and refusal_of(error) is Refusal.NOT_NOW
            }
            if waiting:
                await asyncio.sleep(self.backoff.next_ms() / 1000)
        return answer

    async def _halved(
        self, key: TopicIdPartition, runs: Sequence[AckRun], *, renew: bool = False
    ) -> OffsetSet:
        """Return the offsets that are refused, of runs that were refused together."""
        refused: list[AckRun] = []
        waiting = [part for part in divide_at_offset(runs) if part]
        requests = 0
        while waiting:
            part = waiting.pop()
            # What is left counts as refused: its records are delivered again, which is safe.
            if requests == REQUESTS_MAX:
                refused += part
                continue
            requests += 1
            error = (await self._sent({key: part}, renew=renew)).results[key]
            if error is None:
                continue
            if refusal_of(error) is Refusal.LOCK_ENDED and count_offsets(part) > 1:
                waiting += divide_at_offset(part)
            else:
                refused += part
        return offsets_of(refused)

    async def _renew_parts(self, key: TopicIdPartition, error: KafkaError) -> None:
        """React to a refused renewal: find and drop the offsets whose locks have ended.

        If every offset is refused, renewal itself may be disabled; that is logged once.
        """
        if key not in self._held:
            return  # The session was lost.
        match refusal_of(error):
            case Refusal.LOCKS_GONE:
                self._lose(key, error)
                if self._on_moved is not None:
                    self._on_moved(key)
            case Refusal.NOT_NOW:
                log.info("event=renewal.failed key=%s error=%r", key, error)
            case Refusal.LOCK_ENDED if not (self._renewal_refused or forbids_renewal(error)):
                await self._drop_ended(key, error)
            case _:
                self._say_not_renewed(key, error)

    async def _drop_ended(self, key: TopicIdPartition, error: KafkaError) -> None:
        runs = tuple(_runs(self._held[key], AcknowledgeType.RENEW))
        ended = await self._halved(key, runs, renew=True)
        if ended and ended != offsets_of(runs):
            log.warning("event=locks.ended key=%s offsets=%d", key, ended.count)
            self._drop(key, ended)
        else:
            # No lock can be renewed, perhaps because the group does not allow it.  The locks may
            # still be valid; the acknowledgement will show that.
            self._say_not_renewed(key, error)

    def _say_not_renewed(self, key: TopicIdPartition, error: KafkaError) -> None:
        if not self._renewal_refused:
            self._renewal_refused = True
            log.warning(
                "event=locks.not_renewed key=%s error=%r lock_ms=%s action='finish each batch "
                "within lock_ms, or set the group config share.renew.acknowledge.enable=true'",
                key,
                error,
                self.lock_ms,
            )


def listed_offsets(batches: Sequence[LogBatch]) -> tuple[OffsetSet, int]:
    """Return the offsets of listed batches that may have a record, and the end of the last one."""
    present = OffsetSet.of(
        (batch.first_offset, batch.end_offset)
        for batch in batches
        if not batch.flags and batch.first_offset < batch.end_offset
    )
    return present, batches[-1].end_offset if batches else -1


def whole_batches(partition: FetchedPartition) -> tuple[AcquiredBatches, OffsetSet]:
    """Return the whole batches of an answer, and the offsets that have a record by their headers.

    If a header is damaged, the offsets are those before the damage, and ``records`` is empty. The
    reader of the records finds the same damage and reports it in detail.
    """
    present: list[Range] = []
    log_first = first = end = log_end = -1
    size = 0
    try:
        for position, header in scan(partition.records):
            if not size:
                log_first = header.base_offset
            size, log_end = position + header.size, header.end_offset
            if not header.is_control:
                # Neighbours become one range.  The first time this adds an empty one, which is
                # left out below.
                if header.base_offset != end:
                    present.append((first, end))
                    first = header.base_offset
                end = log_end
    except CorruptMessage as error:
        log.warning("event=records.unreadable key=%s error=%r", partition.key, error)
        size = 0
    present.append((first, end))
    # A batch with an impossible end has no offset; it hides no record of another batch.
    ranges = (offset_range for offset_range in present if offset_range[0] < offset_range[1])
    records = partition.records[:size]
    batches = AcquiredBatches(partition.key, partition.acquired, records, log_first, log_end)
    return batches, OffsetSet.of(ranges)


def _held_of(runs: Sequence[AckRun], held: OffsetSet) -> tuple[AckRun, ...]:
    """Return the part of the runs that is held."""
    if not offsets_of(runs) - held:
        return tuple(runs)
    return tuple(
        AckRun(first, end, run.ack_type)
        for run in runs
        for first, end in held.between(run.first, run.end)
    )


def _runs(offsets: OffsetSet, ack_type: int) -> Iterator[AckRun]:
    return (AckRun(first, end, ack_type) for first, end in offsets)
