"""One share group in this process: members that feed the handlers of its routes.

    topic ------ intake --take--> its route's runner --> settled --> with the next request
    own topic -- intake --take--> by where the record came from first --^

Each intake takes what its runner has room for: what its lanes could begin now, and what they do
within a moment; never so much that it waits longer than a part of its lock.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sharegroup.errors import KafkaError
from sharegroup.worker.decisions.reasons import UNROUTED
from sharegroup.worker.decisions.steps import Bury, Postpone
from sharegroup.worker.decisions.tiers import Tiers
from sharegroup.worker.declared.route import Route
from sharegroup.worker.events import Events
from sharegroup.worker.middleware import Middleware
from sharegroup.worker.parts import GroupLimits, WorkerParts
from sharegroup.worker.ports import Delivery
from sharegroup.worker.records.story import NEW, Story, from_elsewhere
from sharegroup.worker.records.story_headers import story_of
from sharegroup.worker.running.in_hand import InHand
from sharegroup.worker.running.intake import Intake, Room
from sharegroup.worker.running.lane import Lane, Stopped
from sharegroup.worker.running.route_runner import RouteRunner
from sharegroup.worker.running.settling import Settling
from sharegroup.worker.running.watch import Watch
from sharegroup.worker.seeing.state import GroupState

log = logging.getLogger(__name__)

LOCK_SECONDS_DEFAULT = 30.0
"""Kafka's, before the first answer says better."""
UNROUTED_SECONDS = 30.0
"""What no handler of this process takes goes round, until another process has it."""
LIMITS_SECONDS = 60.0
"""How often the group's limits are asked again."""
INTERRUPTED_SECONDS = 2.0
"""How long handlers that were interrupted by a stop have to end."""
CLOSE_SECONDS = 10.0
OWN_WAITING_MAX = 1_000
"""Records of the own topic are whoever's: with so many waiting for one route, none are taken."""


@dataclass(frozen=True, slots=True)
class GroupReport:
    """What a stop did to one group's records."""

    finished: int
    """Handlers that ended while it waited."""
    interrupted: int
    """Handlers that had not ended in time; their records went back."""
    released: Mapping[tuple[str, int], int]
    """Records that went back, by topic and partition, begun or not."""


class GroupRunner:
    """See the module's text."""

    def __init__(
        self,
        group: str,
        routes: Sequence[Route],
        parts: WorkerParts,
        events: Events,
        *,
        limits: GroupLimits,
        middlewares: Sequence[Middleware] = (),
    ) -> None:
        self.group = group
        self._parts = parts
        self._clock = parts.clock
        in_flight = {topic: route.in_flight_bytes for route in routes for topic in route.topics}
        in_flight[routes[0].own_topic] = max(in_flight.values())
        sources = {topic: parts.open_source(group, topic, in_flight[topic]) for topic in in_flight}
        self.settling = Settling(
            group,
            tuple(sources.values()),
            parts.outbox,
            parts.clock,
            events,
            limits=limits,
            tiers=Tiers.of(routes[0].retry_tiers),
        )
        self.runners = [RouteRunner(route, self.settling, middlewares) for route in routes]
        self._by_topic = {topic: one for one in self.runners for topic in one.route.topics}
        self._intakes = [
            Intake(source, self.settling, self._room_of(topic), self._dispatch)
            for topic, source in sources.items()
        ]
        self._watch = Watch(parts.clock, self.settling, self.runners)
        self._background: list[asyncio.Task[None]] = []
        """What looks after the lanes."""
        self._is_taking = True
        self._ended = asyncio.Event()
        self._released: Counter[tuple[str, int]] = Counter()
        """What went back since it became quiet."""

    # How it stands.

    @property
    def state(self) -> GroupState:
        """What can be seen of it."""
        settling = self.settling
        return GroupState(
            self.group,
            settling.member_id,
            all(one.source.is_joined for one in self._intakes),
            waiting=sum(one.waiting for one in self.runners),
            running=sum(one.running for one in self.runners),
            held=len(settling.held),
            held_bytes=settling.held.bytes,
            blocked_writes=settling.writing.blocked,
        )

    # Life.

    async def run(self) -> None:
        """Take and handle records until `stop`; raises what makes that impossible."""
        async with asyncio.TaskGroup() as tasks:
            await asyncio.gather(*(runner.start(tasks) for runner in self.runners))
            self._background = [
                tasks.create_task(self.settling.held.run()),
                tasks.create_task(self._watch.run()),
                tasks.create_task(self._ask_limits()),
                *(tasks.create_task(one.run()) for one in self._intakes),
            ]
            await self._ended.wait()
            for one in self._background:  # A stop before this began found none of them.
                one.cancel()
            for lane in self._lanes():
                assert lane.task is not None, "it was started"
                lane.task.cancel()

    def quiet(self) -> None:
        """Take no more; what was not begun goes back, what was begun goes on."""
        self._is_taking = False
        for runner in self.runners:
            runner.stop_beginning()
        for intake in self._intakes:
            intake.close()
        # A record that waits here for its retry would find nobody who runs it.
        self.settling.may_hold = False
        self._postpone_held()
        self._give_back_waiting()

    def resume(self) -> None:
        """Take records again."""
        self.settling.may_hold = True
        self._released.clear()
        for runner in self.runners:
            runner.begin_again()
        self._is_taking = True
        for intake in self._intakes:
            intake.reopen()

    async def stop(self, grace_seconds: float, hurry: asyncio.Event) -> GroupReport:
        """Finish what fits in ``grace_seconds``, give back the rest, leave the group."""
        settling = self.settling
        before = sum(one.done for one in self.runners)
        self.quiet()
        await self._wait_for_handlers(grace_seconds, hurry)
        interrupted = await self._interrupt()
        at_close = [*settling.released_at_close, *settling.in_custody()]
        at_close += [one for runner in self.runners for one in runner.all_waiting()]
        await settling.writing.cancel()
        finished = sum(one.done for one in self.runners) - before - interrupted
        for one in self._background:
            one.cancel()
        if self._background:
            await asyncio.wait(self._background)
        await asyncio.gather(*(one.source.close(CLOSE_SECONDS) for one in self._intakes))
        for runner in self.runners:
            await runner.close()
        self._ended.set()
        self._released.update(one.place for one in at_close)
        return GroupReport(max(0, finished), interrupted, self._released)

    def _give_back_waiting(self) -> None:
        below = self.settling.give_back_below
        for runner in self.runners:
            given = runner.give_back_waiting(delivered_below=below)
            self._released.update(one.place for one in given)
        self.settling.flush()

    def _postpone_held(self) -> None:
        """What waits here waits in the retry topics from now on, with what is known of it."""
        for one in self.settling.held.take_all():
            if not one.is_done:
                self.settling.carry_out(one.runner, one, Postpone(one.story))

    async def _wait_for_handlers(self, grace_seconds: float, hurry: asyncio.Event) -> None:
        settling = self.settling
        settling.hungry += 1  # To the end: `_interrupt` waits for the same.
        over = asyncio.ensure_future(self._clock.sleep_until(self._clock.now() + grace_seconds))
        hurried = asyncio.ensure_future(hurry.wait())
        try:
            while self._is_busy() and not (over.done() or hurried.done()):
                settling.room_again.clear()
                progress = asyncio.ensure_future(settling.room_again.wait())
                await asyncio.wait({progress, over, hurried}, return_when=asyncio.FIRST_COMPLETED)
                progress.cancel()
        finally:
            over.cancel()
            hurried.cancel()

    async def _interrupt(self) -> int:
        """End the handlers that run still; how many."""
        now = self._clock.now()
        lanes = [lane for lane in self._lanes() if lane.hand]
        for lane in lanes:
            lane.interrupt(Stopped("the worker stops"), now)
        over = asyncio.ensure_future(self._clock.sleep_until(now + INTERRUPTED_SECONDS))
        while any(lane.hand for lane in lanes) and not over.done():
            self.settling.room_again.clear()
            progress = asyncio.ensure_future(self.settling.room_again.wait())
            await asyncio.wait({progress, over}, return_when=asyncio.FIRST_COMPLETED)
            progress.cancel()
        over.cancel()
        for runner in self.runners:
            for lane in runner.lanes:
                if lane.hand:
                    runner.give_up(lane, self._clock.now())
        return len(lanes)

    def _is_busy(self) -> bool:
        return len(self.settling.writing) > 0 or any(
            one.running > one.given_up for one in self.runners
        )

    def _lanes(self) -> list[Lane]:
        return [lane for runner in self.runners for lane in runner.lanes]

    # Taking.

    def _room_of(self, topic: str) -> Room:
        """How many records of a topic there is a use for."""

        def room(runner: RouteRunner) -> int:
            if self.settling.writing.is_full:
                return 0
            lock_seconds = self.settling.lock_seconds or LOCK_SECONDS_DEFAULT
            return runner.room(self._clock.now(), lock_seconds)

        def own() -> int:
            if any(one.waiting >= OWN_WAITING_MAX for one in self.runners):
                return 0
            return max(room(one) for one in self.runners)

        runner = self._by_topic.get(topic)
        if runner is None:
            return own
        topics = len(runner.route.topics)
        # Each of several topics its part: all of them may be waiting for records at a time.
        return lambda: -(-room(runner) // topics)

    def _dispatch(self, deliveries: Sequence[Delivery]) -> None:
        now = self._clock.now()
        by_topic = self._by_topic
        if self.settling.held:
            self.settling.note_newest(deliveries)
        for delivery in deliveries:
            story = story_of(delivery.headers) if delivery.headers else NEW
            runner = by_topic.get(delivery.topic)
            if runner is not None:
                story = from_elsewhere(story)
            else:
                runner = self._runner_by_origin(story)
            if runner is not None:
                runner.add(InHand(runner, delivery, story, now))
            else:
                self._send_round(InHand(self.runners[0], delivery, story, now))
        for runner in self.runners:
            runner.wake_one()
        self._watch.begin()
        if not self._is_taking:
            self._give_back_waiting()  # It was on its way when the worker became quiet.

    def _runner_by_origin(self, story: Story) -> RouteRunner | None:
        if story.origin is not None:
            return self._by_topic.get(story.origin.topic)
        return self.runners[0] if len(self.runners) == 1 else None

    def _send_round(self, one: InHand) -> None:
        """No handler here takes it: later, for another process that may have one.

        One that was written to the group's own topic by nobody of ours is nobody's, and a group
        that retries nothing has no topics in which it could wait.
        """
        settling, first = self.settling, one.runner
        settling.tell("record.unrouted", first, one)
        origin = None if one.story.origin is None else one.story.origin.topic
        if origin is None or all(runner.route.retry is None for runner in self.runners):
            text = f"of={origin} (it has no handler, and goes to the dead letters)"
            settling.say(logging.WARNING, "record.unrouted", first, one, text)
            settling.carry_out(first, one, Bury(one.story, UNROUTED))
            return
        due_ms = self._clock.wall_ms() + round(UNROUTED_SECONDS * 1000)
        text = f"of={origin} (it has no handler here, and goes round)"
        settling.say(logging.WARNING, "record.unrouted", first, one, text)
        settling.carry_out(first, one, Postpone(replace(one.story, due_ms=due_ms)))

    async def _ask_limits(self) -> None:
        while True:
            await self._clock.sleep_until(self._clock.now() + LIMITS_SECONDS)
            try:
                self.settling.limits = await self._parts.group_limits(self.group)
            except KafkaError as error:
                log.info("event=limits.unknown group=%s error=%r", self.group, error)
