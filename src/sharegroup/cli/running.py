"""Runs long verbs: their event loop, and how signals stop them.

The first SIGINT, SIGTERM or SIGHUP asks the verb to stop: it finishes and acknowledges the
records in progress. The second signal cancels that work.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop(asyncio.Event):
    """Set when the verb should end; ``code`` is then its exit code, 128 and the signal."""

    code = 0


def run(work: Callable[[Stop], Coroutine[Any, Any, T]]) -> T:
    """Run ``work`` and return its result; signals set the event that it gets, so it ends early."""
    # Imported here because the verbs with a single request start sooner without it.
    import uvloop

    async def with_signals() -> T:
        stop = Stop()
        task = asyncio.ensure_future(work(stop))
        loop = asyncio.get_running_loop()

        def received(number: signal.Signals) -> None:
            if stop.is_set():
                task.cancel()
            stop.code = 128 + number
            stop.set()

        for number in SIGNALS:
            loop.add_signal_handler(number, received, number)
        try:
            return await task
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    return uvloop.run(with_signals())
