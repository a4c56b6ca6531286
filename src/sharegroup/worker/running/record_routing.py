"""Gives each delivered record of a share group to the route that handles its origin topic.

topic ----------> the route of this topic
<group>.retry --> the route of the record's origin topic
                  cancelled while it waited: a dead letter
                  without a handler in this process: postponed for another process, and after
                  `UNROUTED_MAX` times a dead letter
                  without an origin: the only route of the group; with several, a dead letter
unreadable -----> a dead letter with the bytes of the batch

Any program can write to the group's own topic, and a mirror copies it under other names.  So no
header decides whether a record leaves it: each one is run or becomes a dead letter.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from sharegroup.dead_letters.reasons import DeadLetterReason
from sharegroup.dead_letters.story import NEW, Story, from_elsewhere
from sharegroup.dead_letters.story_headers import story_of
from sharegroup.worker.decisions.decide import Bury, Postpone, Redeliver, Step, moved
from sharegroup.worker.decisions.topic_shares import TopicShares
from sharegroup.worker.declarations.route import OnUnreadable, Route
from sharegroup.worker.ports import DeliveredRecord
from sharegroup.worker.records.unreadable_range import UnreadableRange
from sharegroup.worker.running.group_parts import GroupParts
from sharegroup.worker.running.route_runner import RouteRunner
from sharegroup.worker.running.taken_record import TakenRecord

LOCK_SECONDS_DEFAULT = 30.0
"""Kafka's default lock duration, used until the broker has told the actual one."""
UNROUTED_SECONDS = 30.0
"""The delay after which a record without a handler in this process is delivered again."""
UNROUTED_MAX = 120
"""The number of such delays, an hour in total, before the record becomes a dead letter.

A new version with another handler is rolled out in this time."""
OWN_WAITING_MAX = 1_000
"""The own topic has records of all routes; if this many wait for one route, none are taken."""


def _shares_of(route: Route) -> TopicShares | None:
    if not route.priorities:
        return None
    return TopicShares({topic: route.priorities.get(topic, 1) for topic in route.topics})


class RecordRouting:
    """Finds the route of each record of one share group, and its room for more records."""

    __slots__ = ("_by_topic", "_parts", "_shares", "runners", "unrouted")

    def __init__(self, runners: Sequence[RouteRunner], parts: GroupParts) -> None:
        self.runners = tuple(runners)
        self._by_topic = {topic: runner for runner in runners for topic in runner.route.topics}
        self._shares = {
            topic: shares
            for runner in runners
            if (shares := _shares_of(runner.route)) is not None
            for topic in runner.route.topics
        }
        """How the topics of handlers with priorities share their room."""
        self._parts = parts
        self.unrouted: Counter[str] = Counter()
        """Records without a handler in this process, by what became of them."""

    def room(self, topic: str) -> int:
        """The number of records of a topic to take now."""
        runner = self._by_topic.get(topic)
        if runner is not None:
            # Divided by the number of topics, because records of each are taken independently.
            # Rounded up: with fewer free slots than topics each topic still takes one (ADR 0018).
            if (shares := self._shares.get(topic)) is not None:
                return shares.room(topic, self._room_of(runner))
            return -(-self._room_of(runner) // len(runner.route.topics))
        if any(runner.queue.waiting >= OWN_WAITING_MAX for runner in self.runners):
            return 0
        return max(self._room_of(runner) for runner in self.runners)

    def holds_up(self, topic: str) -> bool:
        """Whether other topics may have to wait while records of this one are taken."""
        shares = self._shares.get(topic)
        return shares is not None and shares.holds_up(topic)

    def took(self, topic: str, *, asked: int, got: int) -> None:
        """Note how many of the records that there was room for were taken from a topic."""
        shares = self._shares.get(topic)
        if shares is not None and shares.took(topic, asked=asked, got=got):
            self._parts.room.notify()

    def _room_of(self, runner: RouteRunner) -> int:
        if self._parts.writes.is_full:
            return 0
        held, holding = self._parts.held, runner.route.holding
        if runner.route.blocks and (len(held) >= holding.records or held.bytes >= holding.bytes):
            return 0
        lock_seconds = self._parts.members.lock_seconds or LOCK_SECONDS_DEFAULT
        return runner.room(self._parts.clock.now(), lock_seconds)

    def add(
        self, deliveries: Sequence[DeliveredRecord], suspects: list[TakenRecord] | None = None
    ) -> None:
        """Give delivered records of one topic to their routes.

        Records that were delivered before, or were put aside, are added to ``suspects``.
        """
        now = self._parts.clock.now()
        of_topic = self._by_topic.get(deliveries[0].topic)
        for delivery in deliveries:
            story, runner = NEW, of_topic
            if delivery.headers:
                # Each producer of the topic could forge a story; only those in the own topic are
                # believed (ADR 0035, "A forged header").
                story = story_of(delivery.headers)
                story = story if runner is None else from_elsewhere(story)
            if runner is None:
                runner = self._runner_by_origin(story)
                if story.cancelled_by is not None:
                    self._bury_cancelled(delivery, story, runner or self._first, now)
                    continue
            if runner is not None:
                record = TakenRecord(runner.route, delivery, story, now)
                if runner.admission is not None and not runner.admission.admits(record):
                    continue
                if suspects is not None and (delivery.delivery_count > 1 or story.suspicions):
                    suspects.append(record)
                runner.queue.add(record)
                if story.suspicions:
                    runner.run_suspect(record)
            else:
                self._send_round(delivery, story, now)
        for runner in self.runners:
            runner.queue.wake_one()

    def add_unreadable(self, unreadable: UnreadableRange) -> None:
        """Send offsets that cannot be read to the dead letters, or as the route's options say."""
        # In the own topic the origin is in headers, which cannot be read either.
        runner = self._by_topic.get(unreadable.topic, self.runners[0])
        record = TakenRecord(runner.route, unreadable, NEW, self._parts.clock.now())
        runner.counts.unreadable += unreadable.end - unreadable.offset
        self._parts.events.tell("record.unreadable", record, unreadable.error)
        choice = runner.route.unreadable
        step: Step = Redeliver()
        if choice is not OnUnreadable.RELEASE:
            is_kept = choice is OnUnreadable.DEAD_LETTER
            step = Bury(NEW, DeadLetterReason.DAMAGED, unreadable.error, is_kept=is_kept)
        runner.settlement.carry_out(record, step)

    def runner_of(self, record: TakenRecord) -> RouteRunner:
        """Return the runner of a record's route."""
        return next(runner for runner in self.runners if runner.route is record.route)

    def _runner_by_origin(self, story: Story) -> RouteRunner | None:
        origin = self._origin_topic(story)
        if origin is not None:
            return self._by_topic.get(origin)
        return self.runners[0] if len(self.runners) == 1 else None

    def _origin_topic(self, story: Story) -> str | None:
        """The origin topic; None without one.

        A record that came without an origin and failed has its place in the own topic as its
        origin, which no route handles.
        """
        if story.origin is None or story.origin.topic == self.runners[0].route.own_topic:
            return None
        return story.origin.topic

    @property
    def _first(self) -> RouteRunner:
        """The runner for records without a handler: the first with dead letters, if any."""
        runners = self.runners
        return next((runner for runner in runners if runner.route.dead_letter), runners[0])

    def _bury_cancelled(
        self, delivery: DeliveredRecord, story: Story, runner: RouteRunner, now: float
    ) -> None:
        """Make a dead letter of a record that was cancelled while it waited."""
        record = TakenRecord(runner.route, delivery, story, now)
        runner.settlement.carry_out(record, Bury(story, DeadLetterReason.CANCELLED))  # 26

    def _send_round(self, delivery: DeliveredRecord, story: Story, now: float) -> None:
        """Postpone a record without a handler here, for another process that may have one.

        It goes to the dead letters if no process can have a handler for it, because it has no
        origin topic, or if none had one `UNROUTED_MAX` times.  It also goes there if no route of
        the group retries, because then there are no retry topics.
        """
        runners, events, first = self.runners, self._parts.events, self._first
        record = TakenRecord(first.route, delivery, story, now)
        events.tell("record.unrouted", record)
        origin = self._origin_topic(story)
        retries = any(runner.route.retry is not None for runner in runners)
        if origin is None or story.unrouted >= UNROUTED_MAX or not retries:
            outcome = "dead_lettered" if first.route.dead_letter else "rejected"
            text = f"no process has a handler for it, so it is {outcome.replace('_', '-')}"
            step: Step = Bury(story, DeadLetterReason.UNROUTED)
        else:
            outcome = "postponed"
            text = "there is no handler in this process; the record is postponed for others"
            due_ms = self._parts.clock.wall_ms() + round(UNROUTED_SECONDS * 1000)
            story = moved(story, delivery_count=delivery.delivery_count)
            step = Postpone(replace(story, due_ms=due_ms, unrouted=story.unrouted + 1))
        self.unrouted[outcome] += 1
        text = f"of={origin} times={story.unrouted} action={text!r}"
        events.say(logging.WARNING, "record.unrouted", record, text)
        first.settlement.carry_out(record, step)
