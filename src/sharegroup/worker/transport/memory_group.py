"""Share groups in memory: the same decisions as our broker's, without a broker.

Each partition that a group reads has a `core.share_partition.SharePartition`, the very code that
the broker runs.  So locks end, deliveries are counted, and what was delivered too often is
archived, as it will be in production.  What a group settled is kept beside it (`settled`): the
core forgets what is behind it, and a test wants to know.

A group begins with the first record of each topic, however its routes are declared: a test's
topics are empty when it begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import NamedTuple

from sharegroup.core.delivery import (
    ACQUIRED,
    AVAILABLE,
    Ack,
    AckBatch,
    Acquired,
    AcquireMode,
    Limits,
    LogBatches,
    Wanted,
)
from sharegroup.core.share_partition import SharePartition
from sharegroup.ids import MemberId
from sharegroup.worker.transport.memory_clock import Alarm, MemoryClock
from sharegroup.worker.transport.memory_log import MemoryLog, MemoryRecord


class Standing(Enum):
    """How a record stands with a group."""

    WAITING = "waiting"
    LOCKED = "locked"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    EXHAUSTED = "exhausted"
    """Delivered as often as is permitted, and archived by the broker."""


class Place(NamedTuple):
    """Where a record lies."""

    topic: str
    partition: int
    offset: int


class MemoryGroup:
    """One share group, whoever its members are."""

    __slots__ = ("_alarm", "_log", "_partitions", "_settled", "_wakers", "limits", "name")

    def __init__(self, name: str, log: MemoryLog, limits: Limits) -> None:
        self.name = name
        self.limits = limits
        self._log = log
        self._partitions: dict[tuple[str, int], SharePartition] = {}
        self._settled: dict[Place, Ack] = {}
        self._alarm: Alarm | None = None
        self._wakers: list[Callable[[], None]] = []

    def acquire(
        self, member_id: MemberId, topics: Iterable[str], records_max: int
    ) -> Iterator[tuple[MemoryRecord, int]]:
        """Lock up to so many records for a member; each with its delivery count."""
        for topic in topics:
            for number, lying in enumerate(self._log.partitions(topic)):
                for first, end, delivery_count in self._acquire(
                    member_id, topic, number, len(lying), records_max
                ):
                    records_max -= end - first
                    yield from ((one, delivery_count) for one in lying[first:end])
        self._set_alarm()

    def acknowledge(self, member_id: MemberId, place: Place, ack: Ack) -> None:
        """Settle one record, or keep it for longer; raises InvalidRecordState, as a broker."""
        partition = self._partition(place.topic, place.partition)
        partition.acknowledge(
            member_id,
            [AckBatch(place.offset, place.offset + 1, (int(ack),))],
            limits=self.limits,
            now_ms=self._clock.now_ms(),
        )
        if ack in {Ack.ACCEPT, Ack.REJECT}:
            self._settled[place] = ack
        elif ack is Ack.RELEASE:
            self._wake()
        self._set_alarm()

    def release_member(self, member_id: MemberId) -> int:
        """The member is gone: what it held is there for others; how many records that were."""
        before = sum(one.snapshot().acquired_count for one in self._partitions.values())
        for partition in self._partitions.values():
            partition.release_member(member_id, limits=self.limits)
        after = sum(one.snapshot().acquired_count for one in self._partitions.values())
        self._wake()
        return before - after

    def standing(self, place: Place) -> Standing:
        """What became of a record so far."""
        if place in self._settled:
            return Standing.ACCEPTED if self._settled[place] is Ack.ACCEPT else Standing.REJECTED
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
        """Call this when records came back."""
        self._wakers.append(waker)

    def forget(self, waker: Callable[[], None]) -> None:
        """Never call this again."""
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
            wanted=Wanted(records_max, records_max, AcquireMode.RECORD_LIMIT),
            limits=self.limits,
            now_ms=self._clock.now_ms(),
        )
        return acquired.ranges

    def _set_alarm(self) -> None:
        """Look again when the next lock ends."""
        ends = [one.next_expiry_ms() for one in self._partitions.values()]
        next_ms = min((one for one in ends if one is not None), default=None)
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
