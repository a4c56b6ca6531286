"""A `WorkerClock` that is the event loop's: on virtual time nothing is waited for."""

from __future__ import annotations

import asyncio

WALL_MS = 1_767_225_600_000


class LoopClock:
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        return WALL_MS + round(self.now() * 1000)

    async def sleep_until(self, when: float) -> None:
        await asyncio.sleep(when - self.now())
