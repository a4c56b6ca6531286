"""Waits for several coroutines, or for an event with a limit, and leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from sharegroup.errors import first_error

Result = TypeVar("Result")


async def event_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for an event; return False if it has not come after so many seconds.  None: no limit."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def together(coroutines: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Run coroutines at the same time, and return their results in order.

    Unlike `asyncio.gather`, it leaves none behind: the first error cancels the others, and is
    raised.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except BaseExceptionGroup as errors:
        raise first_error(errors) from None
    return [task.result() for task in tasks]
