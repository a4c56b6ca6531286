"""Priorities of tasks: three topics, and the order in which the tasks in a process get their turn.

A priority is a whole number from -100 to 100.  Positive ones go to the topic ``high``, negative
ones to ``low``, so a backlog of the lowest does not keep a worker from the highest: it takes
records of all three.  Of the tasks that it has taken, those with the highest priority run first;
every `FAIR_EVERY`-th turn goes to the one that has waited longest, so none waits for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum

FAIR_EVERY = 5


class Level(StrEnum):
    """A level of priority; each has a topic for each queue."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


def level_of(priority: int) -> Level:
    """Return the level of a priority."""
    if priority > 0:
        return Level.HIGH
    return Level.LOW if priority < 0 else Level.NORMAL


@dataclass(slots=True, eq=False)
class _Waiting:
    priority: int
    turn: asyncio.Future[None]


class PriorityGate:
    """Lets ``slots`` tasks run at the same time; the others wait by their priority."""

    __slots__ = ("_free", "_turns", "_waiting")

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._turns = 0
        self._waiting: list[_Waiting] = []
        """In the order of their arrival; no more than the handlers of the process."""

    @asynccontextmanager
    async def turn(self, priority: int) -> AsyncIterator[None]:
        """Wait for a turn, and hold it during the block."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(priority)
        try:
            yield
        finally:
            self._leave()

    async def _wait(self, priority: int) -> None:
        waiting = _Waiting(priority, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        try:
            await waiting.turn
        except asyncio.CancelledError:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            else:
                self._leave()  # It was given its turn and cancelled at the same time.
            raise

    def _leave(self) -> None:
        # Of several that are cancelled together, some have not left the list yet.
        waiting_tasks = [waiting for waiting in self._waiting if not waiting.turn.done()]
        if not waiting_tasks:
            self._free += 1
            return
        self._turns += 1
        # `max` returns the first of equals, which has waited longest.
        chosen = (
            waiting_tasks[0]
            if self._turns % FAIR_EVERY == 0
            else max(waiting_tasks, key=lambda waiting: waiting.priority)
        )
        self._waiting.remove(chosen)
        chosen.turn.set_result(None)
