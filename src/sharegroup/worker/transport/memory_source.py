"""A member of an in-memory share group, for `App.test`.

A source renews the locks of its deliveries as the client does with ``auto_renew``: after a third
of the lock duration.  It no longer renews a delivery after `lose`.  After `cut` it renews none,
and nothing that its process still does has an effect, as after ``kill -9``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from enum import Enum
from typing import NamedTuple

from sharegroup.client import IllegalStateError
from sharegroup.core.delivery.delivery import (
    ACQUIRED,
    AVAILABLE,
    DELAYED,
    AckBatch,
    Acquired,
    AcquireRequest,
    LogBatches,
    SharePartitionLimits,
)
from sharegroup.core.delivery.share_partition import SharePartition
from sharegroup.errors import InvalidRecordState
from sharegroup.ids import MemberId
from sharegroup.protocol_enums import GROUPS_DELAY, AcknowledgeType, AcquireMode
from sharegroup.worker.ports import Header
from sharegroup.worker.transport.memory_clock import MemoryClock, ScheduledCall
from sharegroup.worker.transport.memory_log import MemoryLog, MemoryRecord

log = logging.getLogger(__name__)


# In-memory share groups that decide as our broker does, without a broker.
#
# Each partition that a group reads has a `core.delivery.share_partition.SharePartition`, the code
# that the broker runs. So locks end, deliveries are counted, and records are archived at the
# delivery count limit, as in production. Settled records are kept separately (`_settled`), because
# the core forgets records below the start offset and tests ask for them.
#
# A group begins with the first record of each topic, whatever its routes declare, because the
# topics of a test are empty when it begins.


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

    def acknowledge(
        self,
        member_id: MemberId,
        place: Place,
        ack: AcknowledgeType,
        delay_ms: int = GROUPS_DELAY,
    ) -> None:
        """Settle a record or renew its lock; raises InvalidRecordState, as a broker does."""
        partition = self._partition(place.topic, place.partition)
        partition.acknowledge(
            member_id,
            [AckBatch(place.offset, place.offset + 1, (int(ack),), delay_ms)],
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
        acquired_before = self._acquired_count()
        for partition in self._partitions.values():
            partition.release_member(member_id, limits=self.limits)
        acquired_after = self._acquired_count()
        self._wake()
        return acquired_before - acquired_after

    def _acquired_count(self) -> int:
        return sum(partition.snapshot().acquired_count for partition in self._partitions.values())

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
                if run.value.state in {AVAILABLE, DELAYED}:
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
        """Schedule a check for the time when the next lock or delay ends."""
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
            partition.end_delays(now_ms=self._clock.now_ms())
        self._wake()
        self._set_alarm()

    def _wake(self) -> None:
        for waker in tuple(self._wakers):
            waker()


class MemoryDelivery:
    """A delivery of an in-memory record; a `ports.DeliveredRecord`."""

    __slots__ = ("_record", "_source", "deadline", "delivery_count", "is_lost")

    def __init__(
        self, source: MemorySource, record: MemoryRecord, delivery_count: int, deadline: float
    ) -> None:
        self._source = source
        self._record = record
        self.delivery_count = delivery_count
        self.deadline = deadline
        self.is_lost = False

    @property
    def topic(self) -> str:
        return self._record.topic

    @property
    def partition(self) -> int:
        return self._record.partition

    @property
    def offset(self) -> int:
        return self._record.offset

    @property
    def timestamp_ms(self) -> int:
        return self._record.timestamp_ms

    @property
    def key(self) -> bytes | None:
        return self._record.key

    @property
    def value(self) -> bytes | None:
        return self._record.value

    @property
    def headers(self) -> Sequence[Header]:
        return self._record.headers

    @property
    def place(self) -> Place:
        """The topic, partition and offset of the record."""
        return Place(self.topic, self.partition, self.offset)

    def accept(self) -> None:
        self._source.settle(self, AcknowledgeType.ACCEPT)

    def release(self, *, delay: timedelta | None = None) -> None:
        delay_ms = GROUPS_DELAY if delay is None else delay // timedelta(milliseconds=1)
        self._source.settle(self, AcknowledgeType.RELEASE, delay_ms)

    def reject(self) -> None:
        self._source.settle(self, AcknowledgeType.REJECT)

    def renew(self) -> None:
        self._source.renew(self)

    def __repr__(self) -> str:
        return f"MemoryDelivery({self.place}, delivery_count={self.delivery_count})"


class MemorySource:
    """A member of an in-memory share group that reads one topic; a `ports.RecordSource`."""

    __slots__ = (
        "_arrived",
        "_group",
        "_held",
        "_is_cut",
        "_is_quiet",
        "_log",
        "_renewal",
        "member_id",
        "topic",
    )

    def __init__(self, member_id: str, group: MemoryGroup, topic: str, log: MemoryLog) -> None:
        self.member_id = member_id
        self._group = group
        self.topic = topic
        self._log = log
        self._held: dict[Place, MemoryDelivery] = {}
        self._arrived = asyncio.Event()
        self._renewal: ScheduledCall | None = None
        self._is_quiet = False
        self._is_cut = False
        log.on_append(self._appended)
        group.on_available(self._arrived.set)

    @property
    def lock_seconds(self) -> float | None:
        """The lock duration in seconds."""
        return self._group.limits.lock_ms / 1000

    @property
    def is_joined(self) -> bool:
        """True until `cut`, because there is no coordinator to join."""
        return not self._is_cut

    @property
    def renews(self) -> bool:
        """Whether the group's settings allow renewing locks."""
        return self._group.limits.renewal

    @property
    def look_seconds(self) -> float:
        """0: records that are there are taken immediately."""
        return 0.0

    async def take(self, room: int, wait_seconds: float) -> Sequence[MemoryDelivery]:
        """Take up to ``room`` records, and wait for the first at most ``wait_seconds``."""
        clock = self._log.clock
        deadline = clock.now() + wait_seconds
        alarm = clock.call_at(deadline, self._arrived.set, is_idle=True)
        try:
            while True:
                self._arrived.clear()
                if taken := self._take(room):
                    return taken
                # After `cut` this never returns, as in a process that is dead.
                if (clock.now() >= deadline or self._is_quiet) and not self._is_cut:
                    return ()
                await self._arrived.wait()
        finally:
            alarm.cancel()

    def quiet(self, *, delivered_below: int) -> tuple[()]:  # noqa: ARG002  None are ahead.
        """Stop taking records."""
        self._is_quiet = True
        self._arrived.set()
        return ()

    async def fetches_ended(self, within_seconds: float) -> None:
        """Return at once, because a record is acquired when it is taken."""

    def resume(self) -> None:
        """Take records again."""
        self._is_quiet = False
        self._arrived.set()

    def flush(self) -> None:
        """Do nothing, because acknowledgements take effect immediately."""

    async def acknowledged(self, within_seconds: float) -> None:
        """Do nothing, as `flush`."""

    async def close(self, within_seconds: float) -> int:  # noqa: ARG002  It takes no time.
        """Release all locked records and leave the group; returns the number of records."""
        if self._is_cut:
            return 0
        self._leave()
        return self._group.release_member(MemberId(self.member_id))

    def cut(self) -> None:
        """Simulate the death of the process: its records are released, and later calls ignored."""
        self._leave()
        self._is_cut = True
        self._group.release_member(MemberId(self.member_id))

    def holds(self, place: Place) -> bool:
        """Whether this member has the record and has not settled it."""
        return place in self._held

    def lose(self, place: Place) -> None:
        """End the lock of a record now, so that it is delivered again."""
        delivery = self._held[place]
        self._group.acknowledge(MemberId(self.member_id), place, AcknowledgeType.RELEASE)
        delivery.is_lost = True
        delivery.deadline = self._log.clock.now()

    def settle(
        self, delivery: MemoryDelivery, ack: AcknowledgeType, delay_ms: int = GROUPS_DELAY
    ) -> None:
        """Acknowledge a delivery; the error of a lost lock is logged."""
        if self._is_cut:
            return
        self._check_held(delivery, ack)
        del self._held[delivery.place]
        try:
            self._group.acknowledge(MemberId(self.member_id), delivery.place, ack, delay_ms)
        except InvalidRecordState as error:
            log.warning(
                'event=acknowledgement_refused group=%s reason="%s"', self._group.name, error
            )

    def renew(self, delivery: MemoryDelivery) -> None:
        """Renew the lock of a delivery unless it is lost."""
        if self._is_cut or delivery.is_lost:
            return
        self._check_held(delivery, AcknowledgeType.RENEW)
        try:
            self._group.acknowledge(MemberId(self.member_id), delivery.place, AcknowledgeType.RENEW)
        except InvalidRecordState as error:
            log.warning('event=renewal_refused group=%s reason="%s"', self._group.name, error)
        else:
            delivery.deadline = self._deadline()

    def _take(self, room: int) -> list[MemoryDelivery]:
        if self._is_cut or self._is_quiet:
            return []
        taken = []
        for record, count in self._group.acquire(MemberId(self.member_id), (self.topic,), room):
            delivery = MemoryDelivery(self, record, count, self._deadline())
            self._held[delivery.place] = delivery
            taken.append(delivery)
        if taken and self._renewal is None:
            self._renew_later()
        return taken

    def _renew_later(self) -> None:
        lock_seconds = self._group.limits.lock_ms / 1000
        renew_at = self._log.clock.now() + lock_seconds / 3
        self._renewal = self._log.clock.call_at(renew_at, self._renew_all)

    def _renew_all(self) -> None:
        self._renewal = None
        if self._group.limits.renewal:
            for delivery in tuple(self._held.values()):
                self.renew(delivery)
        if self._held:
            self._renew_later()

    def _check_held(self, delivery: MemoryDelivery, ack: AcknowledgeType) -> None:
        if self._held.get(delivery.place) is not delivery:
            raise IllegalStateError(
                f"group {self._group.name!r}: {delivery} can't be settled with {ack.name}: "
                "it was settled before, or delivered again"
            )

    def _deadline(self) -> float:
        return self._log.clock.now() + self._group.limits.lock_ms / 1000

    def _appended(self, topic: str) -> None:
        if topic == self.topic:
            self._arrived.set()

    def _leave(self) -> None:
        self._held.clear()
        self._log.forget(self._appended)
        self._group.forget(self._arrived.set)
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None
