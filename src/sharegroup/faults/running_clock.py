"""A clock that runs like the machine's, and that a test can advance."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable
from itertools import count

ADVANCE_SECONDS_MAX = 100 * 365 * 86_400
"""A hundred years; timestamps far beyond would not fit into Kafka's records."""


class ClockTimer:
    """A callback that a clock under test calls when it is due, unless it is cancelled."""

    __slots__ = ("_callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback: Callable[[], None] | None = callback

    @property
    def is_cancelled(self) -> bool:
        """Whether there is nothing to call any more."""
        return self._callback is None

    def cancel(self) -> None:
        """Drop the callback, so the timer does nothing when it is due."""
        self._callback = None

    def fire(self) -> None:
        """Call the callback once, unless the timer was cancelled."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


def advance_ms(seconds: float) -> int:
    """Return the milliseconds of an advance; ValueError unless a clock can make it."""
    if not 0 <= seconds <= ADVANCE_SECONDS_MAX:
        raise ValueError(
            f"advance({seconds}): a clock cannot go back, nor by more than "
            f"{ADVANCE_SECONDS_MAX} s at once"
        )
    return round(seconds * 1_000)


class RunningClock:
    """The broker's clock in a test: it runs in real time, and `advance` adds to it.

    Its methods are called on the thread of the event loop that runs when it is created.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ahead_ms = 0
        self._order = count()
        self._due: list[tuple[int, int, ClockTimer]] = []
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms = 0

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000 + self._ahead_ms

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self._ahead_ms

    def call_at_ms(self, when_ms: int, callback: Callable[[], None]) -> ClockTimer:
        timer = ClockTimer(callback)
        # The number keeps timers of one time in order, and keeps the heap from comparing timers.
        heapq.heappush(self._due, (when_ms, next(self._order), timer))
        self._set_alarm()
        return timer

    def advance(self, seconds: float) -> None:
        """Advance the clock; the timers that become due fire in the order of their due times.

        While a timer fires, the clock shows the time at which it was due.
        """
        step_ms = advance_ms(seconds)
        until_ms = self.now_ms() + step_ms
        ahead_ms = self._ahead_ms + step_ms
        while self._due and self._due[0][0] <= until_ms:
            due_ms, _, timer = heapq.heappop(self._due)
            # In steps, as time would pass: a timer may set another one that is due before the end.
            self._ahead_ms += max(0, due_ms - self.now_ms())
            self._fire(timer)
        # A timer may have advanced the clock further.
        self._ahead_ms = max(self._ahead_ms, ahead_ms)
        self._set_alarm()

    def _set_alarm(self) -> None:
        """Wake at the first due time."""
        # Cancelled timers stay in the heap until they are the first, because a heap cannot remove
        # others cheaply.
        while self._due and self._due[0][2].is_cancelled:
            heapq.heappop(self._due)
        if not self._due:
            return
        first_ms = self._due[0][0]
        if self._alarm is not None:
            if self._alarm_ms <= first_ms:
                return
            self._alarm.cancel()
        self._alarm_ms = first_ms
        # One millisecond more, because `now_ms` rounds down.
        seconds = (max(0, first_ms - self.now_ms()) + 1) / 1_000
        self._alarm = self._loop.call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        # Read once: timers that become due while others fire wait for the next alarm.
        now_ms = self.now_ms()
        while self._due and self._due[0][0] <= now_ms:
            self._fire(heapq.heappop(self._due)[2])
        self._set_alarm()

    def _fire(self, timer: ClockTimer) -> None:
        """Fire a timer, and report its error as the loop does for a timer of its own."""
        try:
            timer.fire()
        # Raised here, it would stop the alarms of all other timers.
        except Exception as error:  # noqa: BLE001  It is reported.
            text = "a timer of the broker under test failed"
            self._loop.call_exception_handler({"message": text, "exception": error})
