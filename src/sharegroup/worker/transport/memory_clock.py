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

    __slots__ = ("callback", "is_idle")

    def __init__(self, callback: Callable[[], None], *, is_idle: bool) -> None:
        self.callback: Callable[[], None] | None = callback
        self.is_idle = is_idle

    def cancel(self) -> None:
        """Never make it."""
        self.callback = None


class MemoryClock:
    """See the module's text; a `ports.Clock`."""

    __slots__ = ("_alarms", "_now", "_order")

    def __init__(self) -> None:
        self._now = START_SECONDS
        self._order = count()
        self._alarms: list[tuple[float, int, Alarm]] = []

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
        alarm = Alarm(callback, is_idle=is_idle)
        heapq.heappush(self._alarms, (when, next(self._order), alarm))
        return alarm

    def next_due(self) -> float | None:
        """The next moment at which something happens; None: nothing ever will."""
        while self._alarms and self._alarms[0][2].callback is None:
            heapq.heappop(self._alarms)
        awaited = (one for one in self._alarms if one[2].callback and not one[2].is_idle)
        return min((when for when, _, _ in awaited), default=None)

    def move_to(self, when: float) -> None:
        """Let everything happen that is due until ``when``, in its order."""
        while self._alarms and self._alarms[0][0] <= when:
            due, _, alarm = heapq.heappop(self._alarms)
            self._now = max(self._now, due)
            callback, alarm.callback = alarm.callback, None
            if callback is not None:
                callback()
        self._now = max(self._now, when)
