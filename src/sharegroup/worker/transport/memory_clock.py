"""Time that stands still until somebody moves it.

What waits for a moment is kept in order, and `MemoryClock.move_to` lets one moment after the
other come: whoever moves the clock gives everybody who was waiting the time to act in between.

Some waits are idle: a poll that ends after half a second with nothing in its hands starts the
next one, and an hour would be seven thousand of them.  Those don't say when the next thing
happens (`next_due`); they end when the clock is moved past them for another reason.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

START_SECONDS = 1_000.0
START_WALL_MS = 1_767_225_600_000
"""2026-01-01, midnight in Greenwich: a test's times are the same in each run."""


class Alarm:
    """A call that is to be made at a moment; `cancel` makes it none."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Never make it."""
        self.callback = None


Alarms = list[tuple[float, int, Alarm]]
"""A heap: the next one is at its top."""


class MemoryClock:
    """See the module's text; a `ports.Clock`."""

    __slots__ = ("_awaited", "_idle", "_now", "_order")

    def __init__(self) -> None:
        self._now = START_SECONDS
        self._order = count()
        self._awaited: Alarms = []
        self._idle: Alarms = []

    def now(self) -> float:
        """Seconds that only grow."""
        return self._now

    def now_ms(self) -> int:
        """The same in milliseconds, for `core`."""
        return round(self._now * 1000)

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return START_WALL_MS + round((self._now - START_SECONDS) * 1000)

    async def sleep_until(self, when: float) -> None:
        """Return when the clock was moved to ``when`` or beyond."""
        if when <= self._now:
            await asyncio.sleep(0)
            return
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        alarm = self.call_at(when, lambda: None if arrived.done() else arrived.set_result(None))
        try:
            await arrived
        finally:
            alarm.cancel()

    def call_at(self, when: float, callback: Callable[[], None], *, is_idle: bool = False) -> Alarm:
        """Make this call when the clock is moved to ``when`` or beyond."""
        alarm = Alarm(callback)
        heapq.heappush(self._idle if is_idle else self._awaited, (when, next(self._order), alarm))
        return alarm

    def next_due(self) -> float | None:
        """The next moment at which something happens; None: nothing ever will."""
        return _next_of(self._awaited)

    def move_to(self, when: float) -> None:
        """Let everything happen that is due until ``when``, in its order."""
        while due := [one for one in (self._awaited, self._idle) if _is_due(one, when)]:
            moment, _, alarm = heapq.heappop(min(due, key=lambda one: one[0][:2]))
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
