"""Signals that a handler run or a write has ended, so that there may be room for more records."""

from __future__ import annotations

import asyncio


class RoomSignal:
    """An event for tasks that wait for room or for the end of handlers."""

    __slots__ = ("also", "changed", "waiters")

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.also: asyncio.Event | None = None
        """Another event to set: that of the record that runs alone, which waits for all groups."""
        self.waiters = 0
        """The number of waiting tasks.  Without one, the hot path skips `notify`."""

    def notify(self) -> None:
        """Wake the waiting tasks."""
        self.changed.set()
        if self.also is not None:
            self.also.set()

    async def wait(self) -> None:
        """Wait for the next `notify`."""
        self.waiters += 1
        self.changed.clear()
        try:
            await self.changed.wait()
        finally:
            self.waiters -= 1
