"""Ends the work on partitions that a consumer group takes away; a `consuming` `Rebalances`.

    revoked    records not begun are dropped, handlers end, then the source commits
    gone       handlers that did not end in time, or that lost their partition, are interrupted

Held retries of a route whose failed records block are given back: the next owner runs them.  Others
move to the retry topics with their failures.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence

from sharegroup.worker.decisions.decide import Redeliver
from sharegroup.worker.events import Event, Events
from sharegroup.worker.records.outcomes import LockLost
from sharegroup.worker.running.group_parts import GroupParts
from sharegroup.worker.running.handler_slot import HandlerSlot
from sharegroup.worker.running.held_retries import HeldRetry
from sharegroup.worker.running.record_routing import RecordRouting
from sharegroup.worker.running.taken_record import TakenRecord

log = logging.getLogger(__name__)

OFFSET_END = 2**63
"""Above all offsets."""


class PartitionChanges:
    """Ends the work of one group on partitions that are taken away."""

    __slots__ = ("_events", "_group", "_parts", "_postpone", "_routing")

    def __init__(self, group: str, events: Events) -> None:
        self._group = group
        self._events = events
        self._parts: GroupParts | None = None
        self._routing: RecordRouting | None = None
        self._postpone: Callable[[Sequence[HeldRetry]], None] | None = None

    def join(
        self,
        parts: GroupParts,
        routing: RecordRouting,
        postpone: Callable[[Sequence[HeldRetry]], None],
    ) -> None:
        """Set the parts of the group, which are made after its sources."""
        self._parts, self._routing, self._postpone = parts, routing, postpone

    def assigned(self, topic: str, partitions: Collection[int]) -> None:
        """Report partitions that are owned from now on."""
        self._tell("partitions.assigned", topic, partitions)

    async def revoke(self, topic: str, partitions: Collection[int], within_seconds: float) -> None:
        """Drop records not begun, and wait for handlers and writes, for a limited time."""
        parts, _, postpone = self._joined()
        places = {(topic, number) for number in partitions}
        for place in places:
            postpone(parts.held.take_oldest(place, below=OFFSET_END))
        self._drop_waiting(places)
        await parts.room.wait_while(
            lambda: self._has_work(places),
            parts.clock.sleep_until(parts.clock.now() + within_seconds),
        )
        if self._has_work(places):
            log.warning(
                "event=partitions.revoked_early group=%s topic=%s partitions=%s seconds=%s "
                "action='handlers that run longer are interrupted; the next owner runs their "
                "records again'",
                *(self._group, topic, sorted(partitions), within_seconds),
            )

    def gone(self, topic: str, partitions: Collection[int], *, is_lost: bool) -> None:
        """Interrupt the handlers of partitions that others may own, and drop all records."""
        parts, routing, _ = self._joined()
        places = {(topic, number) for number in partitions}
        now = parts.clock.now()
        for slot in self._slots(places):
            slot.interrupt(LockLost("the group has given the partition to another member"), now)
        for record in [*self._waiting(), *parts.in_custody()]:
            if record.topic_partition in places and not record.is_done:
                routing.runner_of(record).settlement.lost(record)
        name = "partitions.lost" if is_lost else "partitions.revoked"
        self._tell(name, topic, partitions)

    def _joined(
        self,
    ) -> tuple[GroupParts, RecordRouting, Callable[[Sequence[HeldRetry]], None]]:
        assert self._parts is not None, "no partition is assigned before the group runs"
        assert self._routing is not None
        assert self._postpone is not None
        return self._parts, self._routing, self._postpone

    def _drop_waiting(self, places: Collection[tuple[str, int]]) -> None:
        _, routing, _ = self._joined()
        # A list, because a settled record moves others of its key.
        for record in list(self._waiting()):
            if record.topic_partition in places and not record.is_done:
                routing.runner_of(record).settlement.carry_out(record, Redeliver())

    def _waiting(self) -> Iterator[TakenRecord]:
        _, routing, _ = self._joined()
        return (record for runner in routing.runners for record in runner.queue)

    def _has_work(self, places: Collection[tuple[str, int]]) -> bool:
        parts, _, _ = self._joined()
        writes = any(record.topic_partition in places for record in parts.writes.records())
        return writes or any(True for _ in self._slots(places))

    def _slots(self, places: Collection[tuple[str, int]]) -> Iterator[HandlerSlot]:
        """The slots whose handlers run for records of these partitions."""
        _, routing, _ = self._joined()
        for runner in routing.runners:
            for slot in runner.slots:
                records = slot.records
                if records and any(record.topic_partition in places for record in records):
                    yield slot

    def _tell(self, name: str, topic: str, partitions: Collection[int]) -> None:
        numbers = sorted(partitions)
        if numbers and self._events.wants(name):
            details = {"partitions": numbers}
            self._events.tell(Event(name, group=self._group, topic=topic, details=details))
