"""The broker's clock: the source of all times, except for mere measurements (`request_counters`).

``now_ms`` is monotonic.  Locks, sessions and long polls use it, so a jump of the wall clock
neither ends nor extends a lock.  ``wall_ms`` is for the timestamps of records.  What expires by the
wall clock asks `ExpiryClock`, so that a jump of it deletes nothing at once.  Tests pass a clock
that they move themselves (`sharegroup.testing.ManualClock`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Protocol

from sharegroup.core.clock_jumps import PAUSE_MS, ExpiryTime, Phase

log = logging.getLogger(__name__)


class TimerHandle(Protocol):
    """A scheduled call that can be cancelled."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """The clock that the broker uses; replaceable in tests."""

    def now_ms(self) -> int:
        """Return monotonic milliseconds."""
        ...

    def wall_ms(self) -> int:
        """Return milliseconds since 1970, the unit of record timestamps."""
        ...

    def call_at_ms(self, when_ms: int, callback: Callable[[], None]) -> TimerHandle:
        """Call ``callback`` once ``now_ms()`` has reached ``when_ms``."""
        ...


def wall_ms() -> int:
    """Return the machine's time of day in ms since 1970, for programs without an event loop."""
    return time.time_ns() // 1_000_000


class SystemClock:
    """The machine's clock, with timers on the running event loop."""

    __slots__ = ("_loop",)

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def call_at_ms(self, when_ms: int, callback: Callable[[], None]) -> TimerHandle:
        # Add one millisecond: `now_ms` rounds down, and a timer that fires early would find nothing
        # due and have to be set again.
        delay_ms = max(0, when_ms - self.now_ms()) + 1
        return self._loop.call_later(delay_ms / 1000, callback)


class ExpiryClock:
    """The clock of what expires by time: records, committed offsets, ids (`core.clock_jumps`).

    Its ``wall_ms`` is the wall clock's, except for a while after that has jumped ahead.
    """

    __slots__ = ("_clock", "_time")

    def __init__(self, clock: Clock, last_write_ms: int | None) -> None:
        self._clock = clock
        self._time = ExpiryTime(
            now_ms=clock.now_ms(), wall_ms=clock.wall_ms(), last_write_ms=last_write_ms
        )

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def call_at_ms(self, when_ms: int, callback: Callable[[], None]) -> TimerHandle:
        return self._clock.call_at_ms(when_ms, callback)

    def wall_ms(self) -> int:
        wall_ms = self._clock.wall_ms()
        expiry_ms, jump = self._time.read(now_ms=self._clock.now_ms(), wall_ms=wall_ms)
        if jump is not None:
            log.warning(
                "event=clock_jump phase=%s wall_ms=%d ahead_ms=%d reason=%r",
                jump.phase.value,
                wall_ms,
                jump.ahead_ms,
                JUMP_REASONS[jump.phase],
            )
        return expiry_ms


JUMP_REASONS = {
    Phase.BEGAN: "the wall clock has jumped ahead, or the machine slept, or the broker was stopped "
    f"for long: for {PAUSE_MS // 60_000} minutes records, committed offsets and ids expire as if "
    "the clock had gone on; check the clock",
    Phase.BELIEVED: "the wall clock has stayed ahead: what is too old by it is deleted now",
    Phase.OVER: "the wall clock is back: nothing was deleted because of its jump",
}


class Alarm:
    """Calls ``ring`` at the earliest time that was set since the last ring.

    For a heap of deadlines: after each change, its user sets the alarm to the first deadline.  The
    function ``ring`` has to check whether anything is due.
    """

    __slots__ = ("_clock", "_due_ms", "_is_stopped", "_ring", "_timer")

    def __init__(self, clock: Clock, ring: Callable[[], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._due_ms = 0
        self._is_stopped = False
        self._timer: TimerHandle | None = None

    def set(self, due_ms: int | None, *, not_before_ms: int = 0) -> None:
        """Ring at ``due_ms``, unless the alarm is set to an earlier time or stopped.

        None changes nothing: there is no deadline.
        """
        if due_ms is None or self._is_stopped:
            return
        due_ms = max(due_ms, not_before_ms)
        if self._timer is not None:
            # It rings early then, and its user sets it again: a timer for each change would cost
            # more.
            if self._due_ms <= due_ms:
                return
            self._timer.cancel()
        self._due_ms = due_ms
        self._timer = self._clock.call_at_ms(due_ms, self._rings)

    def cancel(self) -> None:
        """Do not ring until the alarm is set again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def stop(self) -> None:
        """Never ring again: the event loop of a program that embeds a broker goes on after it."""
        self._is_stopped = True
        self.cancel()

    def _rings(self) -> None:
        self._timer = None
        self._ring()


async def sleep_ms(clock: Clock, duration_ms: int) -> None:
    """Sleep for so many milliseconds of ``clock``; for periodic jobs."""
    expired = asyncio.get_running_loop().create_future()
    timer = clock.call_at_ms(
        clock.now_ms() + duration_ms, lambda: None if expired.done() else expired.set_result(None)
    )
    try:
        await expired
    finally:
        timer.cancel()
