"""Signals that a handler run or a write has ended, so that there may be room for more records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class RoomSignal:
    """An event for tasks that wait for room or for the end of handlers."""

    __slots__ = ("_change", "also", "is_set")

    def __init__(self) -> None:
        self._change = asyncio.Event()
        self.also: asyncio.Event | None = None
        """Another event to set: that of the record that runs alone, which waits for all groups."""
        self.is_set = False
        """Whether both events are set since the last wait, so that the hot path skips `notify`."""

    def notify(self) -> None:
        """Wake the waiting tasks."""
        self.is_set = True
        self._change.set()
        if self.also is not None:
            self.also.set()

    async def wait(self) -> None:
        """Wait for the next `notify`."""
        await self._next_change().wait()

    async def wait_while(
        self, is_busy: Callable[[], bool], *limits: Coroutine[Any, Any, object]
    ) -> None:
        """Wait until a condition, looked at after each `notify`, is false, or a limit has ended."""
        ends = [asyncio.ensure_future(limit) for limit in limits]
        try:
            while is_busy() and not any(end.done() for end in ends):
                change = asyncio.ensure_future(self._next_change().wait())
                try:
                    await asyncio.wait((change, *ends), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    change.cancel()
        finally:
            for end in ends:
                end.cancel()

    def _next_change(self) -> asyncio.Event:
        """Return the event that the next `notify` sets, and that nothing clears.

        A task begins to wait for it later, when others may wait for a change after that one.
        """
        self.is_set = False
        if self._change.is_set():
            self._change = asyncio.Event()
        return self._change
