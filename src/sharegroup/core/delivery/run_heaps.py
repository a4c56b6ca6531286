"""Heaps that find runs of a share partition without a search: by state, and by lock deadline.

Both kinds are lazy. Entries are not removed when they become stale but dropped when they come up,
and a heap that is mostly stale is rebuilt from the runs. The invariants are one-sided, so a heap
need not be told that a run or a lock has ended:

- `RunsInState`: it has the first offset of every run in that state.
- `LockEnds`: every acquired offset lies in the range of an entry with its lock deadline.

A run that begins at a new offset must be noted. A run that grows at its end, or is joined to the
run before it, keeps its first offset and needs no note.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace

from sharegroup.core.delivery.acquisition import Range
from sharegroup.core.delivery.delivery import ACQUIRED, InFlightState, RecordState
from sharegroup.core.delivery.offset_runs import OffsetRuns, Run

Lock = tuple[int, int, int]
"""A lock deadline in ms, and the range ``[first, end)`` that was acquired."""

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


class LockEnds:
    """Finds the acquisition locks that end next."""

    __slots__ = ("_locks", "_runs")

    def __init__(self, runs: OffsetRuns[InFlightState]) -> None:
        self._runs = runs
        self._locks: list[Lock] = []

    def __len__(self) -> int:
        """The number of entries, including stale ones."""
        return len(self._locks)

    def note(self, lock: Lock) -> None:
        """Note the lock of a range."""
        heappush(self._locks, lock)
        if len(self._locks) > 2 * len(self._runs) + UNTRUE_ENTRIES_MIN:
            self._locks = [
                (run.value.lock_deadline_ms, run.first, run.end)
                for run in self._runs
                if run.value.state is ACQUIRED
            ]
            # Deadlines do not ascend with the offsets, so this list is no heap yet.
            heapify(self._locks)

    def next_ms(self) -> int | None:
        """Return the earliest lock deadline; None while nothing is acquired."""
        while self._locks:
            lock_deadline_ms, first, end = self._locks[0]
            for run in self._runs.between(first, end):
                # Renewed offsets have a later deadline, and an entry of their own.
                if run.value.state is ACQUIRED and run.value.lock_deadline_ms == lock_deadline_ms:
                    # Shrink the entry to the offsets still locked, so no run is passed twice.
                    if run.first > first:
                        heapreplace(self._locks, (lock_deadline_ms, run.first, end))
                    return lock_deadline_ms
            heappop(self._locks)
        return None

    def pop_due(self, now_ms: int, *, runs_max: int) -> list[Run[InFlightState]]:
        """Return acquired runs whose lock has ended, in order; the caller must release them now.

        The earliest deadlines come first. Later calls return what does not fit in ``runs_max``
        runs.
        """
        ended: list[Run[InFlightState]] = []
        reached = self._runs.start
        # The heap is in the order of deadlines; the runs of one overlay must ascend.
        for first, end in sorted(self._pop_due_ranges(now_ms, runs_max)):
            ended.extend(
                run
                for run in self._runs.between(max(first, reached), end)
                if run.value.state is ACQUIRED and run.value.lock_deadline_ms <= now_ms
            )
            reached = max(reached, end)  # A stale entry may overlap another.
        return ended

    def _pop_due_ranges(self, now_ms: int, runs_max: int) -> list[Range]:
        due: list[Range] = []
        while runs_max > 0 and self._locks and self._locks[0][0] <= now_ms:
            lock_deadline_ms, first, end = heappop(self._locks)
            reached, run_count = self._runs.reach(first, end, runs_max=runs_max)
            if run_count == 0:
                continue  # The start offset has moved past it.
            due.append((first, reached))
            runs_max -= run_count
            if runs_max == 0 and reached < end:
                heappush(self._locks, (lock_deadline_ms, reached, end))
        return due

    def check(self, run: Run[InFlightState]) -> None:
        """Assert that the heap has the lock deadlines of an acquired run; for tests."""
        reached = run.first
        for _, first, end in sorted(
            lock for lock in self._locks if lock[0] == run.value.lock_deadline_ms
        ):
            if first <= reached:
                reached = max(reached, end)
        assert reached >= run.end, f"nothing ends the lock of {run} from {reached} on"
