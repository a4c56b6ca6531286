"""The history of groups: a point a second for two hours, a point a minute for eight days.

Points are packed into arrays.  All groups share `POINTS_MAX` equally: a group that has more points
than its part drops its oldest with each new one.  What an earlier console wrote down is put before
the points of this one (`restore`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple, Protocol

SECONDS_MS = 2 * 60 * 60 * 1000
MINUTES_MS = 8 * 24 * 60 * 60 * 1000
POINTS_MAX = 4_000_000
"""Points of all groups: about 100 MB."""
GROUP_POINTS_MIN = 20
"""Points that each group may have, however many groups there are."""
MINUTE_MS = 60_000
UNKNOWN = -1
LAG_MAX = 2**63 - 1
SETTLED_MAX = 2**60
"""More than can be settled; a broker may claim any offset, and the sum has to fit into an array."""
GROUPS_MAX = 10_000
"""Groups of which an earlier history is taken; the console describes no more."""
RATE_MS = 30_000
"""The time over which a rate is taken, so that the steps of acknowledgements even out."""
RATE_MS_MAX = 5 * MINUTE_MS
"""Two points that are further apart give no rate."""
GROWTH_MS = 5 * MINUTE_MS
"""The time over which lag is compared."""


class Tier(IntEnum):
    """How fine points are; the numbers are in the format of blocks."""

    SECONDS = 0
    MINUTES = 1

    @property
    def keep_ms(self) -> int:
        """How long points of this tier are kept."""
        return SECONDS_MS if self is Tier.SECONDS else MINUTES_MS


class Point(NamedTuple):
    """A moment of a group: wall clock in ms, lag (-1: unknown), offsets settled until then."""

    at_ms: int
    lag: int
    settled: int


class Columns(NamedTuple):
    """Points in order of time as three arrays of equal length, of int64."""

    times: array[int]
    lags: array[int]
    settled: array[int]


class Series:
    """Points in order of time; the oldest are dropped."""

    __slots__ = ("_lags", "_settled", "_start", "_times")

    def __init__(self) -> None:
        self._start = 0
        """The points before it are dropped; the arrays are cut when these are half of them."""
        self._times, self._lags, self._settled = array("q"), array("q"), array("q")

    def __len__(self) -> int:
        return len(self._times) - self._start

    def add(self, point: Point, *, keep_ms: int) -> None:
        """Add the newest point; drop those that are more than ``keep_ms`` older."""
        assert not len(self) or point.at_ms > self._times[-1], "points are added in order"
        self._times.append(point.at_ms)
        self._lags.append(point.lag)
        self._settled.append(point.settled)
        while self._times[self._start] < point.at_ms - keep_ms:
            self.drop_oldest()

    def extend(self, columns: Columns, *, keep_ms: int) -> None:
        """Add those points that are newer than the newest; drop those that became too old.

        So the same points a second time change nothing.
        """
        newest = self.newest()
        first = 0 if newest is None else bisect_right(columns.times, newest.at_ms)
        if first == len(columns.times):
            return
        self._times += columns.times[first:]
        self._lags += columns.lags[first:]
        self._settled += columns.settled[first:]
        old = bisect_left(self._times, self._times[-1] - keep_ms, self._start)
        self.drop_oldest(old - self._start)

    def drop_oldest(self, count: int = 1) -> None:
        """Drop the oldest points."""
        assert 0 <= count <= len(self), "there are so many points"
        self._start += count
        if self._start * 2 > len(self._times):
            for column in (self._times, self._lags, self._settled):
                del column[: self._start]
            self._start = 0

    def drop_from(self, at_ms: int) -> None:
        """Drop the points at or after a moment."""
        end = bisect_left(self._times, at_ms, self._start)
        for column in (self._times, self._lags, self._settled):
            del column[end:]

    def since(self, at_ms: int) -> Iterator[Point]:
        """Yield the points from this moment on, oldest first."""
        return map(Point, *self.columns(at_ms))

    def columns(self, first_ms: int = 0, end_ms: int | None = None) -> Columns:
        """Return a copy of the points in [first_ms, end_ms); None: to the newest."""
        first = bisect_left(self._times, first_ms, self._start)
        end = None if end_ms is None else bisect_left(self._times, end_ms, first)
        return Columns(self._times[first:end], self._lags[first:end], self._settled[first:end])

    def newest(self, before_ms: int | None = None) -> Point | None:
        """Return the newest point, or the newest at or before a moment."""
        end = len(self._times)
        if before_ms is not None:
            end = bisect_right(self._times, before_ms, self._start)
        if end == self._start:
            return None
        return Point(self._times[end - 1], self._lags[end - 1], self._settled[end - 1])

    def oldest(self) -> Point | None:
        """Return the oldest point."""
        if not len(self):
            return None
        start = self._start
        return Point(self._times[start], self._lags[start], self._settled[start])


class GroupHistory:
    """The points of one group."""

    __slots__ = ("minutes", "seconds")

    def __init__(self) -> None:
        self.seconds, self.minutes = Series(), Series()

    def __len__(self) -> int:
        return len(self.seconds) + len(self.minutes)

    def of(self, tier: Tier) -> Series:
        """Return the points of a tier."""
        return self.seconds if tier is Tier.SECONDS else self.minutes

    def add_minute(self, point: Point) -> None:
        """Add a point to the minutes if it is the first of its minute."""
        minute = self.minutes.newest()
        if minute is None or point.at_ms // MINUTE_MS > minute.at_ms // MINUTE_MS:
            self.minutes.add(point, keep_ms=MINUTES_MS)

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
        if last is None:
            return None
        first = self.seconds.newest(before_ms=last.at_ms - RATE_MS)
        first = first or self.seconds.oldest()
        if first is None:
            return None
        span_ms = last.at_ms - first.at_ms
        if not 0 < span_ms <= RATE_MS_MAX:
            return None
        return max(0, last.settled - first.settled) * 1000 / span_ms

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
        self._groups: dict[str, GroupHistory] = {}

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def of(self, group_id: str) -> GroupHistory:
        """Return the history of a group; an empty one if there is none."""
        return self._groups.get(group_id) or GroupHistory()

    def add(self, group_id: str, *, at_ms: int, lag: int | None, progress: int) -> None:
        """Add a moment of a group, in which its offsets went forward by ``progress``.

        Each moment is a point of the seconds, and the first of each minute one of the minutes.
        """
        history = self._groups.setdefault(group_id, GroupHistory())
        last = history.seconds.newest()
        settled = min(SETTLED_MAX, progress if last is None else last.settled + progress)
        point = Point(at_ms, UNKNOWN if lag is None else min(LAG_MAX, lag), settled)
        # If the wall clock was set back, the points after it are of times that come again.
        history.seconds.drop_from(point.at_ms)
        history.minutes.drop_from(point.at_ms)
        history.seconds.add(point, keep_ms=SECONDS_MS)
        history.add_minute(point)
        self._trim(history)

    def extend(self, group_id: str, tier: Tier, columns: Columns) -> None:
        """Add those points of a group that are newer than its newest.

        The first of each minute becomes one of the minutes, too.  A new group beyond `GROUPS_MAX`
        is left out.
        """
        history = self._groups.get(group_id)
        if history is None:
            if len(self._groups) >= GROUPS_MAX:
                return
            history = self._groups[group_id] = GroupHistory()
        history.of(tier).extend(columns, keep_ms=tier.keep_ms)
        if tier is Tier.SECONDS:
            for point in map(Point, *columns):
                history.add_minute(point)
        self._trim(history)

    def restore(self, group_id: str, earlier: GroupHistory) -> None:
        """Put the points that an earlier console saw before those of this one.

        What was settled is counted on from the earlier number.
        """
        own = self._groups.get(group_id)
        first = None if own is None else own.seconds.oldest()
        if own is not None and first is not None:
            for tier in Tier:
                earlier.of(tier).drop_from(first.at_ms)
            last = earlier.seconds.newest() or earlier.minutes.newest()
            base = 0 if last is None else last.settled
            for tier in Tier:
                times, lags, settled = own.of(tier).columns()
                raised = array("q", (min(SETTLED_MAX, base + number) for number in settled))
                earlier.of(tier).extend(Columns(times, lags, raised), keep_ms=tier.keep_ms)
        self._groups[group_id] = earlier
        self._trim(earlier)

    def group_ids(self) -> list[str]:
        """Return the groups that have a history."""
        return list(self._groups)

    def _trim(self, history: GroupHistory) -> None:
        allowed = max(GROUP_POINTS_MIN, self._points_max // len(self._groups))
        while len(history) > allowed:
            longer = max(history.seconds, history.minutes, key=len)
            longer.drop_oldest()

    def keep(self, group_ids: set[str]) -> None:
        """Forget the groups that are not among these."""
        for group_id in self._groups.keys() - group_ids:
            del self._groups[group_id]
