"""Signals that a handler run or a write has ended, so that there may be room for more records."""

from __future__ import annotations

import asyncio


class RoomSignal:
    """An event for tasks that wait for room or for the end of handlers."""

    __slots__ = ("also", "changed", "is_set")

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.also: asyncio.Event | None = None
        """Another event to set: that of the record that runs alone, which waits for all groups."""
        self.is_set = False
        """Whether both events are set since the last wait, so that the hot path skips `notify`."""

    def notify(self) -> None:
        """Wake the waiting tasks."""
        self.is_set = True
        self.changed.set()
        if self.also is not None:
            self.also.set()

    async def wait(self) -> None:
        """Wait for the next `notify`."""
        self.clear()
        await self.changed.wait()

    def clear(self) -> None:
        """Begin to wait for the next `notify`."""
        self.is_set = False
        self.changed.clear()
