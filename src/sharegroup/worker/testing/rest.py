"""Waits until the application under test is at rest, so the test may advance virtual time.

Handlers and the worker's tasks run on the event loop of the test.  They are at rest if no task is
ready: each one waits for the clock, for a record, or for an event outside of the test.  Such an
event can come from a thread or a socket and cannot be detected.  So running handlers get some real
time (`patience_seconds`).  A handler that makes no progress in that time is assumed to wait for the
clock, and is not waited for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable

TURNS_MAX = 100_000
"""Turns of the event loop after which a program is assumed never to come to rest."""
QUIET_TURNS = 50
"""Idle turns to wait on a loop that does not show ready tasks, such as uvloop.

No chain of tasks is longer than that."""
LOOK_SECONDS = 0.001


class NeverAtRest(Exception):
    """Tasks of the event loop wake each other forever."""


async def drained() -> None:
    """Wait until every task of this event loop waits for something."""
    ready = getattr(asyncio.get_running_loop(), "_ready", None)
    quiet = 0
    for _ in range(TURNS_MAX):
        await asyncio.sleep(0)
        quiet = 0 if ready else quiet + 1
        if quiet > (QUIET_TURNS if ready is None else 1):
            return
    raise NeverAtRest(f"after {TURNS_MAX} turns of the event loop some task is still ready")


class Rest:
    """Waits for rest, and remembers handlers that are not waited for again."""

    __slots__ = ("_given_up", "_patience_seconds", "_running")

    def __init__(self, running: Callable[[], frozenset[Hashable]], patience_seconds: float) -> None:
        self._running = running
        self._patience_seconds = patience_seconds
        self._given_up: frozenset[Hashable] = frozenset()

    async def come(self) -> None:
        """Wait until every task waits for the clock, a record, or an event outside of the test."""
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
