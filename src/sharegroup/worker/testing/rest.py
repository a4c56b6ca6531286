"""Waiting until nothing can happen any more, unless time passes.

Handlers and the worker's own tasks run on the test's event loop.  They are at rest when the loop
has nothing ready: each waits for the clock, for a record, or for something outside of the test.
What that is nobody can know, a thread or a socket, so the handlers that run are given a little
real time (`patience_seconds`).  One that doesn't use it waits for the clock, as far as anybody
can tell, and is not waited for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable

TURNS_MAX = 100_000
"""Turns of the event loop; a program that is busy for longer never comes to rest."""
QUIET_TURNS = 50
"""Enough on a loop that doesn't tell what is ready, as uvloop: that deep no chain of tasks is."""
LOOK_SECONDS = 0.001


class NeverAtRest(Exception):
    """Tasks wake each other for ever."""


async def drained() -> None:
    """Return when every task of this event loop waits for something."""
    ready = getattr(asyncio.get_running_loop(), "_ready", None)
    quiet = 0
    for _ in range(TURNS_MAX):
        await asyncio.sleep(0)
        quiet = 0 if ready else quiet + 1
        if quiet > (QUIET_TURNS if ready is None else 1):
            return
    raise NeverAtRest(f"after {TURNS_MAX} turns of the event loop some task is still ready")


class Rest:
    """Waits for rest, and remembers which handlers it need not wait for."""

    __slots__ = ("_given_up", "_patience_seconds", "_running")

    def __init__(self, running: Callable[[], frozenset[Hashable]], patience_seconds: float) -> None:
        self._running = running
        self._patience_seconds = patience_seconds
        self._given_up: frozenset[Hashable] = frozenset()

    async def come(self) -> None:
        """Return when nothing can happen without time."""
        loop = asyncio.get_running_loop()
        await drained()
        running = self._running()
        until = loop.time() + self._patience_seconds
        while running - self._given_up:
            if loop.time() > until:
                self._given_up = running
                return
            await asyncio.sleep(LOOK_SECONDS)
            await drained()
            if (now := self._running()) != running:
                running, until = now, loop.time() + self._patience_seconds
