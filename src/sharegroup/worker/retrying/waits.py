"""Waits until a time of the wall clock or until an event is set."""

from __future__ import annotations

import asyncio

from sharegroup.worker.ports import WorkerClock

LOOK_AGAIN_SECONDS = 60.0
"""The maximum time between two looks at the wall clock.

The wall clock can be set, and it continues while a laptop sleeps; the monotonic clock does not.
"""


async def until(clock: WorkerClock, wall_ms: int | None, changed: asyncio.Event) -> None:
    """Return at ``wall_ms`` (None: never) or when ``changed`` is set.

    It may also return earlier: at the latest after `LOOK_AGAIN_SECONDS` if ``wall_ms`` is given.
    """
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
