"""Running a verb that goes on for a while: its event loop, and how a signal ends it.

The first SIGINT, SIGTERM or SIGHUP asks it to come to an end: what is under way is finished
and acknowledged.  The second takes that away from it.
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
    """What ``work`` returns; it ends early when the event it is given is set."""
    import uvloop  # Here: the verbs that only ask a question do without.

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
