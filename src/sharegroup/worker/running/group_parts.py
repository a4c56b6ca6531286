"""The parts that all routes of one share group use: its members, held records, pending writes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sharegroup.errors import KafkaError
from sharegroup.worker.decisions.tiers import Tiers
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.events import Event, Events
from sharegroup.worker.parts import ShareGroupLimits, WorkerParts
from sharegroup.worker.ports import RecordSource, WorkerClock
from sharegroup.worker.retrying.postponer import Postponer
from sharegroup.worker.running.alone import Alone, Caution
from sharegroup.worker.running.held_retries import HeldRetries
from sharegroup.worker.running.pending_writes import PendingWrites, TopicGate
from sharegroup.worker.running.room_signal import RoomSignal
from sharegroup.worker.running.taken_record import TakenRecord

log = logging.getLogger(__name__)


# Tells the listeners of an application's events, and the log, about records of one group.


class RecordEvents:
    """Builds the events and log lines about records of one share group."""

    __slots__ = ("_events", "group", "listened", "wants")

    def __init__(self, group: str, events: Events) -> None:
        self.group = group
        self._events = events
        self.listened = events.listened
        self.wants = events.wants
        """Whether an event of this name has a listener."""

    def tell(
        self,
        name: str,
        record: TakenRecord,
        error: BaseException | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Send an event about a record to its listeners, if there are any."""
        if self.wants(name):
            self._events.tell(self._event(name, record, error, details or {}))

    async def before_letter(
        self, record: TakenRecord, error: BaseException | None, details: Mapping[str, Any]
    ) -> None:
        """Let the application note a dead letter that is about to be written."""
        if (note := self._events.before_letter) is not None:
            await note(self._event("record.dead_lettered", record, error, details))

    def _event(
        self,
        name: str,
        record: TakenRecord,
        error: BaseException | None,
        details: Mapping[str, Any],
    ) -> Event:
        delivery, route = record.delivery, record.route
        return Event(
            name,
            group=self.group,
            handler=route.shape.name,
            topic=delivery.topic,
            partition=delivery.partition,
            offset=delivery.offset,
            attempt=record.story.failures + 1,
            error=error,
            record=record.handler_record,
            details=details,
            redaction=route.redaction,
        )

    def tell_handler(
        self,
        name: str,
        route: Route,
        error: BaseException | None,
        details: Mapping[str, Any],
    ) -> None:
        """Send an event about a handler to its listeners, if there are any."""
        if self.wants(name):
            handler, redaction = route.shape.name, route.redaction
            self._events.tell(
                Event(
                    name,
                    group=self.group,
                    handler=handler,
                    error=error,
                    details=details,
                    redaction=redaction,
                )
            )

    def say(self, level: int, event: str, record: TakenRecord, text: str) -> None:
        """Log a line about a record."""
        delivery = record.delivery
        log.log(
            level,
            "event=%s group=%s handler=%s topic=%s partition=%s offset=%s attempt=%s %s",
            event,
            self.group,
            record.route.shape.name,
            delivery.topic,
            delivery.partition,
            delivery.offset,
            record.story.failures + 1,
            text,
        )

    def tell_blocked(self, topic: str, error: KafkaError | None, record: TakenRecord) -> None:
        """Tell that writes to a topic fail with this error; None if they succeed again.

        ``record`` is the one whose write showed it.
        """
        event = "outbox.unblocked" if error is None else "outbox.blocked"
        if self.wants(event):
            delivery = record.delivery
            self._events.tell(
                Event(
                    event,
                    group=self.group,
                    topic=delivery.topic,
                    partition=delivery.partition,
                    offset=delivery.offset,
                    error=error,
                    record=record.handler_record,
                    details={"of": topic},
                )
            )


class GroupMembers:
    """The members of one share group in this process, one for each topic."""

    __slots__ = ("sources",)

    def __init__(self, sources: Sequence[RecordSource]) -> None:
        self.sources = tuple(sources)

    @property
    def id(self) -> str:
        """The member id of the first of them, which stands for this process."""
        # Letters and histories name a process by it, so it must be the same one each time.
        return self.sources[0].member_id

    @property
    def lock_seconds(self) -> float | None:
        """The lock duration of the group in seconds; None before the first record."""
        durations = (source.lock_seconds for source in self.sources)
        return next((seconds for seconds in durations if seconds is not None), None)

    @property
    def renew(self) -> bool:
        """Whether all of them renew locks."""
        return all(source.renews for source in self.sources)

    @property
    def have_joined(self) -> bool:
        """Whether all of them have joined the group."""
        return all(source.is_joined for source in self.sources)

    def flush(self) -> None:
        """Send pending acknowledgements soon."""
        for source in self.sources:
            source.flush()

    async def fetches_ended(self, within_seconds: float) -> None:
        """Wait until no fetch is under way, at most this long."""
        await asyncio.gather(*(source.fetches_ended(within_seconds) for source in self.sources))

    async def acknowledged(self, within_seconds: float) -> None:
        """Send pending acknowledgements, and wait for their responses at most this long."""
        await asyncio.gather(*(source.acknowledged(within_seconds) for source in self.sources))


class WallTime:
    """Converts times of the worker's monotonic clock to seconds since 1970."""

    __slots__ = ("_clock", "difference")

    def __init__(self, clock: WorkerClock) -> None:
        self._clock = clock
        self.difference = 0.0
        """The seconds since 1970 at the time 0 of the monotonic clock."""
        self.measure()

    def measure(self) -> None:
        """Measure the difference of the clocks again, because the wall clock may have been set."""
        self.difference = self._clock.wall_ms() / 1000 - self._clock.now()


class GroupParts:
    """The parts of one share group that all its routes use."""

    __slots__ = (
        "_gates", "alone", "cautions", "clock", "events", "group", "held", "limits", "may_hold",
        "members", "outbox", "postponer", "released_at_close", "room", "wall_time", "writes",
    )  # fmt: skip

    def __init__(
        self,
        events: RecordEvents,
        sources: Sequence[RecordSource],
        parts: WorkerParts,
        *,
        limits: ShareGroupLimits,
        tiers: Tiers,
        alone: Alone | None = None,
    ) -> None:
        clock, outbox = parts.clock, parts.outbox
        self.group = events.group
        self.clock = clock
        self.wall_time = WallTime(clock)
        self.limits = limits
        """The limits of the group as of the last query."""
        self.members = GroupMembers(sources)
        self.events = events
        self.room = RoomSignal()
        self.alone = Alone(clock) if alone is None else alone
        """Lets one record run alone in this process; shared by all its groups."""
        self.cautions = {source.topic: Caution() for source in sources}
        self.held = HeldRetries(clock)
        self.may_hold = True
        """Whether records may be held; False while no handler begins."""
        self.writes = PendingWrites()
        self.outbox = outbox
        self.postponer = Postponer(outbox, clock, self.group, tiers)
        self._gates: dict[str, TopicGate] = {}
        self.released_at_close: list[TakenRecord] = []
        """Records to release that are left unsettled, because closing the source releases them."""

    def gate(self, topic: str) -> TopicGate:
        """Return the gate for writes to a retry topic or a dead-letter topic."""
        gate = self._gates.get(topic)
        if gate is None:
            gate = self._gates[topic] = TopicGate(topic, self.events.tell_blocked)
        return gate

    def in_custody(self) -> Iterator[TakenRecord]:
        """All records that are held, being written, or waiting to run alone."""
        yield from self.held
        yield from self.writes.records()
        yield from self.alone.waiting(self.room)
