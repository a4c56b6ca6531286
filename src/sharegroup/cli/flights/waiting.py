"""Waiting for something that must come, with a limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

LOOK_SECONDS = 0.05
START_SECONDS_MAX = 30.0


class Stalled(Exception):
    """Something that was waited for did not come."""


async def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Return when the condition holds; Stalled when it does not in time."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise Stalled(f"waited {START_SECONDS_MAX} s for {what}")
        await asyncio.sleep(LOOK_SECONDS)
