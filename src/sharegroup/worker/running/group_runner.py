"""Runs one group in this process: its members take records for the handlers of its routes.

    topic ------ intake --take--> the route's runner ----> settled --> sent with the next request
    own topic -- intake --take--> the runner of the record's origin topic --^

Each intake takes as many records as its runner has room for: the records that its slots can begin
now, and those that they will begin shortly.  The number is limited, so that no record waits
longer than a small part of its lock duration.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sharegroup.errors import KafkaError
from sharegroup.worker.consuming.consumed_partitions import ConsumedPartitions
from sharegroup.worker.consuming.group_log import GroupReading
from sharegroup.worker.consuming.group_source import GroupSource
from sharegroup.worker.decisions.circuit import CircuitState
from sharegroup.worker.decisions.decide import Postpone, Redeliver
from sharegroup.worker.decisions.tiers import Tiers
from sharegroup.worker.declarations.route import Route, StartFrom
from sharegroup.worker.events import Events
from sharegroup.worker.parts import ShareGroupLimits, WorkerParts
from sharegroup.worker.ports import DeliveredRecord, RecordSource
from sharegroup.worker.records.outcomes import Stopped
from sharegroup.worker.records.unreadable_range import UnreadableRange
from sharegroup.worker.running.alone import Alone
from sharegroup.worker.running.breakers import Breakers
from sharegroup.worker.running.group_parts import GroupParts, RecordEvents
from sharegroup.worker.running.handler_slot import HandlerSlot
from sharegroup.worker.running.held_retries import HeldRetry
from sharegroup.worker.running.intake import Intake
from sharegroup.worker.running.partition_changes import PartitionChanges
from sharegroup.worker.running.record_routing import RecordRouting
from sharegroup.worker.running.returned import Around
from sharegroup.worker.running.room_signal import RoomSignal
from sharegroup.worker.running.route_runner import RouteRunner
from sharegroup.worker.running.settlement import HELD_OF_LOCKS
from sharegroup.worker.running.taken_record import TakenRecord
from sharegroup.worker.running.watch import Watch
from sharegroup.worker.telemetry.state import WorkerGroupState

log = logging.getLogger(__name__)

LIMITS_SECONDS = 60.0
"""The interval at which the group's limits are queried."""
INTERRUPTED_SECONDS = 2.0
"""Maximum time that a stop waits for the handlers that it has interrupted."""
WRITES_SECONDS = 2.0
"""Maximum time that a stop waits for writes after it has interrupted the handlers."""
FETCH_SECONDS = 2.0
"""Maximum time that a stop waits for a fetch that was under way; brokers park it for 0.5 s."""
CLOSE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class GroupReport:
    """The result of a stop for one group."""

    handled: int
    """Records that handlers processed since the start, with success or not, over all attempts."""
    finished: int
    """Handlers that ended while the stop waited for them."""
    interrupted: int
    """Handlers that had not ended in time; their records were released."""
    released: Mapping[tuple[str, int], int]
    """The number of released records, begun or not, by topic and partition."""


def _sources(
    route: Route, in_flight: Mapping[str, int], parts: WorkerParts, changes: PartitionChanges
) -> list[RecordSource]:
    """Open a member of the route's group for each topic; ``in_flight`` has their bytes."""
    if route.is_share:
        return [parts.open_source(route.group, topic, in_flight[topic]) for topic in in_flight]
    sources: list[RecordSource] = []
    for topic, in_flight_bytes in in_flight.items():
        # In the own topic, no record may be passed over.
        start_from = StartFrom.EARLIEST if topic == route.own_topic else route.start_from
        reading = GroupReading(
            *(route.group, topic, in_flight_bytes, route.group_protocol, start_from),
            exactly_once=route.exactly_once,
        )
        group_log = parts.open_group_log(reading)
        sources.append(GroupSource(reading, group_log, parts.clock, changes))
    return sources


class GroupRunner:
    """Runs the members, the routes and the background tasks of one group."""

    def __init__(
        self,
        routes: Sequence[Route],
        parts: WorkerParts,
        events: Events,
        *,
        limits: ShareGroupLimits,
        alone: Alone | None = None,
        around_of: Callable[[Route, GroupParts], Around],
    ) -> None:
        in_flight = {topic: route.in_flight_bytes for route in routes for topic in route.topics}
        group, own_topic = routes[0].group, routes[0].own_topic
        # The own topic has records of all routes.  Each topic has a member of its own
        # (docs/adr/0018).
        in_flight[own_topic] = max(in_flight.values())
        changes = PartitionChanges(group, events)
        sources = _sources(routes[0], in_flight, parts, changes)
        self.group = group
        self.is_share = routes[0].is_share
        self.partitions = ConsumedPartitions(
            group, [source for source in sources if isinstance(source, GroupSource)]
        )
        """The partitions of a consumer group that this process owns; none of a share group."""
        self._ask_for_limits = parts.group_limits
        self._clock = parts.clock
        self._parts = GroupParts(
            RecordEvents(group, events),
            sources,
            parts,
            limits=limits,
            tiers=Tiers.of(routes[0].retry_tiers),
            alone=alone,
        )
        self.runners = [
            RouteRunner(route, self._parts, around_of(route, self._parts)) for route in routes
        ]
        self._parts.alone.join(self)
        self._routing = RecordRouting(self.runners, self._parts)
        changes.join(self._parts, self._routing, self._postpone)
        self._intakes = [
            Intake(source, self._parts, is_own=source.topic == own_topic) for source in sources
        ]
        self._watch = Watch(self._routing, self._parts)
        self._breakers = Breakers(self.runners, self._intakes, self._parts, self._add)
        self._background: list[asyncio.Task[None]] = []
        """The tasks of the group other than its slots."""
        self._before_look: list[tuple[Intake, Sequence[DeliveredRecord]]] = []
        """Records delivered before that were taken while the groups looked for suspects."""
        self._newest: dict[tuple[str, int], int] = {}
        """The highest offset taken of each partition while records were held."""
        self._is_taking = True
        self._ended = asyncio.Event()
        self._released: Counter[tuple[str, int]] = Counter()
        """The number of records released since `quiet`, by topic and partition."""

    # State.

    @property
    def state(self) -> WorkerGroupState:
        """The state of the group in this process."""
        parts = self._parts
        return WorkerGroupState(
            self.group,
            parts.members.id,
            parts.members.have_joined,
            waiting=sum(runner.queue.waiting for runner in self.runners),
            running=sum(runner.running for runner in self.runners),
            held=len(parts.held),
            held_bytes=parts.held.bytes,
            blocked_writes=parts.writes.blocked,
            unrouted=dict(self._routing.unrouted),
            open_breakers=tuple(
                runner.route.shape.name
                for runner in self.runners
                if runner.breaker is not None and runner.breaker.state is not CircuitState.CLOSED
            ),
        )

    def holder_of(self, record_id: str) -> str | None:
        """Return the member of this process that holds the waiting record with this id, if any."""
        parts = self._parts
        is_held = any(record.story.id == record_id for record in parts.held)
        return parts.members.id if is_held else None

    # Life.

    async def run(self) -> None:
        """Take and handle records until `stop`; raises an error that makes this impossible."""
        async with asyncio.TaskGroup() as tasks:
            await asyncio.gather(*(runner.start(tasks) for runner in self.runners))
            self._background = [
                tasks.create_task(self._run_held()),
                tasks.create_task(self._watch.run()),
                *([tasks.create_task(self._ask_limits())] if self.is_share else []),
                *([tasks.create_task(self._breakers.run())] if self._breakers else []),
                # The own topic first: its suspects run before records that may end the process.
                *(tasks.create_task(self._take(intake)) for intake in reversed(self._intakes)),
            ]
            await self._ended.wait()
            for task in self._background:  # A `stop` before these tasks existed has cancelled none.
                task.cancel()
            for slot in self._slots():
                assert slot.task is not None, "it was started"
                slot.task.cancel()

    def quiet(self) -> None:
        """Stop taking records and release those not begun; running handlers continue."""
        self._is_taking = False
        # Before the intakes close, because the records that they return are added and must not
        # begin.
        for runner in self.runners:
            runner.stop_beginning()
        ahead = [(intake, intake.close()) for intake in self._intakes]
        # No handler begins any more, so a record held here would never be retried.
        self._parts.may_hold = False
        self._postpone_held()
        before_look, self._before_look = self._before_look, []
        for intake, deliveries in [*before_look, *ahead]:
            if deliveries:
                self._add(intake, deliveries)
        self._release_waiting()

    def resume(self) -> None:
        """Take records again."""
        # Before handlers begin: the first record that fails may be held again.
        self._parts.may_hold = True
        self._released.clear()
        for runner in self.runners:
            runner.begin_again()
        self._is_taking = True
        for intake in self._intakes:
            intake.reopen()

    async def stop(self, grace_seconds: float, hurry: asyncio.Event) -> GroupReport:
        """Let handlers finish for ``grace_seconds``, release all other records, leave the group.

        Setting ``hurry`` ends the grace.
        """
        parts = self._parts
        done_before = sum(runner.runs.done for runner in self.runners)
        self.quiet()
        await self._wait_for_handlers(grace_seconds, hurry)
        # Before the interruption, because the runs that it ends have not finished.
        handled = sum(runner.runs.done for runner in self.runners)
        interrupted = await self._interrupt()
        # What it brings would be released by the close, and for a suspect that counts as a crash.
        await parts.members.fetches_ended(FETCH_SECONDS)
        self.quiet()
        await self._finish_writes()
        # Before the writes are cancelled, because no list has their records afterwards.
        at_close = [*parts.released_at_close, *parts.in_custody()]
        at_close += [record for runner in self.runners for record in runner.queue]
        await parts.writes.cancel()
        for task in self._background:
            task.cancel()
        if self._background:
            await asyncio.wait(self._background)
        # No `_take` is left by now: a poll during the close of its consumer would raise.
        await asyncio.gather(*(intake.source.close(CLOSE_SECONDS) for intake in self._intakes))
        for runner in self.runners:
            await runner.close()
        self._ended.set()
        self._released.update(record.topic_partition for record in at_close)
        return GroupReport(handled, handled - done_before, interrupted, self._released)

    def _release_waiting(self) -> None:
        self._parts.alone.withdraw(self._parts.room)
        alone_from = self._parts.limits.alone_from
        for runner in self.runners:
            released = runner.release_waiting(alone_from=alone_from)
            self._released.update(record.topic_partition for record in released)
        self._parts.members.flush()

    def _postpone_held(self) -> None:
        """Move the held records, with their stories, to the retry topics, unless they block."""
        self._postpone(self._parts.held.take_all())

    def _postpone(self, held: Sequence[HeldRetry]) -> None:
        now, wall_ms = self._clock.now(), self._clock.wall_ms()
        for due, record in held:
            if record.is_done:
                continue
            if record.route.blocks:
                self._routing.runner_of(record).settlement.carry_out(record, Redeliver())
            else:
                # The wall clock may have been set since the failure.
                due_ms = max(wall_ms + round((due - now) * 1000), 0)
                settlement = self._routing.runner_of(record).settlement
                settlement.carry_out(record, Postpone(replace(record.story, due_ms=due_ms)))

    async def _wait_for_handlers(self, grace_seconds: float, hurry: asyncio.Event) -> None:
        grace = self._clock.sleep_until(self._clock.now() + grace_seconds)
        await self._parts.room.wait_while(self._is_busy, grace, hurry.wait())

    async def _interrupt(self) -> int:
        """Interrupt the running handlers; returns their number."""
        now = self._clock.now()
        slots = [slot for slot in self._slots() if slot.records]
        for slot in slots:
            slot.interrupt(Stopped("the worker stops"), now)
        await self._parts.room.wait_while(
            lambda: any(slot.records for slot in slots),
            self._clock.sleep_until(now + INTERRUPTED_SECONDS),
        )
        for runner in self.runners:
            for slot in runner.slots:
                if slot.records:
                    runner.give_up(slot, self._clock.now())
        return len(slots)

    async def _finish_writes(self) -> None:
        """Wait a short time for writes that do not fail, such as of records just put aside."""
        writes = self._parts.writes
        await self._parts.room.wait_while(
            lambda: len(writes) > writes.blocked,
            self._clock.sleep_until(self._clock.now() + WRITES_SECONDS),
        )

    def _is_busy(self) -> bool:
        # A pending write counts like a handler, because its record is settled only afterwards.
        return len(self._parts.writes) > 0 or any(runner.is_busy for runner in self.runners)

    def _slots(self) -> list[HandlerSlot]:
        return [slot for runner in self.runners for slot in runner.slots]

    # A record that runs alone.

    @property
    def room(self) -> RoomSignal:
        """The signal that a handler run or a write has ended."""
        return self._parts.room

    @property
    def is_busy(self) -> bool:
        """Whether a handler runs that was not given up, or a record is being written."""
        return self._is_busy()

    def runs_now(self, record: TakenRecord) -> bool:
        """Whether a handler runs for this record."""
        return any(record in slot.records for slot in self._slots())

    def make_alone(self) -> None:
        """Put aside the waiting records that a crash would judge."""
        parts = self._parts
        for runner in self.runners:
            runner.put_aside_waiting(alone_from=parts.limits.alone_from, but=parts.alone.spared)

    async def acknowledged(self, within_seconds: float) -> None:
        """Send pending acknowledgements, and wait for their responses at most this long."""
        await self._parts.members.acknowledged(within_seconds)

    def wake(self) -> None:
        """Begin handlers, and take records, again."""
        for runner in self.runners:
            runner.queue.wake_one()
        self._parts.room.notify()

    # Taking.

    async def _take(self, intake: Intake) -> None:
        """Take records and give them to their routes until cancelled."""
        alone = self._parts.alone
        if intake.is_own:
            await self._look_for_suspect(intake)
        while True:
            await intake.wait_open()
            topic = intake.source.topic
            allowed = self._routing.room(topic)
            room = intake.room(allowed)
            if room <= 0:
                if allowed > 0:  # Others need not wait for this topic.
                    self._routing.took(topic, asked=allowed, got=0)
                await intake.wait_for_room()
                continue
            deliveries = await intake.take(room, holds_up=self._routing.holds_up(topic))
            self._routing.took(topic, asked=room, got=len(deliveries))
            if deliveries:
                # ADR 0035: otherwise each crash of a record that is not yet suspected would count
                # for a suspect beside it.
                if not alone.have_looked.is_set() and any(
                    delivery.delivery_count > 1 for delivery in deliveries
                ):
                    await self._add_after_look(intake, deliveries)
                else:
                    self._add(intake, deliveries)
            # Nothing came within the shorter wait: held records may be what stops the partition.
            elif self._parts.held:
                self._make_way(topic)

    async def _add_after_look(self, intake: Intake, deliveries: Sequence[DeliveredRecord]) -> None:
        """Add records when all groups have looked for suspects, or earlier when this one stops.

        A stop must see them: it puts aside those that may not be delivered once more.
        """
        waiting = (intake, deliveries)
        self._before_look.append(waiting)
        await self._parts.alone.wait_until_looked()
        if waiting in self._before_look:
            self._before_look.remove(waiting)
            self._add(intake, deliveries)

    async def _look_for_suspect(self, intake: Intake) -> None:
        """Take a record of the own topic before records that were delivered before begin."""
        try:
            await intake.wait_open()
            if deliveries := await intake.source.take(1, intake.source.look_seconds):
                self._add(intake, deliveries)
        finally:
            self._parts.alone.looked()

    def _add(self, intake: Intake, deliveries: Sequence[DeliveredRecord]) -> None:
        # A source returns an unreadable range alone, so the first delivery tells.
        if isinstance(deliveries[0], UnreadableRange):
            self._routing.add_unreadable(deliveries[0])
            self._watch.begin()
            return
        if self._parts.held:
            self._note_newest(deliveries)
        # `add` puts the suspects of this take into the list first, so `took` judges with them.
        caution = self._parts.cautions[intake.source.topic]
        self._routing.add(deliveries, caution.suspects)
        if caution.suspects is not None:
            caution.took(deliveries, self._parts.limits)
        self._watch.begin()
        if self._parts.alone.run_now is not None:
            self.make_alone()
        if not self._is_taking:
            self._release_waiting()  # These arrived after the worker became quiet.

    async def _run_held(self) -> None:
        """Make held records ready when they are due, until cancelled."""
        while True:
            record = await self._parts.held.next_due()
            self._routing.runner_of(record).add_due(record)

    def _note_newest(self, deliveries: Sequence[DeliveredRecord]) -> None:
        """Remember the highest offset taken of each partition."""
        newest = self._newest
        for delivery in deliveries:
            topic_partition = delivery.topic, delivery.partition
            newest[topic_partition] = max(newest.get(topic_partition, 0), delivery.offset)

    def _make_way(self, of_topic: str) -> None:
        """Postpone the oldest held records of a topic, because no new records arrive.

        Apache Kafka limits how far a partition may be read beyond its oldest unsettled record, and
        our broker limits the number of locked records.  Held records count towards both limits.
        """
        held = self._parts.held
        for (topic, partition), newest in list(self._newest.items()):
            if not held.of_partition(topic, partition):
                del self._newest[topic, partition]
            elif topic == of_topic:
                # Half of the limit, because held records may take the other half (`HELD_OF_LOCKS`).
                below = newest - self._parts.limits.locks // HELD_OF_LOCKS
                self._postpone(held.take_oldest((topic, partition), below))

    async def _ask_limits(self) -> None:
        while True:
            await self._clock.sleep_until(self._clock.now() + LIMITS_SECONDS)
            try:
                self._parts.limits = await self._ask_for_limits(self.group)
            # The limits of the last answer stay in effect.
            except KafkaError as error:
                log.info("event=limits.unknown group=%s error=%r", self.group, error)
