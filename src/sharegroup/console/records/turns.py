"""Lets other requests have their turn while one goes through many records."""

from __future__ import annotations

import asyncio
import time

TURN_SECONDS = 0.02
"""How long one request computes before others have a turn."""


class Turns:
    """The turns of one request."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = time.monotonic() + TURN_SECONDS

    async def give(self) -> None:
        """Let others have a turn if this one has lasted long enough."""
        if time.monotonic() >= self._until:
            await asyncio.sleep(0)
            self._until = time.monotonic() + TURN_SECONDS
