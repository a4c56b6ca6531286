"""Logs of a worker: one line for each event, as key=value pairs or as JSON.

    2026-11-21T18:00:00.123Z level=warning logger=sharegroup.worker event=record.failed
        group=billing topic=orders partition=3 offset=1207 attempt=2 error=builtins.TimeoutError ...

`configure` sets this format for the whole process, including the application's own lines.  A line
that is logged while a handler runs names the record being handled.  `EventLog` is the listener
that logs events.  It listens only to events that its logger would write, so a worker at level
``info`` builds no event for a record that succeeded.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any, Literal

from sharegroup.escaping import escaped
from sharegroup.worker.decisions.messages import class_name, is_small, message_of, trace_of
from sharegroup.worker.events import EVENTS, Event, Events
from sharegroup.worker.records.record import CURRENT, CURRENT_GROUP

if TYPE_CHECKING:
    from sharegroup.worker.application import Application


LOGGER = "sharegroup.worker"
log = logging.getLogger(LOGGER)

Format = Literal["text", "json"]

LEVELS: Mapping[str, int] = {
    "record.started": logging.DEBUG,
    "record.succeeded": logging.DEBUG,
    "record.released": logging.DEBUG,
    "record.held": logging.DEBUG,
    "record.put_aside": logging.DEBUG,
    "record.filtered": logging.DEBUG,
    "record.expired": logging.DEBUG,
    "record.postponed": logging.DEBUG,
    "record.due": logging.DEBUG,
    "infrastructure.created": logging.DEBUG,
    "record.failed": logging.WARNING,
    "record.rejected": logging.WARNING,
    "record.dead_lettered": logging.WARNING,
    "record.unreadable": logging.WARNING,
    "record.unrouted": logging.WARNING,
    "record.timed_out": logging.WARNING,
    "record.lock_lost": logging.WARNING,
    "breaker.opened": logging.WARNING,
    "partitions.lost": logging.WARNING,
    "outbox.blocked": logging.ERROR,
    "schedule.run": logging.DEBUG,
    "schedule.missed": logging.WARNING,
    "redaction.failed": logging.WARNING,
    "infrastructure.drift": logging.WARNING,
}
"""The log level of each event; other events, which are about the worker, have level INFO."""

STANDARD = frozenset(
    logging.LogRecord("", 0, "", 0, "", (), None).__dict__.keys() | {"message", "asctime"}
)
"""Standard attributes of a log record; all others are from ``extra``."""

GIVEN = "SHAREGROUP_WORKER_LOG"
"""The environment variable that passes the arguments of `configure` to handler processes."""
TALKATIVE = ("aiokafka", "watchfiles")
"""Libraries that log at level INFO what is only useful for debugging."""
DETAILED = (
    "sharegroup.client.consume.classic_member",
    "sharegroup.client.consume.offset_lookup",
)
"""Our loggers that write a line for each retry scheduler or retry topic; at ``debug`` only.

A worker of ten groups would start with two hundred such lines.
"""
SELDOM_SECONDS = 60.0
SAID_MAX = 100

REASON_CHARACTERS_MAX = 500
"""The maximum length of an error's message in a line; the dead letter has more of it."""
PLACE = ("group", "topic", "partition", "offset", "attempt")


class EventLog:
    """An event listener that logs each event for which its logger's level is enabled."""

    def listen(self, events: Events) -> None:
        """Register for all events that the logger's level enables."""
        for name in EVENTS:
            if log.isEnabledFor(LEVELS.get(name, logging.INFO)):
                events.on(name, self)

    def __call__(self, event: Event) -> None:
        """Log an event as one line."""
        level = LEVELS.get(event.name, logging.INFO)
        facts = dict(_facts(event))
        # The dead letter has the traceback; the log has it only at level DEBUG.
        trace = event.error if log.isEnabledFor(logging.DEBUG) else None
        if trace is not None and (event.redaction is not None or not is_small(trace)):
            facts["traceback"] = trace_of(trace, event.redaction)
            trace = None
        # The text is for an application's own format; the facts are for `JsonFormatter`.
        log.log(
            level,
            "%s",
            _paired({"event": event.name, **facts}),
            exc_info=trace,
            extra={"event": event.name, "facts": facts},
        )


def configure(
    level: str, form: Format, stream: IO[str] | None = None, *, process: int | None = None
) -> None:
    """Configure the logging of the process: level and format, on standard error or ``stream``.

    ``process`` is the number of the process among those of a supervisor; each line has it.
    """
    os.environ[GIVEN] = f"{level}:{form}:{process or ''}"
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(process) if form == "json" else LogfmtFormatter(process))
    handler.addFilter(about_the_record)
    handler.addFilter(Seldom())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in (*TALKATIVE, *DETAILED):
        logging.getLogger(name).setLevel(logging.DEBUG if level == "debug" else logging.WARNING)


def configure_as_parent() -> None:
    """Configure a handler process like the worker's own process, if that was configured."""
    level_and_form = os.environ.get(GIVEN)
    if level_and_form is not None:
        level, form, process = f"{level_and_form}::".split(":")[:3]
        configure(
            level,
            "json" if form == "json" else "text",
            process=int(process) if process else None,
        )


def about_the_record(line: logging.LogRecord) -> bool:
    """Add the record being handled, if any, to a log line; a filter that passes every line."""
    record = CURRENT.get()
    if record is not None and not hasattr(line, "facts"):
        # In a handler process `CURRENT` is already the result of `place_of`.
        line.facts = record if isinstance(record, Mapping) else place_of(record)
    return True


class Seldom:
    """A log filter that passes the same message of a talkative library once a minute.

    While no broker can be reached, aiokafka, which applications use beside the worker, logs this
    thirty times per second at level ERROR.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said_at: dict[tuple[str, str], float] = {}

    def filter(self, line: logging.LogRecord) -> bool:
        """Whether a line may pass; messages are the same if their format strings are."""
        if line.name.partition(".")[0] not in TALKATIVE or line.levelno <= logging.DEBUG:
            return True
        now = self._clock()
        message_key = (line.name, str(line.msg))
        if now - self._said_at.get(message_key, -math.inf) < SELDOM_SECONDS:
            return False
        # Messages that contain changing text would otherwise be remembered for ever.
        if len(self._said_at) >= SAID_MAX:
            self._said_at.clear()
        self._said_at[message_key] = now
        return True


def place_of(record: Any) -> dict[str, Any]:
    """Return the group, topic, partition, offset and attempt number of a `Record`."""
    delivery = record.delivery
    return {
        "group": CURRENT_GROUP.get(),
        "topic": delivery.topic,
        "partition": delivery.partition,
        "offset": delivery.offset,
        "attempt": record.attempt,
    }


class LogfmtFormatter(logging.Formatter):
    """Formats log lines as ``time level=... logger=... event=... key=value ...`` and traceback."""

    def __init__(self, process: int | None = None) -> None:
        super().__init__()
        self._process = "" if process is None else f" process={process}"

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, followed by the lines of the traceback if there is one."""
        level = record.levelname.lower()
        head = f"{_time(record.created)}{self._process} level={level} logger={record.name}"
        message = record.getMessage()
        pairs = "" if _is_event(record) else _paired(dict(_pairs(record)))
        # Messages of this project are already key=value pairs; others are sentences.
        is_event = message.startswith("event=")
        text = escaped(message) if is_event or not message else f"message={_quoted(message)}"
        line = " ".join(part for part in (head, text, pairs) if part)
        return line + "".join(f"\n{part}" for part in (self._trace(record),) if part)

    def _trace(self, record: logging.LogRecord) -> str:
        if not record.exc_info:
            return ""
        return "\n".join(map(escaped, self.formatException(record.exc_info).split("\n")))


class JsonFormatter(logging.Formatter):
    """Formats each log line as a JSON object."""

    def __init__(self, process: int | None = None) -> None:
        super().__init__()
        self._process = {} if process is None else {"process": process}

    def format(self, record: logging.LogRecord) -> str:
        """Return one line with a JSON object."""
        facts: dict[str, Any] = {
            "time": _time(record.created),
            **self._process,
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if not _is_event(record) and (message := record.getMessage()):
            facts["message"] = message
        facts |= dict(_pairs(record))
        if record.exc_info:
            facts["traceback"] = self.formatException(record.exc_info)
        return json.dumps(facts, default=str).replace("\x7f", "\\u007f")


def _is_event(record: logging.LogRecord) -> bool:
    """Whether `EventLog` wrote the line, so that its message and its facts are the same."""
    return record.name == LOGGER and {"event", "facts"} <= record.__dict__.keys()


def _facts(event: Event) -> Iterator[tuple[str, Any]]:
    if event.group:
        yield "group", event.group
    if event.handler:
        yield "handler", event.handler
    if event.topic:
        yield "topic", event.topic
    if event.offset >= 0:
        yield from (("partition", event.partition), ("offset", event.offset))
    if event.attempt:
        yield "attempt", event.attempt
    if event.error is not None:
        yield "error", class_name(event.error)
        yield "reason", message_of(event.error, REASON_CHARACTERS_MAX, event.redaction)
    yield from ((name, fact) for name, fact in event.details.items() if name not in PLACE)


def _pairs(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    """Yield the pairs beside the message: the event, its facts, and values from ``extra``."""
    attributes = record.__dict__
    if "event" in attributes:
        yield "event", attributes["event"]
    facts = attributes.get("facts")
    if isinstance(facts, Mapping):
        yield from facts.items()
    for name, value in attributes.items():
        if name not in STANDARD and name not in ("event", "facts"):
            yield name, value


def _paired(facts: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={_quoted(value)}" for name, value in facts.items())


def _time(created: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(created))
    return f"{whole}.{int(created % 1 * 1000):03d}Z"


def _quoted(value: Any) -> str:
    """Return the value of a pair: as it is if it is one plain word, otherwise as a JSON string."""
    text = str(value)
    plain = text.isprintable() and not any(character in text for character in ' "=')
    if text and plain:
        return text
    # A terminal must not get DEL, C1 and bidirectional overrides, which JSON does not escape.
    return json.dumps(text, ensure_ascii=not text.isprintable()).replace("\x7f", "\\u007f")


def watch(app: Application) -> None:
    """Log the application's events, and trace it if a tracer provider is set.

    Further calls for the same application have no effect.
    """
    if app.is_watched:
        return
    app.is_watched = True
    EventLog().listen(app.events)
    if "opentelemetry.trace" in sys.modules:  # Otherwise no tracer provider can be set.
        # Imported here, because it needs OpenTelemetry, which the application need not have.
        from sharegroup.worker.telemetry.tracing import tracing

        traced = tracing()
        if traced is not None:
            app.middlewares.insert(0, traced)
            app.outlet.before_send += (traced.before_send,)
