"""Waits for a condition, with a time limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

LOOK_SECONDS = 0.05
START_SECONDS_MAX = 30.0


class Stalled(Exception):
    """A condition was not met, or there was no progress, within the time limit."""


async def wait_for(condition: Callable[[], bool], expected: str) -> None:
    """Wait until the condition holds; raise Stalled after `START_SECONDS_MAX`."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise Stalled(f"waited {START_SECONDS_MAX} s for {expected}")
        await asyncio.sleep(LOOK_SECONDS)
