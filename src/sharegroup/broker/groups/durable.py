"""Results that are available when the records of their decision are durable."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Generic, TypeVar

from sharegroup.broker.groups.group_log import as_a_coordinator
from sharegroup.storage.sync.tickets import Ticket

T = TypeVar("T")


class Durable(Generic[T]):
    """An awaitable result that is available when a ticket is durable.

    Unlike a coroutine, it may be dropped without being awaited.
    """

    __slots__ = ("_result", "_ticket")

    def __init__(self, ticket: Ticket | None, result: T) -> None:
        self._ticket = ticket
        self._result = result

    def __await__(self) -> Generator[Any, None, T]:
        if self._ticket is not None:
            with as_a_coordinator():
                yield from self._ticket.__await__()
        return self._result
