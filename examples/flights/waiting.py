"""Waits for a condition, with a time limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

LOOK_SECONDS = 0.05
# For what hangs, not for what is slow: six workers that start together without bytecode, on two
# cores with other work, took more than half a minute.
START_SECONDS_MAX = 180.0


class Stalled(Exception):
    """A condition was not met, or there was no progress, within the time limit."""


async def wait_for(condition: Callable[[], bool], expected: str) -> None:
    """Wait until the condition holds; raise Stalled after `START_SECONDS_MAX`."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise Stalled(f"waited {START_SECONDS_MAX:.0f} s for {expected}")
        await asyncio.sleep(LOOK_SECONDS)
