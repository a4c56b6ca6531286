"""A virtual clock for `App.test`: its time changes only when a test moves it.

The clock keeps the waiting calls in the order of their times, and `MemoryClock.move_to` makes
those that are due.  The caller moves the clock in steps and lets other tasks run in between.

Some waits are idle: a poll without records ends after half a second and starts the next one, so
an hour would have seven thousand of them.  Idle waits do not count for `next_due`.  They end when
the clock is moved past them for another reason.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

START_SECONDS = 1_000.0
START_WALL_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z; fixed, so that the times of a test are the same in each run."""


class ScheduledCall:
    """A scheduled call of a function, which `cancel` prevents."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Prevent the call."""
        self.callback = None


Alarms = list[tuple[float, int, ScheduledCall]]
"""A heap of (time, order, alarm); the next alarm is at its top."""


class MemoryClock:
    """A clock whose time changes only by `move_to`; a `ports.WorkerClock`."""

    __slots__ = ("_awaited", "_idle", "_now", "_order")

    def __init__(self) -> None:
        self._now = START_SECONDS
        self._order = count()
        self._awaited: Alarms = []
        self._idle: Alarms = []

    def now(self) -> float:
        """The virtual time in seconds; it never decreases."""
        return self._now

    def now_ms(self) -> int:
        """The virtual time in milliseconds, for `core`."""
        return round(self._now * 1000)

    def wall_ms(self) -> int:
        """Milliseconds since 1970 in virtual time."""
        return START_WALL_MS + round((self._now - START_SECONDS) * 1000)

    async def sleep_until(self, when: float) -> None:
        """Wait until the clock is moved to ``when`` or beyond."""
        if when <= self._now:
            await asyncio.sleep(0)
            return
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        alarm = self.call_at(when, lambda: None if arrived.done() else arrived.set_result(None))
        try:
            await arrived
        finally:
            alarm.cancel()

    def call_at(
        self, when: float, callback: Callable[[], None], *, is_idle: bool = False
    ) -> ScheduledCall:
        """Call ``callback`` when the clock is moved to ``when`` or beyond.

        An ``is_idle`` call does not count for `next_due`.
        """
        alarm = ScheduledCall(callback)
        heapq.heappush(self._idle if is_idle else self._awaited, (when, next(self._order), alarm))
        return alarm

    def next_due(self) -> float | None:
        """The time of the next call that is not idle; None if there is none."""
        return _next_of(self._awaited)

    def move_to(self, when: float) -> None:
        """Move the clock to ``when``, making all calls that are due in the order of their times."""
        while due := [alarms for alarms in (self._awaited, self._idle) if _is_due(alarms, when)]:
            moment, _, alarm = heapq.heappop(min(due, key=lambda alarms: alarms[0][:2]))
            self._now = max(self._now, moment)
            callback, alarm.callback = alarm.callback, None
            if callback is not None:
                callback()
        self._now = max(self._now, when)


def _next_of(alarms: Alarms) -> float | None:
    while alarms and alarms[0][2].callback is None:
        heapq.heappop(alarms)
    return alarms[0][0] if alarms else None


def _is_due(alarms: Alarms, when: float) -> bool:
    moment = _next_of(alarms)
    return moment is not None and moment <= when
