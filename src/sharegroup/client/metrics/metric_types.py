"""Metrics of a client: instruments that record values, and one dictionary to read them.

    fetches = metrics.counter("consumer-share-fetch-manager-metrics", "fetch")
    fetches.add()
    metrics.read()["consumer-share-fetch-manager-metrics"]["fetch-total"]      # 1.0

Groups and names are those of Kafka's Java clients, so dashboards for them can be used.  Totals
count from the client's start.  Rates, averages and maxima cover the last 30 to 60 seconds: each
instrument keeps two windows of 30 seconds, the current one and the previous one.

A recording costs a few attribute writes and one reading of the clock.  It is meant for events (a
request, a poll), not for single records: after taking 500 records call ``add(500)`` once.  This
module does not depend on prometheus; `sharegroup.client.metrics.prometheus` exports its values.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

log = logging.getLogger(__name__)

WINDOW_SECONDS = 30.0
RATE_SECONDS_MIN = 1.0
"""Minimum time that a rate is computed over: two events in a millisecond are not 2,000/s."""

NEVER = -1.0
"""The value of a moment before its first mark, and of a summary without values; as in Java."""

Clock = Callable[[], float]
Reading = tuple[str, float]


class Instrument(Protocol):
    """A source of named values."""

    def read(self) -> Iterator[Reading]:
        """Yield the name and value of each of its readings."""


_Kind = TypeVar("_Kind", bound=Instrument)


class Counter:
    """A sum that only grows, read as ``<stem>-total`` and ``<stem>-rate`` per second.

    For rare events it is read as ``<stem>-rate-per-hour`` instead of ``<stem>-rate``.
    """

    __slots__ = (
        "_before", "_before_since", "_clock", "_now", "_now_since", "_per_hour", "_stem", "total",
    )  # fmt: skip

    def __init__(self, stem: str, clock: Clock, *, per_hour: bool = False) -> None:
        self.total = 0.0
        self._stem = stem
        self._per_hour = per_hour
        self._clock = clock
        self._now = self._before = 0.0
        self._now_since = self._before_since = clock()

    def add(self, amount: float = 1) -> None:
        """Add ``amount`` to the sum."""
        self._roll()
        self.total += amount
        self._now += amount

    def per_second(self) -> float:
        """Return the rate per second of the last 30 to 60 seconds."""
        now = self._roll()
        return (self._before + self._now) / max(now - self._before_since, RATE_SECONDS_MIN)

    def read(self) -> Iterator[Reading]:
        yield f"{self._stem}-total", self.total
        if self._per_hour:
            yield f"{self._stem}-rate-per-hour", self.per_second() * 3600
        else:
            yield f"{self._stem}-rate", self.per_second()

    def _roll(self) -> float:
        now = self._clock()
        if now - self._now_since >= WINDOW_SECONDS:
            # If nothing was recorded for two windows, the previous window is empty, too.
            stale = now - self._now_since >= 2 * WINDOW_SECONDS
            self._before = 0.0 if stale else self._now
            self._before_since = now - WINDOW_SECONDS if stale else self._now_since
            self._now, self._now_since = 0.0, now
        return now


class Summary:
    """Values of one kind, read as ``<stem>-avg`` and ``<stem>-max``."""

    __slots__ = ("_before", "_clock", "_now", "_now_since", "_parts", "_stem")

    def __init__(self, stem: str, clock: Clock, parts: Sequence[str] = ("avg", "max")) -> None:
        self._stem = stem
        self._clock = clock
        self._parts = tuple(parts)
        self._now = self._before = (0, 0.0, 0.0)  # Count, sum, largest.
        self._now_since = clock()

    def observe(self, value: float) -> None:
        """Record one value."""
        self._roll()
        count, total, largest = self._now
        self._now = (count + 1, total + value, value if not count else max(largest, value))

    def read(self) -> Iterator[Reading]:
        self._roll()
        windows = [window for window in (self._before, self._now) if window[0]]
        count = sum(window[0] for window in windows)
        for part in self._parts:
            if not count:
                value = NEVER
            elif part == "avg":
                value = sum(window[1] for window in windows) / count
            else:
                value = max(window[2] for window in windows)
            yield f"{self._stem}-{part}", value

    def _roll(self) -> None:
        now = self._clock()
        if now - self._now_since >= WINDOW_SECONDS:
            stale = now - self._now_since >= 2 * WINDOW_SECONDS
            self._before = (0, 0.0, 0.0) if stale else self._now
            self._now, self._now_since = (0, 0.0, 0.0), now


class Moment:
    """The time of an event, read as the seconds since then."""

    __slots__ = ("_clock", "_marked_at", "_name")

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._marked_at: float | None = None

    def mark(self) -> None:
        """Note that the event happens now."""
        self._marked_at = self._clock()

    def read(self) -> Iterator[Reading]:
        seconds_since = NEVER if self._marked_at is None else self._clock() - self._marked_at
        yield self._name, seconds_since


class Gauge:
    """A value that a function returns when the metrics are read.

    If the function raises an error or returns no number, the value is left out.  It may be code of
    the application, which must neither hide the other metrics nor end the client.
    """

    __slots__ = ("_is_told", "_look", "name")

    def __init__(self, name: str, look: Callable[[], float]) -> None:
        self.name = name
        self._look = look
        self._is_told = False

    def read(self) -> Iterator[Reading]:
        try:
            value = float(self._look())
        except Exception as error:  # noqa: BLE001  The application's code may raise any.
            # Once, because metrics may be read every second.
            if not self._is_told:
                self._is_told = True
                log.warning(
                    "event=metric.failed name=%s error=%r action='the metric is left out until its "
                    "function returns a number'",
                    self.name,
                    error,
                )
            return
        yield self.name, value


class Metrics:
    """All instruments of one client, by group."""

    __slots__ = ("_clock", "_groups", "client_id")

    def __init__(self, client_id: str, clock: Clock | None = None) -> None:
        self.client_id = client_id
        self._clock = clock or time.monotonic
        self._groups: dict[str, list[Instrument]] = {}

    def counter(self, group: str, stem: str, *, per_hour: bool = False) -> Counter:
        """Add a counter, read as ``<stem>-total`` and ``<stem>-rate`` (``-rate-per-hour``)."""
        return self._added(group, Counter(stem, self._clock, per_hour=per_hour))

    def summary(self, group: str, stem: str, parts: Sequence[str] = ("avg", "max")) -> Summary:
        """Add a summary, read as ``<stem>-avg`` and ``<stem>-max``, or as one of them."""
        return self._added(group, Summary(stem, self._clock, parts))

    def moment(self, group: str, name: str) -> Moment:
        """Add a moment, read as the seconds since its last mark."""
        return self._added(group, Moment(name, self._clock))

    def gauge(self, group: str, name: str, look: Callable[[], float]) -> None:
        """Add a gauge whose value is read by calling ``look``.

        Raises TypeError for names that are no text, which no later reader could name.
        """
        names: tuple[object, object] = group, name
        if not (all(isinstance(text, str) for text in names) and callable(look)):
            raise TypeError(
                f"expected a metric's group and name as str and a function, found {group!r}, "
                f"{name!r} and {look!r}"
            )
        self._added(group, Gauge(name, look))

    def remove_group(self, group: str) -> None:
        """Remove all metrics of a group."""
        self._groups.pop(group, None)

    def remove_gauge(self, group: str, name: str) -> None:
        """Remove the gauges of this name."""
        instruments = self._groups.get(group, [])
        kept: list[Instrument] = [
            instrument
            for instrument in instruments
            if not (isinstance(instrument, Gauge) and instrument.name == name)
        ]
        self._groups[group] = kept
        if not kept:
            del self._groups[group]  # A group without metrics is not shown.

    def read(self) -> dict[str, dict[str, float]]:
        """Return the current values by group and name."""
        return {
            group: dict(
                # Copies, because a gauge calls code of the application, which may register metrics.
                reading
                for instrument in tuple(instruments)
                for reading in instrument.read()
            )
            for group, instruments in tuple(self._groups.items())
        }

    def _added(self, group: str, instrument: _Kind) -> _Kind:
        self._groups.setdefault(group, []).append(instrument)
        return instrument
