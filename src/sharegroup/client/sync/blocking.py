"""Common parts of the blocking clients; each wraps the asyncio client of the same name.

One line makes a blocking method from a method of the asyncio client, with the same signature,
types and documentation:

    create_topics = blocking(client.AdminClient.create_topics)
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from sharegroup.client.loop_thread import LOOP_THREAD
from sharegroup.client.net import telemetry

P = ParamSpec("P")
R = TypeVar("R")
Client = TypeVar("Client", bound=telemetry.Measured, covariant=True)


def blocking(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[BlockingClient[Client], P], R]:
    """Turn a coroutine method of the asyncio client into a method that waits for its result."""

    @functools.wraps(method)
    def call(self: BlockingClient[Client], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return LOOP_THREAD.run(method(self._client, *args, **kwargs))

    return call


def plain(
    method: Callable[Concatenate[Client, P], R],
) -> Callable[Concatenate[BlockingClient[Client], P], R]:
    """Wrap a plain method of the asyncio client, which runs in the calling thread."""

    @functools.wraps(method)
    def call(self: BlockingClient[Client], /, *args: P.args, **kwargs: P.kwargs) -> R:
        with LOOP_THREAD.lock:
            result = method(self._client, *args, **kwargs)
        LOOP_THREAD.wake()
        return result

    return call


class BlockingClient(Generic[Client]):
    """Base class that runs an asyncio client in the shared event loop thread."""

    def __init__(self, client: Client, client_id: str) -> None:
        self.client_id = client_id
        """The client id in the brokers' logs and metrics."""
        self._client = client
        self._open = True
        self._claim = threading.Lock()
        LOOP_THREAD.enter()

    def __enter__(self) -> Self:
        return self

    metrics = plain(telemetry.metrics)
    client_instance_id = blocking(telemetry.client_instance_id)

    def _claims_close(self) -> bool:
        """Whether the caller has to close the client, which only the first one does.

        Claimed before anything is closed: a second thread would otherwise leave the loop thread,
        and cancel the end of the client for which the first one waits.
        """
        LOOP_THREAD.check_caller()
        with self._claim:
            is_open, self._open = self._open, False
        return is_open

    def _end(self, closing: Coroutine[Any, Any, R]) -> R:
        """Close the asyncio client and leave the loop thread, after `_claims_close`."""
        try:
            return LOOP_THREAD.run(closing)
        finally:
            LOOP_THREAD.leave()


ExceptionType = type[BaseException] | None
Trace = TracebackType | None
