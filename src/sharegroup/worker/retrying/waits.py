"""Waiting for a moment of the calendar, or for something else to happen before."""

from __future__ import annotations

import asyncio

from sharegroup.worker.ports import Clock

LOOK_AGAIN_SECONDS = 60.0
"""The calendar's clock can be set, and goes on while a laptop sleeps; the other one does not."""


async def until(clock: Clock, wall_ms: int | None, changed: asyncio.Event) -> None:
    """Return at ``wall_ms`` (None: never), or when ``changed`` is set; now and then for nothing."""
    if changed.is_set():
        return
    if wall_ms is None:
        await changed.wait()
        return
    left_seconds = min((wall_ms - clock.wall_ms()) / 1000, LOOK_AGAIN_SECONDS)
    if left_seconds <= 0:
        return
    asleep = asyncio.ensure_future(clock.sleep_until(clock.now() + left_seconds))
    waiting = asyncio.ensure_future(changed.wait())
    try:
        await asyncio.wait((asleep, waiting), return_when=asyncio.FIRST_COMPLETED)
    finally:
        asleep.cancel()
        waiting.cancel()
