"""What the blocking clients have in common: each wraps the asyncio client of its name.

A method of the asyncio client becomes one of the blocking client in a line; signature, types
and documentation are the asyncio method's own:

    create_topics = blocking(client.AdminClient.create_topics)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from sharegroup.client.sync.loop_thread import LOOP_THREAD

P = ParamSpec("P")
R = TypeVar("R")


class Measured(Protocol):
    """Any of the asyncio clients."""

    def metrics(self) -> dict[str, dict[str, float]]: ...


Client = TypeVar("Client", bound=Measured)


class BlockingClient(Generic[Client]):
    """Holds an asyncio client and the thread that it runs in."""

    def __init__(self, client: Client, client_id: str) -> None:
        self.client_id = client_id
        """As the brokers know this client."""
        self._client = client
        self._open = True
        LOOP_THREAD.enter()

    def __enter__(self) -> Self:
        return self

    def metrics(self) -> dict[str, dict[str, float]]:
        """What this client counted and measured, by Kafka's groups and names."""
        with LOOP_THREAD.lock:
            return self._client.metrics()

    def _end(self, closing: Coroutine[Any, Any, R]) -> R:
        """Close the asyncio client, and let go of the thread; once."""
        try:
            return LOOP_THREAD.run(closing)
        finally:
            if self._open:
                self._open = False
                LOOP_THREAD.leave()


def blocking(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[BlockingClient[Client], P], R]:
    """The coroutine method as one that waits for its result."""

    @functools.wraps(method)
    def call(self: BlockingClient[Client], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return LOOP_THREAD.run(method(self._client, *args, **kwargs))

    return call


def plain(
    method: Callable[Concatenate[Client, P], R],
) -> Callable[Concatenate[BlockingClient[Client], P], R]:
    """The method that never awaits, called here and now."""

    @functools.wraps(method)
    def call(self: BlockingClient[Client], /, *args: P.args, **kwargs: P.kwargs) -> R:
        with LOOP_THREAD.lock:
            result = method(self._client, *args, **kwargs)
        LOOP_THREAD.wake()
        return result

    return call


ExceptionType = type[BaseException] | None
Trace = TracebackType | None
