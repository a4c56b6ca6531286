"""Heaps that find runs of a share partition without a search: by state, and by time.

Both kinds are lazy. Entries are not removed when they become stale but dropped when they come up,
and a heap that is mostly stale is rebuilt from the runs. The invariants are one-sided, so a heap
need not be told that a run or a lock has ended:

- `RunsInState`: it has the first offset of every run in that state.
- `TimedRuns`: every offset in that state lies in the range of an entry with its time.

A run that begins at a new offset must be noted. A run that grows at its end, or is joined to the
run before it, keeps its first offset and needs no note.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace

from sharegroup.core.delivery.acquisition import Range
from sharegroup.core.delivery.delivery import InFlightState, RecordState
from sharegroup.core.delivery.offset_runs import OffsetRuns, Run

TimedRange = tuple[int, int, int]
"""A time in ms, and the range ``[first, end)`` that has it."""

TimeOf = Callable[[InFlightState], int]

UNTRUE_ENTRIES_MIN = 64
"""Number of stale entries below which a heap is not rebuilt."""


class RunsInState:
    """Finds the lowest run that is in one state."""

    __slots__ = ("_firsts", "_runs", "_state")

    def __init__(self, runs: OffsetRuns[InFlightState], state: RecordState) -> None:
        self._runs = runs
        self._state = state
        self._firsts: list[int] = []

    def __len__(self) -> int:
        """The number of entries, including stale ones."""
        return len(self._firsts)

    def note(self, first: int) -> None:
        """Note that a run in this state begins at ``first``."""
        heappush(self._firsts, first)
        if len(self._firsts) > 2 * len(self._runs) + UNTRUE_ENTRIES_MIN:
            # The runs ascend, and an ascending list is a heap. A rebuild costs as much as the
            # notes since the last one, so a note stays cheap on average.
            self._firsts = [run.first for run in self._runs if run.value.state is self._state]

    def lowest(self) -> Run[InFlightState] | None:
        """Return the lowest run in this state; None if there is none."""
        firsts, runs = self._firsts, self._runs
        while firsts:
            first = firsts[0]
            if first >= runs.start:
                # The map never becomes shorter at its end, so every noted offset is below it.
                run = runs.at(first)
                if run.first == first and run.value.state is self._state:
                    return run
            heappop(firsts)
        return None

    def pop(self) -> None:
        """Remove the run that `lowest` found, because it is about to change."""
        heappop(self._firsts)

    def check(self, run: Run[InFlightState]) -> None:
        """Assert that the heap has a run in this state; for tests."""
        assert run.first in self._firsts, (
            f"nothing leads to the {self._state.name} run at {run.first}"
        )


class TimedRuns:
    """Finds the runs in one state whose time comes next: of locks that end, or of delays.

    ``time_of`` returns that time.
    """

    __slots__ = ("_ranges", "_runs", "_state", "_time_of")

    def __init__(
        self, runs: OffsetRuns[InFlightState], state: RecordState, time_of: TimeOf
    ) -> None:
        self._runs = runs
        self._state = state
        self._time_of = time_of
        self._ranges: list[TimedRange] = []

    def __len__(self) -> int:
        """The number of entries, including stale ones."""
        return len(self._ranges)

    def note(self, timed: TimedRange) -> None:
        """Note the time of a range."""
        heappush(self._ranges, timed)
        if len(self._ranges) > 2 * len(self._runs) + UNTRUE_ENTRIES_MIN:
            self._ranges = [
                (self._time_of(run.value), run.first, run.end)
                for run in self._runs
                if run.value.state is self._state
            ]
            # Times do not ascend with the offsets, so this list is no heap yet.
            heapify(self._ranges)

    def next_ms(self) -> int | None:
        """Return the earliest time; None while no run is in this state."""
        while self._ranges:
            time_ms, first, end = self._ranges[0]
            for run in self._runs.between(first, end):
                # Renewed offsets have a later deadline, and an entry of their own.
                if run.value.state is self._state and self._time_of(run.value) == time_ms:
                    # Shrink the entry to the offsets that have it, so no run is passed twice.
                    if run.first > first:
                        heapreplace(self._ranges, (time_ms, run.first, end))
                    return time_ms
            heappop(self._ranges)
        return None

    def pop_due(self, now_ms: int, *, runs_max: int) -> list[Run[InFlightState]]:
        """Return runs whose time has come, in order; the caller must change their state now.

        The earliest times come first. Later calls return what does not fit in ``runs_max`` runs.
        """
        ended: list[Run[InFlightState]] = []
        reached = self._runs.start
        # The heap is in the order of times; the runs of one overlay must ascend.
        for first, end in sorted(self._pop_due_ranges(now_ms, runs_max)):
            ended.extend(
                run
                for run in self._runs.between(max(first, reached), end)
                if run.value.state is self._state and self._time_of(run.value) <= now_ms
            )
            reached = max(reached, end)  # A stale entry may overlap another.
        return ended

    def _pop_due_ranges(self, now_ms: int, runs_max: int) -> list[Range]:
        due: list[Range] = []
        while runs_max > 0 and self._ranges and self._ranges[0][0] <= now_ms:
            time_ms, first, end = heappop(self._ranges)
            reached, run_count = self._runs.reach(first, end, runs_max=runs_max)
            if run_count == 0:
                continue  # The start offset has moved past it.
            due.append((first, reached))
            runs_max -= run_count
            if runs_max == 0 and reached < end:
                heappush(self._ranges, (time_ms, reached, end))
        return due

    def check(self, run: Run[InFlightState]) -> None:
        """Assert that the heap has the times of a run in this state; for tests."""
        reached = run.first
        for _, first, end in sorted(
            timed for timed in self._ranges if timed[0] == self._time_of(run.value)
        ):
            if first <= reached:
                reached = max(reached, end)
        assert reached >= run.end, f"nothing ends the time of {run} from {reached} on"
