"""Logs of a worker: one line for what happened, as key=value or as JSON.

    2026-11-21T18:00:00.123Z level=warning logger=sharegroup.worker event=record.failed
        group=billing topic=orders partition=3 offset=1207 attempt=2 error=builtins.TimeoutError ...

`configure` gives the whole process this form, the application's own lines included; and a line
that is logged inside of a handler, however deep, says which record it is about.  `EventLog` is
the listener that writes events.  It listens only to what its logger would write, so that a
worker at level ``info`` builds no event for a record that simply succeeded.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, Literal

from sharegroup.worker.decisions.messages import class_name, message_of
from sharegroup.worker.events import EVENTS, Event, Events
from sharegroup.worker.seeing.current import CURRENT, CURRENT_GROUP

LOGGER = "sharegroup.worker"
log = logging.getLogger(LOGGER)

Format = Literal["text", "json"]

LEVELS: Mapping[str, int] = {
    "record.started": logging.DEBUG,
    "record.succeeded": logging.DEBUG,
    "record.released": logging.DEBUG,
    "record.held": logging.DEBUG,
    "record.postponed": logging.DEBUG,
    "record.due": logging.DEBUG,
    "record.failed": logging.WARNING,
    "record.rejected": logging.WARNING,
    "record.dead_lettered": logging.WARNING,
    "record.unreadable": logging.WARNING,
    "record.unrouted": logging.WARNING,
    "record.timed_out": logging.WARNING,
    "record.lock_lost": logging.WARNING,
    "outbox.blocked": logging.ERROR,
    "infrastructure.drift": logging.WARNING,
}
"""How loud each event is; INFO those that are not here: they are about the worker."""

STANDARD = frozenset(
    logging.LogRecord("", 0, "", 0, "", (), None).__dict__.keys() | {"message", "asctime"}
)
"""Attributes of a log record that are nobody's ``extra``."""

GIVEN = "SHAREGROUP_WORKER_LOG"
"""Tells the processes of handlers what `configure` was told."""
TALKATIVE = ("aiokafka", "watchfiles")
"""Libraries that say at level INFO what only who debugs wants to know."""
SELDOM_SECONDS = 60.0
SAID_MAX = 100
ALARMING = "aiokafka.consumer.group_coordinator"
"""Warns of every worker that comes or goes; what a scheduler owns after that, it says itself."""

REASON_CHARACTERS_MAX = 500
"""Of an error's text in a line; the dead letter has more of it."""
PLACE = ("group", "topic", "partition", "offset", "attempt")


class EventLog:
    """Writes the events that its logger is not too quiet for."""

    def listen(self, events: Events) -> None:
        """Begin; what the logger's level leaves out is not even asked for."""
        for name in EVENTS:
            if log.isEnabledFor(LEVELS.get(name, logging.INFO)):
                events.on(name, self)

    def __call__(self, event: Event) -> None:
        """One line."""
        level = LEVELS.get(event.name, logging.INFO)
        facts = dict(_facts(event))
        # The traceback is the dead letter's business, and ours while somebody debugs.
        trace = event.error if log.isEnabledFor(logging.DEBUG) else None
        # The text is for who has a format of their own; the facts are for `JsonFormatter`.
        log.log(
            level,
            "%s",
            _paired({"event": event.name, **facts}),
            exc_info=trace,
            extra={"event": event.name, "facts": facts},
        )


def configure(level: str, form: Format, stream: IO[str] | None = None) -> None:
    """Give the process's log lines this form, on standard error or ``stream``."""
    os.environ[GIVEN] = f"{level}:{form}"
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else LogfmtFormatter())
    handler.addFilter(about_the_record)
    handler.addFilter(Seldom())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(logging.DEBUG if level == "debug" else logging.WARNING)
    logging.getLogger(ALARMING).setLevel(logging.DEBUG if level == "debug" else logging.ERROR)


def configure_as_parent() -> None:
    """In a process of a handler's: the form that the worker's own process was given, if any."""
    given = os.environ.get(GIVEN)
    if given is not None:
        level, _, form = given.partition(":")
        configure(level, "json" if form == "json" else "text")


def about_the_record(line: logging.LogRecord) -> bool:
    """Add the record being handled, if there is one, to a log line; every line passes."""
    record = CURRENT.get()
    if record is not None and not hasattr(line, "facts"):
        # A process of a handler's is told the place alone.
        line.facts = record if isinstance(record, Mapping) else place_of(record)
    return True


class Seldom:
    """Lets a talkative library say the same thing once a minute; a filter of log lines.

    While no broker can be reached, aiokafka says so thirty times in a second, at level ERROR.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said_at: dict[tuple[str, str], float] = {}

    def filter(self, line: logging.LogRecord) -> bool:
        """Whether it may pass: what is the same is known by its text before it is filled in."""
        if line.name.partition(".")[0] not in TALKATIVE or line.levelno <= logging.DEBUG:
            return True
        now = self._clock()
        said = (line.name, str(line.msg))
        if now - self._said_at.get(said, -math.inf) < SELDOM_SECONDS:
            return False
        if len(self._said_at) >= SAID_MAX:
            self._said_at.clear()
        self._said_at[said] = now
        return True


def place_of(record: Any) -> dict[str, Any]:
    """Whose `Record` it is, where it lies, and the how manieth run this is."""
    delivery = record.delivery
    return {
        "group": CURRENT_GROUP.get(),
        "topic": delivery.topic,
        "partition": delivery.partition,
        "offset": delivery.offset,
        "attempt": record.attempt,
    }


class LogfmtFormatter(logging.Formatter):
    """``time level=... logger=... event=... key=value ...``, then the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and more only for a traceback."""
        head = f"{_time(record.created)} level={record.levelname.lower()} logger={record.name}"
        message = record.getMessage()
        pairs = "" if _is_event(record) else _paired(dict(_pairs(record)))
        # Lines of this project are key=value already; anybody else's is a sentence.
        is_event = message.startswith("event=")
        text = message if is_event or not message else f"message={_quoted(message)}"
        line = " ".join(part for part in (head, text, pairs) if part)
        return line + "".join(f"\n{part}" for part in (self._trace(record),) if part)

    def _trace(self, record: logging.LogRecord) -> str:
        return self.formatException(record.exc_info) if record.exc_info else ""


class JsonFormatter(logging.Formatter):
    """One object to a line."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        facts: dict[str, Any] = {
            "time": _time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if not _is_event(record) and (message := record.getMessage()):
            facts["message"] = message
        facts |= dict(_pairs(record))
        if record.exc_info:
            facts["traceback"] = self.formatException(record.exc_info)
        return json.dumps(facts, default=str)


def _is_event(record: logging.LogRecord) -> bool:
    """Whether `EventLog` wrote it, so that its text and its facts say the same."""
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
        yield "reason", message_of(event.error, REASON_CHARACTERS_MAX)
    yield from ((name, fact) for name, fact in event.details.items() if name not in PLACE)


def _pairs(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    """What is said beside the message: the event, its facts, and anybody's ``extra``."""
    given = record.__dict__
    if "event" in given:
        yield "event", given["event"]
    facts = given.get("facts")
    if isinstance(facts, Mapping):
        yield from facts.items()
    for name, value in given.items():
        if name not in STANDARD and name not in ("event", "facts"):
            yield name, value


def _paired(facts: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={_quoted(value)}" for name, value in facts.items())


def _time(created: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(created))
    return f"{whole}.{int(created % 1 * 1000):03d}Z"


def _quoted(value: Any) -> str:
    """A value of a pair: bare if it is one plain word, else as JSON writes a text."""
    text = str(value)
    plain = text.isprintable() and not any(one in text for one in ' "=')
    return text if text and plain else json.dumps(text, ensure_ascii=False)
