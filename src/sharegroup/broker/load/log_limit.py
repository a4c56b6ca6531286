"""Limits the log lines that requests cause: a rate for each event, in a process that is a broker.

An event is one place in the code that logs.  It has `BURST_LINES` lines, and after them
`LINES_PER_SECOND`.  The lines beyond are counted, and every `REPORT_MS` one line says how many
there were:

    event=log_lines_suppressed of=group_settings logger=... count=4900

So a client that repeats a request does not fill the disk, and events that it does not cause keep
their lines.  DEBUG lines pass, because an operator asked for them.  Audit lines pass, because they
have a bound for each principal (`sharegroup.broker.access.audit`).

The limit belongs to the handler that ``sharegroup serve`` makes.  A program that embeds the broker
decides itself what it logs.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

from sharegroup.broker.clock import Clock, sleep_ms

log = logging.getLogger(__name__)


# Limits log lines that strangers cause: one for an address and second, and some for all.


ADDRESS_PAUSE_MS = 1_000
"""Time after a line about an address in which no other line is about it."""

ADDRESSES_MAX = 1_000
"""Number of addresses whose last line is remembered."""

LINES_MAX = 20
"""Number of lines about all addresses in `ADDRESS_PAUSE_MS`."""


class LinesByAddress:
    """The times of the last log lines of one kind by address."""

    __slots__ = ("_addresses", "_lines", "_lines_began_ms", "_unlogged")

    def __init__(self) -> None:
        self._addresses: OrderedDict[str, int] = OrderedDict()
        self._lines = 0
        self._lines_began_ms = 0
        self._unlogged = 0

    def unlogged(self, host: str, now_ms: int) -> int | None:
        """Return how many lines were not logged since the last one, if one may be logged now.

        None means that it may not; it is then counted as not logged.
        """
        if not self._may_log(host, now_ms):
            self._unlogged += 1
            return None
        count, self._unlogged = self._unlogged, 0
        return count

    def _may_log(self, host: str, now_ms: int) -> bool:
        """Return whether a line about this address may be logged now, and count it."""
        last_ms = self._addresses.get(host)
        if last_ms is not None and now_ms - last_ms < ADDRESS_PAUSE_MS:
            return False
        if now_ms - self._lines_began_ms >= ADDRESS_PAUSE_MS:
            self._lines, self._lines_began_ms = 0, now_ms
        # One peer may have thousands of addresses, above all with IPv6.
        if self._lines >= LINES_MAX:
            return False
        self._lines += 1
        self._addresses[host] = now_ms
        self._addresses.move_to_end(host)
        if len(self._addresses) > ADDRESSES_MAX:
            self._addresses.popitem(last=False)
        return True


# Log lines about requests for features that this broker does not serve.
#
# A client that needs such a feature may repeat its request for as long as it runs. So each feature
# has one line at a time, with the number of requests since the line before.


LINE_INTERVAL_MS = 60_000
"""Milliseconds between two log lines about the same feature."""

QUOTED_CHARACTERS_MAX = 128
"""Characters of a client's or a resource's name in a log line."""


class UnservedFeatures:
    """Counts refused requests by feature, and logs the first one of each interval."""

    __slots__ = ("_clock", "_quiet_until_ms", "_refused")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._quiet_until_ms: dict[str, int] = {}
        self._refused: dict[str, int] = {}

    def refused(self, feature: str, *, client_id: str, name: str) -> None:
        """Count one request. ``feature`` is one of few constants; a client chose ``name``."""
        count = self._refused[feature] = self._refused.get(feature, 0) + 1
        now_ms = self._clock.now_ms()
        if now_ms < self._quiet_until_ms.get(feature, now_ms):
            return
        self._quiet_until_ms[feature] = now_ms + LINE_INTERVAL_MS
        self._refused[feature] = 0
        log.warning(
            "event=feature_not_served feature=%s client=%r name=%r requests=%d",
            feature,
            client_id[:QUOTED_CHARACTERS_MAX],
            name[:QUOTED_CHARACTERS_MAX],
            count,
        )


BURST_LINES = 1_000
"""Number of lines about one event that pass without a pause."""

LINES_PER_SECOND = 2
"""Number of lines about one event in a second after its burst."""

EVENTS_MAX = 1_000
"""Number of events that are counted apart; beyond it the oldest is reported and forgotten."""

REPORT_MS = 10_000
"""Milliseconds between two reports of suppressed lines."""

EVENT_CHARACTERS_MAX = 100
"""Number of characters of an event's name in a report."""

UNLIMITED_LOGGERS = frozenset({__name__, "sharegroup.broker.access.audit"})
"""The loggers whose lines have a bound of their own."""


class _Place(NamedTuple):
    """The place in the code that logs an event."""

    logger: str
    line: int


@dataclass(slots=True)
class _Event:
    """The lines that one event may still have, and those suppressed since the last report."""

    name: str
    seconds: float
    allowed: float = BURST_LINES
    suppressed: int = 0
    level: int = logging.INFO

    def passes(self, record: logging.LogRecord) -> bool:
        """Return whether another line may pass; count it."""
        elapsed = max(record.created - self.seconds, 0.0)  # The wall clock may be set back.
        self.allowed = min(self.allowed + elapsed * LINES_PER_SECOND, BURST_LINES)
        self.seconds = record.created
        if self.allowed >= 1:
            self.allowed -= 1
            return True
        self.suppressed += 1
        self.level = max(self.level, record.levelno)
        return False


class LogLimit(logging.Filter):
    """A filter for the handler of a broker's log."""

    def __init__(self) -> None:
        super().__init__()
        self._events: dict[_Place, _Event] = {}
        self._lock = threading.Lock()  # Threads of storage log, too.
        self.suppressed_count = 0
        """Number of lines that were not written since the start."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line is written."""
        if record.levelno < logging.INFO or record.name in UNLIMITED_LOGGERS:
            return True
        place = _Place(record.name, record.lineno)
        with self._lock:
            forgotten = self._forget_oldest(place)
            event = self._events.get(place)
            if event is None:
                event = self._events[place] = _Event(_name(record), record.created)
            passes = event.passes(record)
            self.suppressed_count += not passes
        # Not under the lock: a report is a log line itself, and passes through this filter.
        for line in forgotten:
            _report(*line)
        return passes

    def report(self) -> None:
        """Log how many lines of each event were suppressed since the last report."""
        with self._lock:
            counted = [(place, event) for place, event in self._events.items() if event.suppressed]
            lines = [_taken(place, event) for place, event in counted]
        for line in lines:
            _report(*line)

    async def run(self, clock: Clock) -> None:
        """Report suppressed lines regularly, until cancelled."""
        while True:
            await sleep_ms(clock, REPORT_MS)
            self.report()

    def _forget_oldest(self, place: _Place) -> list[tuple[_Place, str, int, int]]:
        """Make room for an event, and return the report about the forgotten one, if any."""
        if place in self._events or len(self._events) < EVENTS_MAX:
            return []
        oldest = next(iter(self._events))
        event = self._events.pop(oldest)
        return [_taken(oldest, event)] if event.suppressed else []


LOG_LIMIT = LogLimit()
"""The limit of this process: a process has one log, whichever broker runs in it."""


def _name(record: logging.LogRecord) -> str:
    """Return the event of a line, or the first word of a line of another library."""
    return str(record.msg)[:EVENT_CHARACTERS_MAX].partition(" ")[0].removeprefix("event=")


def _taken(place: _Place, event: _Event) -> tuple[_Place, str, int, int]:
    """Return what a report has about the event, and begin its next count."""
    count, event.suppressed = event.suppressed, 0
    return place, event.name, event.level, count


def _report(place: _Place, name: str, level: int, count: int) -> None:
    log.log(
        level,
        "event=log_lines_suppressed of=%s logger=%s count=%d",
        name,
        place.logger,
        count,
    )
