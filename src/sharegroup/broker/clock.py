"""The broker's clock: where it reads the time, but for what is only measured (`distribution`).

Two times exist.  ``now_ms`` is monotonic: locks, sessions and long polls are counted on it,
so that a jump of the wall clock neither frees nor extends a lock.  ``wall_ms`` is for
timestamps in records.  Tests hand in a clock that they move by themselves
(`sharegroup.testing.ManualClock`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """What the broker asks of a clock."""

    def now_ms(self) -> int:
        """Monotonic milliseconds."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as record timestamps count them."""
        ...

    def call_at_ms(self, when_ms: int, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` once ``now_ms()`` has reached ``when_ms``."""
        ...


class SystemClock:
    """The machine's clock, with timers on the running event loop."""

    __slots__ = ("_loop",)

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def call_at_ms(self, when_ms: int, callback: Callable[[], None]) -> Timer:
        # One millisecond more than asked: `now_ms` rounds down, and a timer that fires
        # early would find nothing due and have to be set again.
        delay_ms = max(0, when_ms - self.now_ms()) + 1
        return self._loop.call_later(delay_ms / 1000, callback)


class Alarm:
    """Calls ``ring`` once the earliest of the moments has come that it was set to since it rang.

    For heaps of what is due: each change sets it to what is first by then, and ringing finds out
    whether anything is due at all.
    """

    __slots__ = ("_clock", "_due_ms", "_ring", "_timer")

    def __init__(self, clock: Clock, ring: Callable[[], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._due_ms = 0
        self._timer: Timer | None = None

    def set(self, due_ms: int) -> None:
        """Ring then, or sooner if it is set so already."""
        if self._timer is not None:
            if self._due_ms <= due_ms:
                return
            self._timer.cancel()
        self._due_ms = due_ms
        self._timer = self._clock.call_at_ms(due_ms, self._rings)

    def cancel(self) -> None:
        """Do not ring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _rings(self) -> None:
        self._timer = None
        self._ring()


async def sleep_ms(clock: Clock, duration_ms: int) -> None:
    """Return when so much time has passed on ``clock``; for jobs that run now and then."""
    over = asyncio.get_running_loop().create_future()
    timer = clock.call_at_ms(
        clock.now_ms() + duration_ms, lambda: None if over.done() else over.set_result(None)
    )
    try:
        await over
    finally:
        timer.cancel()
