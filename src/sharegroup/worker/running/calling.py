"""Calls handlers: on the event loop, in a thread, or in another process.

The application opens and closes handlers that are classes.  Handlers in other processes are
opened and closed there, once in each process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

from sharegroup.worker.declarations.handler import HandlerKind, HandlerShape
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.running.level import LEVEL_MAX
from sharegroup.worker.running.processes import HandlerProcesses
from sharegroup.worker.running.threads import HandlerThreads


class Caller(Protocol):
    """Calls one route's handler."""

    call: Callable[..., Awaitable[Any]]
    """Calls the handler with the payload and, if the handler takes it, the record.

    If it is cancelled, it returns only after the handler has ended.
    """

    async def start(self) -> None:
        """Prepare for calls; awaited before the first call."""

    async def close(self) -> None:
        """Release all resources; awaited after the last call."""


class OnTheLoop:
    """Calls a coroutine function on the event loop."""

    __slots__ = ("call",)

    def __init__(self, shape: HandlerShape) -> None:
        self.call: Callable[..., Awaitable[Any]] = shape.call

    async def start(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""


class InThreads:
    """Calls a synchronous function in a thread."""

    __slots__ = ("_threads", "call")

    def __init__(self, shape: HandlerShape, count: int) -> None:
        self._threads = HandlerThreads(count)
        self.call: Callable[..., Awaitable[Any]] = partial(self._threads.call, shape.call)

    async def start(self) -> None:
        """Do nothing; each thread is started when it is first needed."""

    async def close(self) -> None:
        """Let each thread end after its current call."""
        self._threads.close()


def caller_for(route: Route) -> Caller:
    """Return the caller of a route's handler."""
    shape = route.shape
    if route.processes:
        return HandlerProcesses(shape, route.processes)
    if shape.kind is HandlerKind.COROUTINE:
        return OnTheLoop(shape)
    return InThreads(shape, LEVEL_MAX if route.concurrency == "auto" else route.concurrency)
