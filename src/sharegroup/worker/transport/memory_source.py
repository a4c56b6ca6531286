"""A member of an in-memory share group, for `App.test`.

A source renews the locks of its deliveries as the client does with ``auto_renew``: after a third
of the lock duration.  It no longer renews a delivery after `lose`.  After `cut` it renews none,
and nothing that its process still does has an effect, as after ``kill -9``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from sharegroup.client import IllegalStateError
from sharegroup.errors import InvalidRecordState
from sharegroup.ids import MemberId
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.worker.ports import Header
from sharegroup.worker.transport.memory_clock import ScheduledCall
from sharegroup.worker.transport.memory_group import MemoryGroup, Place
from sharegroup.worker.transport.memory_log import MemoryLog, MemoryRecord

log = logging.getLogger(__name__)


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

    def release(self) -> None:
        self._source.settle(self, AcknowledgeType.RELEASE)

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

    def settle(self, delivery: MemoryDelivery, ack: AcknowledgeType) -> None:
        """Acknowledge a delivery; the error of a lost lock is logged."""
        if self._is_cut:
            return
        self._check_held(delivery, ack)
        del self._held[delivery.place]
        try:
            self._group.acknowledge(MemberId(self.member_id), delivery.place, ack)
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
