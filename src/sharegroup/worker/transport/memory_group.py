"""In-memory share groups that decide as our broker does, without a broker.

Each partition that a group reads has a `core.delivery.share_partition.SharePartition`, the code
that the broker runs.  So locks end, deliveries are counted, and records are archived at the
delivery count limit, as in production.  Settled records are kept separately (`_settled`), because
the core forgets records below the start offset and tests ask for them.

A group begins with the first record of each topic, whatever its routes declare, because the
topics of a test are empty when it begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import NamedTuple

from sharegroup.core.delivery.delivery import (
    ACQUIRED,
    AVAILABLE,
    AckBatch,
    Acquired,
    AcquireRequest,
    LogBatches,
    SharePartitionLimits,
)
from sharegroup.core.delivery.share_partition import SharePartition
from sharegroup.ids import MemberId
from sharegroup.protocol_enums import AcknowledgeType, AcquireMode
from sharegroup.worker.transport.memory_clock import MemoryClock, ScheduledCall
from sharegroup.worker.transport.memory_log import MemoryLog, MemoryRecord


class Standing(Enum):
    """The state of a record in a share group."""

    WAITING = "waiting"
    LOCKED = "locked"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    EXHAUSTED = "exhausted"
    """The delivery count limit was reached, and the broker archived the record."""


class Place(NamedTuple):
    """The topic, partition and offset of a record."""

    topic: str
    partition: int
    offset: int


class MemoryGroup:
    """One share group with the state of its records for all its members."""

    __slots__ = ("_alarm", "_log", "_partitions", "_settled", "_wakers", "limits", "name")

    def __init__(self, name: str, log: MemoryLog, limits: SharePartitionLimits) -> None:
        self.name = name
        self.limits = limits
        self._log = log
        self._partitions: dict[tuple[str, int], SharePartition] = {}
        self._settled: dict[Place, AcknowledgeType] = {}
        self._alarm: ScheduledCall | None = None
        self._wakers: list[Callable[[], None]] = []

    def acquire(
        self, member_id: MemberId, topics: Iterable[str], records_max: int
    ) -> Iterator[tuple[MemoryRecord, int]]:
        """Acquire up to ``records_max`` records for a member; yields them with delivery counts."""
        for topic in topics:
            for number, records in enumerate(self._log.partitions(topic)):
                for first, end, delivery_count in self._acquire(
                    member_id, topic, number, len(records), records_max
                ):
                    records_max -= end - first
                    yield from ((record, delivery_count) for record in records[first:end])
        self._set_alarm()

    def acknowledge(self, member_id: MemberId, place: Place, ack: AcknowledgeType) -> None:
        """Settle a record or renew its lock; raises InvalidRecordState, as a broker does."""
        partition = self._partition(place.topic, place.partition)
        partition.acknowledge(
            member_id,
            [AckBatch(place.offset, place.offset + 1, (int(ack),))],
            limits=self.limits,
            now_ms=self._clock.now_ms(),
        )
        if ack in {AcknowledgeType.ACCEPT, AcknowledgeType.REJECT}:
            self._settled[place] = ack
        elif ack is AcknowledgeType.RELEASE:
            self._wake()
        self._set_alarm()

    def release_member(self, member_id: MemberId) -> int:
        """Release all records of a member that has left; returns their number."""
        acquired_before = sum(
            share_partition.snapshot().acquired_count
            for share_partition in self._partitions.values()
        )
        for partition in self._partitions.values():
            partition.release_member(member_id, limits=self.limits)
        acquired_after = sum(
            share_partition.snapshot().acquired_count
            for share_partition in self._partitions.values()
        )
        self._wake()
        return acquired_before - acquired_after

    def standing(self, place: Place) -> Standing:
        """The state of a record in this group."""
        if place in self._settled:
            return (
                Standing.ACCEPTED
                if self._settled[place] is AcknowledgeType.ACCEPT
                else Standing.REJECTED
            )
        partition = self._partition(place.topic, place.partition)
        if place.offset >= partition.end_offset:
            return Standing.WAITING
        for run in partition.runs():
            if run.first <= place.offset < run.end:
                if run.value.state is AVAILABLE:
                    return Standing.WAITING
                if run.value.state is ACQUIRED:
                    return Standing.LOCKED
        return Standing.EXHAUSTED

    def on_available(self, waker: Callable[[], None]) -> None:
        """Call ``waker`` whenever records become available again."""
        self._wakers.append(waker)

    def forget(self, waker: Callable[[], None]) -> None:
        """Unregister ``waker``."""
        self._wakers.remove(waker)

    @property
    def _clock(self) -> MemoryClock:
        return self._log.clock

    def _partition(self, topic: str, number: int) -> SharePartition:
        return self._partitions.setdefault((topic, number), SharePartition(0))

    def _acquire(
        self, member_id: MemberId, topic: str, number: int, log_end: int, records_max: int
    ) -> tuple[Acquired, ...]:
        partition = self._partition(topic, number)
        position = partition.next_fetch_offset()
        if records_max <= 0 or position >= log_end or not partition.can_acquire(self.limits):
            return ()
        acquired = partition.acquire(
            member_id,
            LogBatches(position, [position], [log_end]),
            request=AcquireRequest(records_max, records_max, AcquireMode.RECORD_LIMIT),
            limits=self.limits,
            now_ms=self._clock.now_ms(),
        )
        return acquired.ranges

    def _set_alarm(self) -> None:
        """Schedule a check for the time when the next lock ends."""
        ends = [item.next_expiry_ms() for item in self._partitions.values()]
        next_ms = min((item for item in ends if item is not None), default=None)
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if next_ms is not None:
            self._alarm = self._clock.call_at(next_ms / 1000, self._expire)

    def _expire(self) -> None:
        for partition in self._partitions.values():
            partition.expire(limits=self.limits, now_ms=self._clock.now_ms())
        self._wake()
        self._set_alarm()

    def _wake(self) -> None:
        for waker in tuple(self._wakers):
            waker()
