"""A time limit by the event loop's clock, with an error of its own.

So it is told apart from a TimeoutError of the limited code.  `results.time_limit` has a limit by
the clock of an application, which `App.test` moves.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


@asynccontextmanager
async def time_limit(
    limit_seconds: float | None, late: Callable[[], Exception]
) -> AsyncIterator[None]:
    """Limit the time of a block: cancel it, and raise ``late()``, after so many seconds.

    None is no limit.  A TimeoutError that the block raises itself stays as it is.
    """
    timeout = asyncio.timeout(limit_seconds)
    try:
        async with timeout:
            yield
    except TimeoutError as error:
        if not timeout.expired():
            raise
        raise late() from error
