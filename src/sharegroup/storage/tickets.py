"""A promise that an append becomes durable.

``ticket = log.append(batch)`` gives the offsets at once; ``await ticket`` returns when the
batch is durable and raises `KafkaStorageError` when it is lost.  A ticket that is already
decided costs no future, and every waiter has a future of its own, so that cancelling one
waiter never cancels another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator

from sharegroup.errors import KafkaStorageError


class Ticket:
    """The offsets ``[base_offset, end_offset)`` of an append and what became of it."""

    __slots__ = ("_error", "_waiters", "base_offset", "done", "end_offset", "is_duplicate")

    def __init__(
        self, base_offset: int, end_offset: int, *, done: bool = False, is_duplicate: bool = False
    ) -> None:
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.done = done
        """Decided: durable, or failed."""
        self.is_duplicate = is_duplicate
        """The batch was in the log before; these are its offsets there."""
        self._error: str | None = None
        self._waiters: list[asyncio.Future[None]] | None = None

    @property
    def failed(self) -> bool:
        return self._error is not None

    def __await__(self) -> Generator[asyncio.Future[None], None, None]:
        if not self.done:
            waiter = asyncio.get_running_loop().create_future()
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(waiter)
            yield from waiter
        self.check()

    def check(self) -> None:
        """Raise KafkaStorageError if the append failed."""
        if self._error is not None:
            raise KafkaStorageError(self._error)

    def settle(self, error: str | None = None) -> None:
        """Decide the ticket: durable, or failed with the text ``error``."""
        assert not self.done
        self.done = True
        self._error = error
        for waiter in self._waiters or ():
            if not waiter.done():
                waiter.set_result(None)
        self._waiters = None


class TicketQueue:
    """The undecided tickets of one file or log, oldest first."""

    __slots__ = ("_tickets",)

    def __init__(self) -> None:
        self._tickets: deque[Ticket] = deque()

    def __len__(self) -> int:
        return len(self._tickets)

    def add(self, ticket: Ticket) -> None:
        self._tickets.append(ticket)

    def settle(self, durable_end: int) -> None:
        """Everything before ``durable_end`` is durable."""
        tickets = self._tickets
        while tickets and tickets[0].end_offset <= durable_end:
            tickets.popleft().settle()

    def fail(self, error: str) -> None:
        """What is not durable by now never will be."""
        while self._tickets:
            self._tickets.popleft().settle(error)
