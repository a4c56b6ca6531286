"""A time limit by the clock of an application, which `App.test` moves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from sharegroup.worker.ports import WorkerClock

T = TypeVar("T")


class TimeIsOver(Exception):
    """The awaited object was not done within the time; it was cancelled."""


async def within(seconds: float, clock: WorkerClock, awaited: Awaitable[T]) -> T:
    """Return or raise what the awaited object does; raises TimeIsOver after ``seconds``."""
    work = asyncio.ensure_future(awaited)
    timer = asyncio.ensure_future(clock.sleep_until(clock.now() + seconds))
    tasks: tuple[asyncio.Future[object], ...] = (work, timer)  # type: ignore[assignment]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        raise TimeIsOver
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        if not work.cancelled():
            work.exception()  # An error of its end is that of an attempt that was given up.
