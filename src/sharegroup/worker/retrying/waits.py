"""Waits until a time or until an event is set."""

from __future__ import annotations

import asyncio

from sharegroup.worker.ports import WorkerClock


async def until(clock: WorkerClock, when: float | None, changed: asyncio.Event) -> None:
    """Return at ``when``, in seconds of the clock (None: never), or when ``changed`` is set."""
    if changed.is_set():
        return
    if when is None:
        await changed.wait()
        return
    asleep = asyncio.ensure_future(clock.sleep_until(when))
    waiting = asyncio.ensure_future(changed.wait())
    try:
        await asyncio.wait((asleep, waiting), return_when=asyncio.FIRST_COMPLETED)
    finally:
        asleep.cancel()
        waiting.cancel()
