"""When a process that has ended is started again, and when no more start makes sense.

    it was ready        after a delay that grows: 0.5 s, 1 s, 2 s, ... 30 s; the shortest again
                        after it was ready for a minute
    it was never ready  the same, up to `EARLY_DEATHS_MAX` times in `EARLY_DEATHS_SECONDS`.  If each
                        process has reached that, and none is ready, the supervisor ends

One process that can't start beside others that work is tried again for as long as they work.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

from sharegroup.backoff import Backoff

RESTART_MS = 500
RESTART_MS_MAX = 30_000
STABLE_SECONDS = 60.0
"""After this time of being ready, an end is not the consequence of the one before."""
EARLY_DEATHS_MAX = 5
EARLY_DEATHS_SECONDS = 120.0
"""A process that takes longer for its attempts waits for something, and is worth another one."""


class Restarts:
    """The ends of one process and of those that replaced it."""

    __slots__ = ("_backoff", "_early")

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._backoff = Backoff(RESTART_MS, RESTART_MS_MAX, chance=chance)
        self._early: deque[float] = deque(maxlen=EARLY_DEATHS_MAX)
        """The times of the last ends before the process was ready."""

    def ended(self, now: float, ready_at: float | None) -> float:
        """Count an end; returns the delay in seconds before the next start.

        ``ready_at`` is the time since which the process was ready; None if it never was.
        """
        if ready_at is None:
            self._early.append(now)
        else:
            self._early.clear()
            if now - ready_at >= STABLE_SECONDS:
                self._backoff.reset()
        return self._backoff.next_ms() / 1000

    def is_hopeless(self, now: float) -> bool:
        """Whether the process has ended too often before it was ready."""
        return len(self._early) == EARLY_DEATHS_MAX and now - self._early[0] <= EARLY_DEATHS_SECONDS

    def worked(self) -> None:
        """Note that the process is ready."""
        self._early.clear()
