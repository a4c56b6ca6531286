"""The history of groups: a point a second for two hours, a point a minute for eight days.

Points are packed into arrays.  All groups together stay within `POINTS_MAX`: from then on, new
points of a group replace its oldest.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple, Protocol

SECONDS_KEPT = 2 * 60 * 60
MINUTES_KEPT = 8 * 24 * 60
POINTS_MAX = 4_000_000
"""Points of all groups: about 100 MB."""
MINUTE_MS = 60_000
UNKNOWN = -1
RATE_MS = 30_000
"""The time over which a rate is taken, so that the steps of acknowledgements even out."""
GROWTH_MS = 5 * MINUTE_MS
"""The time over which lag is compared."""


class Point(NamedTuple):
    """A moment of a group: wall clock in ms, lag and settled offsets; -1 means unknown."""

    at_ms: int
    lag: int
    settled: int


class Ring:
    """The newest points, in order of time."""

    __slots__ = ("_lags", "_limit", "_settled", "_start", "_times")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._start = 0
        self._times, self._lags, self._settled = array("q"), array("q"), array("q")

    def __len__(self) -> int:
        return len(self._times)

    def add(self, point: Point) -> None:
        """Add a point, in place of the oldest if the ring is full."""
        if len(self._times) < self._limit:
            self._times.append(point.at_ms)
            self._lags.append(point.lag)
            self._settled.append(point.settled)
            return
        at = self._start
        self._times[at], self._lags[at], self._settled[at] = point
        self._start = (at + 1) % self._limit

    def shrink(self) -> None:
        """Take the present number of points for the limit."""
        self._limit = max(1, len(self._times))

    def since(self, at_ms: int) -> Iterator[Point]:
        """Yield the points from this moment on, oldest first."""
        first = bisect_left(range(len(self._times)), at_ms, key=self._time)
        return map(self._point, range(first, len(self._times)))

    def newest(self, before_ms: int | None = None) -> Point | None:
        """Return the newest point, or the newest at or before a moment."""
        end = len(self._times)
        if before_ms is not None:
            end = bisect_right(range(end), before_ms, key=self._time)
        return self._point(end - 1) if end else None

    def _time(self, number: int) -> int:
        return self._times[(self._start + number) % len(self._times)]

    def _point(self, number: int) -> Point:
        index = (self._start + number) % len(self._times)
        return Point(self._times[index], self._lags[index], self._settled[index])


class GroupHistory:
    """The points of one group."""

    __slots__ = ("minutes", "seconds")

    def __init__(self) -> None:
        self.seconds, self.minutes = Ring(SECONDS_KEPT), Ring(MINUTES_KEPT)

    def __len__(self) -> int:
        return len(self.seconds) + len(self.minutes)

    def since(self, at_ms: int) -> list[Point]:
        """Return the points from a moment on: seconds as far as they go back, minutes before."""
        seconds = list(self.seconds.since(at_ms))
        first_ms = seconds[0].at_ms if seconds else None
        minutes = [
            point
            for point in self.minutes.since(at_ms)
            if first_ms is None or point.at_ms < first_ms
        ]
        return [*minutes, *seconds]

    def settled_per_second(self) -> float | None:
        """Return the rate of the last half minute; None without two points in it or near it."""
        last = self.seconds.newest()
        if last is None or last.settled == UNKNOWN:
            return None
        first = self.seconds.newest(before_ms=last.at_ms - RATE_MS)
        if first is None:
            first = next(self.seconds.since(0))
        if first.settled == UNKNOWN or first.at_ms >= last.at_ms:
            return None
        # A reset moves offsets back; that is no settling.
        return max(0.0, (last.settled - first.settled) * 1000 / (last.at_ms - first.at_ms))

    def growth(self) -> int | None:
        """Return by how much lag grew in the last five minutes; None if that is not known."""
        last = self.seconds.newest()
        if last is None or last.lag == UNKNOWN:
            return None
        first = self.seconds.newest(before_ms=last.at_ms - GROWTH_MS)
        first = first or self.minutes.newest(before_ms=last.at_ms - GROWTH_MS)
        return None if first is None or first.lag == UNKNOWN else last.lag - first.lag


class Histories(Protocol):
    """Histories by group: all, or those that a user may see."""

    def of(self, group_id: str) -> GroupHistory:
        """Return the history of a group; an empty one if there is none."""


class History:
    """The histories of all groups, within one bound."""

    def __init__(self, *, points_max: int = POINTS_MAX) -> None:
        self._points_max = points_max
        self._points = 0
        self._groups: dict[str, GroupHistory] = {}

    def __len__(self) -> int:
        return self._points

    def of(self, group_id: str) -> GroupHistory:
        """Return the history of a group; an empty one if there is none."""
        return self._groups.get(group_id) or GroupHistory()

    def add(self, group_id: str, point: Point) -> None:
        """Add a point, at most one a second, and the first of each minute to the minutes."""
        history = self._groups.setdefault(group_id, GroupHistory())
        last = history.seconds.newest()
        if last is not None and point.at_ms <= last.at_ms:
            return  # The wall clock was set back.
        before = len(history)
        if self._points >= self._points_max:
            history.seconds.shrink()
        history.seconds.add(point)
        minute = history.minutes.newest()
        if minute is None or point.at_ms // MINUTE_MS > minute.at_ms // MINUTE_MS:
            if self._points >= self._points_max:
                history.minutes.shrink()
            history.minutes.add(point)
        self._points += len(history) - before

    def keep(self, group_ids: set[str]) -> None:
        """Forget the groups that are not among these."""
        for group_id in self._groups.keys() - group_ids:
            self._points -= len(self._groups.pop(group_id))
