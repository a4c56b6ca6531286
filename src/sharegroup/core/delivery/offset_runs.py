"""A total map from consecutive offsets to values, stored as runs of equal values.

Every offset in ``[start, end)`` has exactly one value: there are no holes. Neighbouring runs always
differ, so the number of runs is the number of changes of value, not the number of offsets: a
million records in one state cost as much as one.

    offset   10        14   15             21
    value    |  green  | red |    green     |          start 10, end 21, three runs

All changes go through one operation: `overlay` lays new runs over old ones and joins equal
neighbours. Ranges are half-open; the inclusive last offset of the wire is converted at the edge.

Two parallel lists hold the runs. A lookup is a binary search, a change is a slice assignment. The
assignment moves the runs behind it in memory: about 40 microseconds at 200,000 runs. A tree would
be better in theory and slower at every size that occurs here (ADR 0003).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Generic, NamedTuple, TypeVar

V = TypeVar("V")

SPLICES_MAX = 512
"""Number of separate changes in one call above which one pass over all runs between is cheaper."""


class Run(NamedTuple, Generic[V]):
    """Offsets ``first`` (included) to ``end`` (excluded) that share one value."""

    first: int
    end: int
    value: V


class OffsetRuns(Generic[V]):
    """A total map from consecutive offsets to values.

    All operations are O(log runs + runs touched).
    """

    __slots__ = ("_firsts", "_values", "end")

    def __init__(self, start: int) -> None:
        self._firsts: list[int] = []  # Where each run begins, ascending.
        self._values: list[V] = []  # Its value; same length as `_firsts`.
        self.end = start
        """The first offset that has no value yet; only the map changes it."""

    @property
    def start(self) -> int:
        """The first offset that has a value, or `end` if none has."""
        return self._firsts[0] if self._firsts else self.end

    def __len__(self) -> int:
        """The number of runs."""
        return len(self._firsts)

    def __iter__(self) -> Iterator[Run[V]]:
        """All runs in order; the map must not change meanwhile."""
        return self.between(self.start, self.end)

    @property
    def head(self) -> V:
        """The value of the first run; the map must not be empty."""
        return self._values[0]

    def at(self, offset: int) -> Run[V]:
        """Return the whole run that contains ``offset``."""
        assert self.start <= offset < self.end, f"{offset} is outside [{self.start}, {self.end})"
        index = bisect_right(self._firsts, offset) - 1
        after = index + 1
        run_end = self._firsts[after] if after < len(self._firsts) else self.end
        return Run(self._firsts[index], run_end, self._values[index])

    def between(self, first: int, end: int) -> Iterator[Run[V]]:
        """Return the runs within ``[first, end)``; the first and the last are clipped to it."""
        firsts, values = self._firsts, self._values
        if not firsts:
            return
        first = max(first, firsts[0])
        end = min(end, self.end)
        index = bisect_right(firsts, first) - 1
        while first < end:
            after = index + 1
            run_end = firsts[after] if after < len(firsts) else self.end
            stop = min(run_end, end)
            yield Run(first, stop, values[index])
            first, index = stop, after

    def reach(self, first: int, end: int, *, runs_max: int) -> tuple[int, int]:
        """Return the offset that ``runs_max`` runs of ``[first, end)`` reach, and their number."""
        first, end = max(first, self.start), min(end, self.end)
        if first >= end:
            return end, 0
        index = bisect_right(self._firsts, first) - 1
        after = bisect_left(self._firsts, end, index + 1)
        if after - index <= runs_max:
            return end, after - index
        return self._firsts[index + runs_max], runs_max

    def append(self, end: int, value: V) -> None:
        """Extend the map to ``end``; the new offsets get ``value``."""
        assert end >= self.end, f"the map ends at {self.end} and cannot end at {end}"
        if end == self.end:
            return
        if not self._values or self._values[-1] != value:
            self._firsts.append(self.end)
            self._values.append(value)
        self.end = end

    def update(self, first: int, end: int, change: Callable[[V], V]) -> None:
        """Apply ``change`` once per run to every value within ``[first, end)``."""
        # A list, because `overlay` changes the lists that `between` walks.
        self.overlay([run._replace(value=change(run.value)) for run in self.between(first, end)])

    def overlay(self, runs: Sequence[Run[V]]) -> None:
        """Lay ``runs`` over the map: ascending, disjoint, all within ``[start, end)``."""
        if len(runs) == 1:  # The most frequent call: one record is settled alone.
            self._splice(runs)
            return
        tilings = _tilings(runs)
        # Each splice moves all runs behind it; so many would cost more than one pass.
        if len(tilings) > SPLICES_MAX:
            tilings = [list(self._with_runs_between(runs))]
        for tiling in tilings:
            self._splice(tiling)

    def drop_before(self, offset: int) -> None:
        """Forget every offset below ``offset``."""
        assert offset <= self.end, f"the map ends at {self.end}, before {offset}"
        if offset <= self.start:
            return
        # The cut below would leave the last run, without an offset.
        if offset == self.end:
            self._firsts.clear()
            self._values.clear()
            return
        index = bisect_right(self._firsts, offset) - 1
        del self._firsts[:index], self._values[:index]
        self._firsts[0] = offset

    def check(self) -> None:
        """Assert the invariants of the map."""
        assert len(self._firsts) == len(self._values)
        borders = [*self._firsts, self.end]
        assert all(first < after for first, after in pairwise(borders))
        assert all(value != after for value, after in pairwise(self._values))

    def _splice(self, tiling: Sequence[Run[V]]) -> None:
        """Replace the values from the first offset of the first run to the end of the last run.

        Equal neighbours are joined. A run that equals the value before it begins no run of its own,
        and the value behind the last run begins one only if it differs.
        """
        first, end = tiling[0].first, tiling[-1].end
        assert self.start <= first < end <= self.end, (
            f"[{first}, {end}) is not within [{self.start}, {self.end})"
        )
        firsts, values = self._firsts, self._values
        # A run that begins at `first` is replaced; one that reaches over it keeps its beginning.
        low = bisect_left(firsts, first)
        high = bisect_left(firsts, end, low)
        new_firsts: list[int] = []
        new_values: list[V] = []
        starts_run = low == 0  # Only the map's own start has no value before it.
        # At index 0 this is the last value of the map, which `starts_run` keeps out of the
        # comparison.
        previous = values[low - 1]
        for run_first, _, value in tiling:
            if starts_run or value != previous:
                new_firsts.append(run_first)
                new_values.append(value)
                previous, starts_run = value, False
        # The run that reaches over `end` loses its beginning, so its rest needs an entry.
        if end < self.end:
            if high < len(firsts) and firsts[high] == end:
                if values[high] == previous:
                    high += 1
            elif values[high - 1] != previous:
                new_firsts.append(end)
                new_values.append(values[high - 1])
        firsts[low:high] = new_firsts
        values[low:high] = new_values

    def _with_runs_between(self, runs: Sequence[Run[V]]) -> Iterator[Run[V]]:
        """Return ``runs`` and, between each two, the runs of the map."""
        reached = runs[0].first
        for run in runs:
            yield from self.between(reached, run.first)
            yield run
            reached = run.end


def _tilings(runs: Sequence[Run[V]]) -> list[list[Run[V]]]:
    """Split ``runs`` into groups without a hole inside; each group takes one splice."""
    tilings: list[list[Run[V]]] = []
    reached = None
    for run in runs:
        if run.first == reached:
            tilings[-1].append(run)
        else:
            tilings.append([run])
        reached = run.end
    return tilings
