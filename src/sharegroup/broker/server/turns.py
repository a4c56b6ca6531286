"""Gives turns to connections that have more requests than can be served at once.

All these connections share about 5 ms of each iteration of the event loop, in a round.  Without
that limit, fifty peers that each send thousands of requests would take fifty turns before the loop
polls its sockets again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

ROUND_SECONDS = 0.005
"""The time that all connections in a round may take in one iteration of the event loop."""

CROWDED_TURN_SECONDS = 0.001
"""The time that one connection may take while others wait for their turns."""


class TurnTaker(Protocol):
    """A connection with requests that wait for a turn."""

    def take_turn(self) -> None:
        """Serve requests for about `Turns.turn_seconds`."""


class Turns:
    """The connections that wait for their turns; ``clock`` counts seconds, only to compare them."""

    __slots__ = ("_is_due", "_waiting", "clock", "turn_seconds")

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._waiting: dict[TurnTaker, None] = {}
        self._is_due = False
        self.turn_seconds = ROUND_SECONDS
        """The time that a connection may take now."""

    def add(self, connection: TurnTaker) -> None:
        """Give the connection a turn after those that already wait."""
        self._waiting[connection] = None
        # Shorter turns while others wait, so that several connections have theirs in one round.
        if len(self._waiting) > 1:
            self.turn_seconds = CROWDED_TURN_SECONDS
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._take_round)

    def remove(self, connection: TurnTaker) -> None:
        """Remove a connection that is closed."""
        self._waiting.pop(connection, None)

    def _take_round(self) -> None:
        """Give turns until all waiting connections had one or the round's time is over."""
        self._is_due = False
        end = self.clock() + ROUND_SECONDS
        # At most one turn each: a connection that needs another is behind the others again.
        for _ in range(len(self._waiting)):
            connection = next(iter(self._waiting), None)
            if connection is None:
                break
            del self._waiting[connection]
            connection.take_turn()
            if self.clock() >= end:
                break
        if len(self._waiting) <= 1:
            self.turn_seconds = ROUND_SECONDS
        if self._waiting and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._take_round)
