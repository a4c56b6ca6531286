"""What is done about a record, for all routes of one group: the steps that `decide` chose.

accept, give back     at once; the acknowledgement leaves with the next request
hold                  into the heap of those that wait here, if there is room for it
postpone, bury        a write first (`writing`), then accepted or rejected
lost                  nothing: the lock ended, and somebody else may have the record by now
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from sharegroup.client import IllegalStateError
from sharegroup.errors import KafkaError
from sharegroup.worker.dead_letters.burier import Burier
from sharegroup.worker.decisions.reasons import REJECTED
from sharegroup.worker.decisions.steps import Accept, Bury, GiveBack, Hold, Postpone, Step
from sharegroup.worker.decisions.tiers import Tiers
from sharegroup.worker.events import Event, Events
from sharegroup.worker.parts import GroupLimits
from sharegroup.worker.ports import Clock, Delivery, Outbox, Source
from sharegroup.worker.retrying.postponer import Postponer
from sharegroup.worker.running.held import Held
from sharegroup.worker.running.in_hand import InHand
from sharegroup.worker.running.writing import Gate, Writing

if TYPE_CHECKING:
    from sharegroup.worker.running.route_runner import RouteRunner

log = logging.getLogger(__name__)

HELD_OF_LOCKS = 2
"""Of the locks of a partition, one part in so many may be held: the others go on with the rest."""
WITHOUT_RENEWAL = 1 / 4
"""Of a lock that can't be renewed, so much is left when a record that was held runs again."""


class Settling:
    """See the module's text."""

    def __init__(
        self,
        group: str,
        sources: Sequence[Source],
        outbox: Outbox,
        clock: Clock,
        events: Events,
        *,
        limits: GroupLimits,
        tiers: Tiers,
    ) -> None:
        self.group = group
        self.clock = clock
        self.limits = limits
        self.held = Held(clock)
        self.writing = Writing(clock)
        self.room_again = asyncio.Event()
        self.hungry = 0
        """How many wait for `room_again`."""
        self.may_hold = True
        self.released_at_close: list[InHand] = []
        """Not settled on purpose: closing gives them back."""
        self._sources = sources
        self._outbox = outbox
        self._events = events
        self._postponer = Postponer(outbox, clock, group, tiers)
        self._buriers: dict[str, Burier] = {}
        self._retry_gate = Gate("retry topics", self._told)
        self._dead_gates: dict[str, Gate] = {}
        self._newest: dict[tuple[str, int], int] = {}
        self._wall_minus_clock = clock.wall_ms() / 1000 - clock.now()

    @property
    def member_id(self) -> str:
        """Of this process in the group."""
        return self._sources[0].member_id

    @property
    def lock_seconds(self) -> float | None:
        """How long a lock of this group lives; None before the first record."""
        known = (one.lock_seconds for one in self._sources)
        return next((one for one in known if one is not None), None)

    @property
    def delivery_limit(self) -> int:
        """A record that was delivered so often is not run any more."""
        return self.limits.buried_from

    @property
    def hears_started(self) -> bool:
        """Whether anybody wants to know of each handler that begins."""
        return self._events.wants("record.started")

    def wall_seconds(self, now: float) -> float:
        """Seconds since 1970 at a moment of the clock; `watch` keeps it true."""
        return now + self._wall_minus_clock

    def set_clock(self) -> None:
        """Look again how both clocks stand to each other."""
        self._wall_minus_clock = self.clock.wall_ms() / 1000 - self.clock.now()

    @property
    def give_back_below(self) -> int:
        """What was delivered less often may be given back.

        One that may be delivered once more only is kept: leaving the group costs no delivery,
        giving back does, and its next one would not be run any more.
        """
        return self.limits.deliveries - 1

    def note_newest(self, deliveries: Sequence[Delivery]) -> None:
        """Remember how far each partition was read, while records of it are held."""
        newest = self._newest
        for delivery in deliveries:
            where = delivery.topic, delivery.partition
            newest[where] = max(newest.get(where, 0), delivery.offset)

    def make_way(self, source: Source) -> None:
        """Nothing comes: postpone what may be why.

        Apache Kafka limits how far a partition may be read beyond its oldest record that is not
        settled, and our broker how many are locked.  A record that is held is such a one.
        """
        for (topic, partition), newest in list(self._newest.items()):
            if not self.held.of_partition(topic, partition):
                del self._newest[topic, partition]
            elif topic == source.topic:
                below = newest - self.limits.locks // HELD_OF_LOCKS
                for one in self.held.take_oldest((topic, partition), below):
                    if not one.is_done:
                        self.carry_out(one.runner, one, Postpone(one.story))

    def in_custody(self) -> Iterator[InHand]:
        """What is held, and what is being written."""
        yield from self.held
        yield from self.writing.records()

    def flush(self) -> None:
        """Let what was settled leave soon."""
        for one in self._sources:
            one.flush()

    # Steps.

    def accept(self, runner: RouteRunner, one: InHand, seconds: float) -> None:
        """Its handler returned: the usual way."""
        try:
            one.delivery.accept()
        except IllegalStateError as error:
            self._not_ours(runner, one, error)
        if runner.keys is None:
            one.is_done = True
        else:
            runner.settled(one)
        if self._events.wants("record.succeeded"):
            queued = self.wall_seconds(one.taken_at) - one.delivery.timestamp_ms / 1000
            details = {"seconds": seconds, "queued_seconds": max(0.0, queued)}
            self.tell("record.succeeded", runner, one, None, details)

    def carry_out(
        self, runner: RouteRunner, one: InHand, step: Step, *, at_close: bool = False
    ) -> None:
        """Do what was decided; ``at_close``: what is given back goes with the session."""
        match step:
            case Accept():
                self._settle(runner, one, one.delivery.accept)
            case GiveBack():
                runner.counts.released += 1
                if at_close:
                    self.released_at_close.append(one)
                    runner.settled(one)
                else:
                    self._settle(runner, one, one.delivery.release)
                self.tell("record.released", runner, one)
            case Hold():
                runner.held_until(one, step)
                self.tell("record.held", runner, one, None, {"due_ms": step.story.due_ms})
            case Postpone():
                self._postpone(runner, one, step)
            case Bury():
                self._bury(runner, one, step)
            case _:
                assert_never(step)

    def may_hold_seconds(self, runner: RouteRunner, one: InHand, now: float) -> float:
        """How long this record may wait here; 0: there is no room, or no time."""
        holding, delivery = runner.route.holding, one.delivery
        if (
            not self.may_hold
            or len(self.held) >= holding.records
            or self.held.bytes + one.weight > holding.bytes
            or self.held.of_partition(delivery.topic, delivery.partition)
            >= self.limits.locks // HELD_OF_LOCKS
        ):
            return 0.0
        if self.limits.renewal and all(one.renews for one in self._sources):
            return holding.longest_seconds
        left = delivery.deadline - now - (self.lock_seconds or 0.0) * WITHOUT_RENEWAL
        return max(0.0, min(left, holding.longest_seconds))

    def lost(self, runner: RouteRunner, one: InHand, error: BaseException | None = None) -> None:
        """Its lock has ended: it comes again, here or elsewhere."""
        if one.record is not None:  # Else no handler ever saw it, and nothing is done twice.
            runner.counts.lock_lost += 1
            self.tell("record.lock_lost", runner, one, error)
        # Nothing is acknowledged; this only takes it out of the client's tables.
        self._settle(runner, one, one.delivery.release)

    def _postpone(self, runner: RouteRunner, one: InHand, step: Postpone) -> None:
        def write(*, shrunk: bool) -> Awaitable[object]:
            story = replace(step.story, attempts=()) if shrunk else step.story
            return self._postponer.postpone(one.delivery, story)

        def then() -> None:
            runner.counts.postponed += 1
            self._settle(runner, one, one.delivery.accept)
            self.tell("record.postponed", runner, one, None, {"due_ms": step.story.due_ms})

        self.writing.begin(one, self._retry_gate, write, then)

    def _bury(self, runner: RouteRunner, one: InHand, step: Bury) -> None:
        burier = self._burier(runner)
        if burier.topic is None or not step.is_kept:
            self._settle(runner, one, one.delivery.reject)
            if step.reason != REJECTED:  # Of a Reject it is counted and told where it is decided.
                runner.counts.rejected += 1
                self.tell("record.rejected", runner, one, step.error, {"reason": step.reason})
            return

        def then() -> None:
            runner.counts.dead_lettered += 1
            self._settle(runner, one, one.delivery.reject)
            details = {"reason": step.reason, "topic": burier.topic}
            self.tell("record.dead_lettered", runner, one, step.error, details)

        gate = self._dead_gates.setdefault(burier.topic, Gate(burier.topic, self._told))
        self.writing.begin(one, gate, partial(burier.bury, one.delivery, step), then)

    def _burier(self, runner: RouteRunner) -> Burier:
        name = runner.route.shape.name
        burier = self._buriers.get(name)
        if burier is None:
            burier = Burier(self._outbox, self.clock, runner.route, self.member_id)
            self._buriers[name] = burier
        return burier

    def _settle(self, runner: RouteRunner, one: InHand, settle: Any) -> None:
        if one.is_done:
            return  # Its lock was lost while its write was under way.
        try:
            settle()
        except IllegalStateError as error:
            self._not_ours(runner, one, error)
        runner.settled(one)
        if self.hungry:
            self.room_again.set()

    def _not_ours(self, runner: RouteRunner, one: InHand, error: IllegalStateError) -> None:
        self.say(logging.WARNING, "record.not_held", runner, one, f"error={error}")

    # Telling.

    def tell(
        self,
        name: str,
        runner: RouteRunner,
        one: InHand,
        error: BaseException | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Tell of something about a record, if anybody listens."""
        if self._events.wants(name):
            delivery = one.delivery
            self._events.tell(
                Event(
                    name,
                    group=self.group,
                    handler=runner.route.shape.name,
                    topic=delivery.topic,
                    partition=delivery.partition,
                    offset=delivery.offset,
                    attempt=one.story.failures + 1,
                    error=error,
                    record=one.record,
                    details=details or {},
                )
            )

    def say(self, level: int, event: str, runner: RouteRunner, one: InHand, text: str) -> None:
        """A log line about a record."""
        delivery = one.delivery
        log.log(
            level,
            "event=%s group=%s handler=%s topic=%s partition=%s offset=%s attempt=%s %s",
            event,
            self.group,
            runner.route.shape.name,
            delivery.topic,
            delivery.partition,
            delivery.offset,
            one.story.failures + 1,
            text,
        )

    def _told(self, name: str, error: KafkaError | None, one: InHand) -> None:
        event = "outbox.unblocked" if error is None else "outbox.blocked"
        if self._events.wants(event):
            delivery = one.delivery
            self._events.tell(
                Event(
                    event,
                    group=self.group,
                    topic=delivery.topic,
                    partition=delivery.partition,
                    offset=delivery.offset,
                    error=error,
                    record=one.record,
                    details={"of": name},
                )
            )
