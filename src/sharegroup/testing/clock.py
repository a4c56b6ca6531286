"""A clock that tests advance by hand, so that a lock of 30 seconds expires at once."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from itertools import count

from sharegroup.faults.running_clock import ClockTimer, advance_ms


class ManualClock:
    """A clock that stands still until `advance`; timers fire in the order of their due times.

    >>> clock = ManualClock()
    >>> timer = clock.call_at_ms(clock.now_ms() + 30_000, lambda: print("expired"))
    >>> clock.advance(29.9)
    >>> clock.advance(0.1)
    expired
    """

    __slots__ = ("_due", "_now_ms", "_order", "_wall_offset_ms")

    def __init__(self) -> None:
        self._now_ms = 1_000_000
        self._wall_offset_ms = time.time_ns() // 1_000_000 - self._now_ms
        self._order = count()
        self._due: list[tuple[int, int, ClockTimer]] = []

    def now_ms(self) -> int:
        return self._now_ms

    def wall_ms(self) -> int:
        return self._now_ms + self._wall_offset_ms

    def call_at_ms(self, when_ms: int, callback: Callable[[], None]) -> ClockTimer:
        timer = ClockTimer(callback)
        heapq.heappush(self._due, (when_ms, next(self._order), timer))
        return timer

    def advance(self, seconds: float) -> None:
        """Advance the clock and fire the due timers.

        Call it on the thread of the broker's event loop.  ValueError if it is negative.
        """
        until_ms = self._now_ms + advance_ms(seconds)
        while self._due and self._due[0][0] <= until_ms:
            due_ms, _, timer = heapq.heappop(self._due)
            self._now_ms = max(self._now_ms, due_ms)
            timer.fire()
        # A timer may have advanced the clock further.
        self._now_ms = max(self._now_ms, until_ms)
