"""Schedules as an application declares them: when, for which handler, with which payload.

    @app.cron("0 6 * * 1-5", timezone="Europe/Berlin")
    @app.share_group("reports", topics="reports")
    async def report(run: ScheduledRun) -> None: ...

    app.every("5m", to=bill, payload=Order(3), name="bill-three")

The payload is encoded once, when the worker starts, and becomes a part of the definition.  So each
process can make the runs, also one whose code does not have the schedule.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Literal, NamedTuple, TypedDict

from sharegroup.durations import Duration, seconds
from sharegroup.errors import InvalidConfig
from sharegroup.schedules.schedule import (
    PARTITIONS,
    REVISION_MAX,
    VALUE_BYTES_MAX,
    Missed,
    ScheduleDefinition,
    ScheduledRun,
    checked_name,
    moment,
    moment_text,
    run_id,
    schedules_topic,
)
from sharegroup.schedules.timing import INTERVAL_MS_MAX, Cron, Interval, Timing
from sharegroup.worker.declarations.checks import is_whole
from sharegroup.worker.declarations.foreign_options import OF_A_SCHEDULE, refuse_unknown
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.declarations.topics import TopicDeclaration
from sharegroup.worker.payloads.codec import UnreadablePayload


class TheRun(Enum):
    """The default payload: the `ScheduledRun`, as JSON."""

    THE_RUN = auto()


THE_RUN: Final = TheRun.THE_RUN
OPTIONS = ("payload", "name", "key", "topic", "missed", "revision")


class ScheduleOptions(TypedDict, total=False):
    """The options of `App.every` and `App.cron`."""

    name: str
    """By default that of the handler."""
    key: str | bytes
    """The key of the records; by default the name of the schedule."""
    topic: str
    """Required if the handler has several topics."""
    missed: Missed | Literal["skip", "last", "all"]
    revision: int


class Plan(NamedTuple):
    """What `App.every` and `App.cron` are given, besides the handler."""

    timing: Timing
    payload: Any
    options: ScheduleOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredSchedule:
    """A schedule as the application declares it."""

    name: str
    timing: Timing
    route: Route
    topic: str
    payload: Any
    key: bytes | None
    missed: Missed
    revision: int

    @property
    def may_block(self) -> bool:
        """Whether `definition` may wait for a schema registry, so it must run in a thread."""
        return self.payload is not THE_RUN and self.route.codec.may_block

    def definition(self) -> ScheduleDefinition:
        """Return the definition, with the payload encoded; raises what the codec raises."""
        sends_run = self.payload is THE_RUN
        value = None if sends_run else self.route.codec.encode(self.payload, self.topic)
        if value is not None and len(value) > VALUE_BYTES_MAX:
            raise InvalidConfig(
                f"schedule {self.name!r}: a payload of {len(value)} bytes; expected at most "
                f"{VALUE_BYTES_MAX}. Send a reference to it"
            )
        return ScheduleDefinition(
            name=self.name,
            revision=self.revision,
            timing=self.timing,
            topic=self.topic,
            key=self.key,
            value=value,
            sends_run=sends_run,
            missed=self.missed,
        )


def interval_of(every: Duration) -> Interval:
    """Return the interval of `App.every`; raises InvalidConfig."""
    try:
        every_ms = round(min(seconds(every), INTERVAL_MS_MAX) * 1000)
    except (TypeError, ValueError) as error:
        raise InvalidConfig(f"every({every!r:.80}): {error}") from None
    return Interval(every_ms)


def cron_of(expression: str, timezone: str) -> Cron:
    """Return the timing of `App.cron`; raises InvalidConfig."""
    given: tuple[object, ...] = (expression, timezone)
    if not all(isinstance(text, str) for text in given):
        raise InvalidConfig(
            f"cron({expression!r:.80}, timezone={timezone!r:.80}): expected two texts, such as "
            "cron('0 6 * * 1-5', timezone='Europe/Berlin')"
        )
    return Cron(expression, timezone)


def declared_schedule(route: Route, plan: Plan) -> DeclaredSchedule:
    """Return a checked declaration; raises InvalidConfig."""
    options: Mapping[str, Any] = {**plan.options}
    name = checked_name(options.get("name", route.shape.name))
    whose = f"schedule {name!r}"
    unknown = {option: options[option] for option in options if option not in OPTIONS}
    refuse_unknown(unknown, OPTIONS, whose, OF_A_SCHEDULE, "a schedule")
    revision = options.get("revision", 1)
    if not is_whole(revision, 1, REVISION_MAX):
        raise InvalidConfig(f"{whose}: revision={revision!r:.80}; expected 1 or more")
    key = options.get("key")
    if isinstance(key, str):
        key = key.encode()
    if key is not None and not isinstance(key, bytes):
        raise InvalidConfig(f"{whose}: key={key!r:.80}; expected text or bytes")
    declared = DeclaredSchedule(
        name=name,
        timing=plan.timing,
        route=route,
        topic=_topic(route, options.get("topic"), whose),
        payload=plan.payload,
        key=key,
        missed=_missed(options.get("missed", Missed.LAST), whose),
        revision=revision,
    )
    if not route.codec.may_block:
        _check_payload(declared, whose)
    return declared


def with_schedule(
    known: tuple[DeclaredSchedule, ...], declared: DeclaredSchedule, app_name: str
) -> tuple[DeclaredSchedule, ...]:
    """Add a schedule to those of an application; raises InvalidConfig if its name is taken."""
    if any(other.name == declared.name for other in known):
        raise InvalidConfig(
            f"App {app_name!r} has two schedules {declared.name!r}; give one of them another "
            "name=..."
        )
    return (*known, declared)


def no_handler_here(app_name: str, given: object) -> InvalidConfig:
    """Return the error for a schedule whose handler is none of this application."""
    return InvalidConfig(
        f"App {app_name!r}: a schedule for {given!r:.120}, which is no handler of this "
        "application; expected one that @app.share_group or app.routes has added"
    )


def topics_with_schedules(
    topics: tuple[TopicDeclaration, ...], app_name: str, schedules: tuple[DeclaredSchedule, ...]
) -> tuple[TopicDeclaration, ...]:
    """Add the topic of schedules to the declared ones, if there are schedules."""
    return (*topics, topic_of_schedules(app_name)) if schedules else topics


def run_value(run: ScheduledRun) -> bytes:
    """Return the value of a record whose payload is the run itself."""
    document = {
        "schedule": run.schedule,
        "due": moment_text(round(run.due.timestamp() * 1000)),
        "id": run.id,
    }
    return json.dumps(document, separators=(",", ":")).encode("ascii")


def topic_of_schedules(app_name: str) -> TopicDeclaration:
    """Return the topic in which the schedules of an application are kept."""
    return TopicDeclaration(
        schedules_topic(app_name),
        PARTITIONS,
        {
            "cleanup.policy": "compact",
            # An owner writes a record for each run.  Compaction does not touch the segment that is
            # written, so small segments keep short what the next owner reads.
            "segment.bytes": str(16 * 1024 * 1024),
            "min.cleanable.dirty.ratio": "0.1",
            # The present of all owners is the broker's.
            "message.timestamp.type": "LogAppendTime",
        },
    )


def _missed(given: str, whose: str) -> Missed:
    try:
        return Missed(given)
    except ValueError:
        expected = ", ".join(repr(str(policy)) for policy in Missed)
        raise InvalidConfig(f"{whose}: missed={given!r:.80}; expected one of {expected}") from None


def _topic(route: Route, topic: object, whose: str) -> str:
    if topic is None and len(route.topics) == 1:
        return route.topics[0]
    if topic in route.topics:
        return str(topic)
    raise InvalidConfig(
        f"{whose}: topic={topic!r:.80}; expected a topic of its handler: {', '.join(route.topics)}"
    )


def _check_payload(declared: DeclaredSchedule, whose: str) -> None:
    """Refuse a payload that the handler cannot take, now and not at the first run."""
    example = ScheduledRun(declared.name, moment(0), run_id(declared.name, 0))
    try:
        definition = declared.definition()
        value = run_value(example) if definition.sends_run else definition.value
        declared.route.codec.decode(value)
    except (TypeError, ValueError, UnreadablePayload) as error:
        what = (
            "it sends the run itself, a ScheduledRun; give another payload=..., or annotate the "
            "first parameter of the handler ScheduledRun"
            if declared.payload is THE_RUN
            else f"payload={declared.payload!r:.80}"
        )
        raise InvalidConfig(
            f"{whose}: handler {declared.route.shape.name} cannot take its payload: {error} "
            f"({what})"
        ) from error
