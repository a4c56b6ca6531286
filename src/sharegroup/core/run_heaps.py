"""Two ways into a share partition's runs that need no search: by state, and by a lock's end.

Both are heaps, and both are lazy: entries are not removed when they become untrue but dropped
when they come up, and a heap that is mostly untrue is made anew from the runs.  What must hold
is one-sided, so nobody has to tell a heap what ended:

- `RunsInState`: the first offset of every run in that state is in it.
- `LockEnds`: every acquired offset lies in the range of an entry with its lock's end.

A run that begins somewhere new must be noted.  One that grows at its end, or is joined to the
one before it, is known by the same first offset as before.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace

from sharegroup.core.acquisition import Range
from sharegroup.core.delivery import ACQUIRED, Delivery, RecordState
from sharegroup.core.offset_runs import OffsetRuns, Run

Lock = tuple[int, int, int]
"""When a lock ends, and the range ``[first, end)`` it was taken for."""

UNTRUE_ENTRIES_MIN = 64
"""A heap is not worth making anew below this number of untrue entries."""


class RunsInState:
    """Finds the lowest run that is in one state."""

    __slots__ = ("_firsts", "_runs", "_state")

    def __init__(self, runs: OffsetRuns[Delivery], state: RecordState) -> None:
        self._runs = runs
        self._state = state
        self._firsts: list[int] = []

    def __len__(self) -> int:
        """Entries, true or not."""
        return len(self._firsts)

    def note(self, first: int) -> None:
        """A run in this state begins at ``first``."""
        heappush(self._firsts, first)
        if len(self._firsts) > 2 * len(self._runs) + UNTRUE_ENTRIES_MIN:
            self._firsts = [run.first for run in self._runs if run.value.state is self._state]

    def lowest(self) -> Run[Delivery] | None:
        """The lowest run in this state, None when there is none."""
        firsts, runs = self._firsts, self._runs
        while firsts:
            first = firsts[0]
            if first >= runs.start:
                run = runs.at(first)
                if run.first == first and run.value.state is self._state:
                    return run
            heappop(firsts)
        return None

    def pop(self) -> None:
        """Forget the run that `lowest` found: it is about to become another."""
        heappop(self._firsts)

    def check(self, run: Run[Delivery]) -> None:
        """Assert that a run in this state is found; for tests."""
        assert run.first in self._firsts, (
            f"nothing leads to the {self._state.name} run at {run.first}"
        )


class LockEnds:
    """Finds the locks that end next."""

    __slots__ = ("_locks", "_runs")

    def __init__(self, runs: OffsetRuns[Delivery]) -> None:
        self._runs = runs
        self._locks: list[Lock] = []

    def __len__(self) -> int:
        """Entries, true or not."""
        return len(self._locks)

    def note(self, lock: Lock) -> None:
        """These offsets are locked until then."""
        heappush(self._locks, lock)
        if len(self._locks) > 2 * len(self._runs) + UNTRUE_ENTRIES_MIN:
            self._locks = [
                (run.value.lock_until_ms, run.first, run.end)
                for run in self._runs
                if run.value.state is ACQUIRED
            ]
            heapify(self._locks)

    def next_ms(self) -> int | None:
        """When the next lock ends; None while nothing is locked."""
        while self._locks:
            lock_until_ms, first, end = self._locks[0]
            for run in self._runs.between(first, end):
                if run.value.state is ACQUIRED and run.value.lock_until_ms == lock_until_ms:
                    # An entry shrinks to what it still holds, so that nothing is passed twice.
                    if run.first > first:
                        heapreplace(self._locks, (lock_until_ms, run.first, end))
                    return lock_until_ms
            heappop(self._locks)
        return None

    def pop_due(self, now_ms: int, *, runs_max: int) -> list[Run[Delivery]]:
        """What is locked and should not be any more, in order; it must be given back now.

        Those whose locks ended first, and no more of them than lie in ``runs_max`` runs: the
        rest another time.
        """
        ended: list[Run[Delivery]] = []
        reached = self._runs.start
        for first, end in sorted(self._pop_due_ranges(now_ms, runs_max)):
            ended.extend(
                run
                for run in self._runs.between(max(first, reached), end)
                if run.value.state is ACQUIRED and run.value.lock_until_ms <= now_ms
            )
            reached = max(reached, end)  # An untrue entry may overlap another.
        return ended

    def _pop_due_ranges(self, now_ms: int, runs_max: int) -> list[Range]:
        due: list[Range] = []
        while runs_max > 0 and self._locks and self._locks[0][0] <= now_ms:
            lock_until_ms, first, end = heappop(self._locks)
            reached, run_count = self._runs.reach(first, end, runs_max=runs_max)
            if run_count == 0:
                continue  # The start has moved past it.
            due.append((first, reached))
            runs_max -= run_count
            if runs_max == 0 and reached < end:
                heappush(self._locks, (lock_until_ms, reached, end))
        return due

    def check(self, run: Run[Delivery]) -> None:
        """Assert that the lock of an acquired run will end; for tests."""
        reached = run.first
        for _, first, end in sorted(
            lock for lock in self._locks if lock[0] == run.value.lock_until_ms
        ):
            if first <= reached:
                reached = max(reached, end)
        assert reached >= run.end, f"nothing ends the lock of {run} from {reached} on"
