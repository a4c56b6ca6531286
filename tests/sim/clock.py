"""The broker's clock in the simulation: monotonic time is the loop's, the wall clock may jump."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.sim.loop import SimLoop

BOOT_MS = 5_000_000
"""The machine has been up for a while: nobody may rely on a clock that begins at 0."""

WALL_START_MS = 1_795_000_000_000


class SimClock:
    """Implements `sharegroup.broker.clock.Clock`."""

    __slots__ = ("_loop", "wall_offset_ms")

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.wall_offset_ms = 0
        """How far the wall clock is off; may change at any time, in both directions."""

    def now_ms(self) -> int:
        return BOOT_MS + self._loop.now_ms

    def wall_ms(self) -> int:
        return WALL_START_MS + self._loop.now_ms + self.wall_offset_ms

    def call_at_ms(self, when_ms: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_at((when_ms - BOOT_MS) / 1000, callback)
