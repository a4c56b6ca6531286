"""Tickets: awaitables that end when an append is durable.

``ticket = log.append(batch)`` has the offsets at once.  ``await ticket`` returns when the batch is
durable and raises `KafkaStorageError` if it is lost.  Awaiting a ticket that is done creates no
future.  Every waiter has its own future, so cancelling one waiter never cancels another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator

from sharegroup.errors import KafkaStorageError


class Ticket:
    """An awaitable for the append of the offsets ``[base_offset, end_offset)``, with its result."""

    __slots__ = ("_error", "_waiters", "base_offset", "done", "end_offset", "is_duplicate")

    def __init__(
        self, base_offset: int, end_offset: int, *, done: bool = False, is_duplicate: bool = False
    ) -> None:
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.done = done
        """Whether the append is durable or has failed."""
        self.is_duplicate = is_duplicate
        """Whether the batch was already in the log; the offsets are those of the first append."""
        self._error: str | None = None
        self._waiters: list[asyncio.Future[None]] | None = None

    @property
    def failed(self) -> bool:
        """Whether the append has failed; False while it is not done."""
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
        """Mark the append as durable, or as failed with the text ``error``; wake the waiters."""
        assert not self.done
        self.done = True
        self._error = error
        for waiter in self._waiters or ():
            if not waiter.done():
                waiter.set_result(None)
        self._waiters = None


class TicketQueue:
    """The tickets of one file or log that are not done, oldest first."""

    __slots__ = ("_tickets",)

    def __init__(self) -> None:
        self._tickets: deque[Ticket] = deque()

    def __len__(self) -> int:
        return len(self._tickets)

    def add(self, ticket: Ticket) -> None:
        """Add a ticket; it is settled only after those added before it."""
        self._tickets.append(ticket)

    def settle(self, durable_end: int) -> None:
        """Settle the tickets of appends that end by ``durable_end``: they are durable."""
        tickets = self._tickets
        while tickets and tickets[0].end_offset <= durable_end:
            tickets.popleft().settle()

    def fail(self, error: str) -> None:
        """Fail all tickets with the text ``error``."""
        while self._tickets:
            self._tickets.popleft().settle(error)
