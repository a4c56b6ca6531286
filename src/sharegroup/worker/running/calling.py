"""How a handler is called: on the loop, in a thread, or in another process.

The application opens and closes handlers that are classes; only those in other processes are
opened there, each in its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

from sharegroup.worker.declared.handler import HandlerKind, HandlerShape
from sharegroup.worker.declared.route import Route
from sharegroup.worker.running.level import LEVEL_MAX
from sharegroup.worker.running.processes import HandlerProcesses
from sharegroup.worker.running.threads import HandlerThreads


class Caller(Protocol):
    """Calls one route's handler."""

    call: Callable[..., Awaitable[Any]]
    """With the payload and, if the handler takes it, the record.  Cancelled, it ends when the
    handler has ended."""

    async def start(self) -> None:
        """Before the first call."""

    async def close(self) -> None:
        """After the last one."""


class OnTheLoop:
    """A coroutine function."""

    __slots__ = ("call",)

    def __init__(self, shape: HandlerShape) -> None:
        self.call: Callable[..., Awaitable[Any]] = shape.call

    async def start(self) -> None:
        """There is nothing to be started."""

    async def close(self) -> None:
        """There is nothing to be closed."""


class InThreads:
    """A plain function."""

    __slots__ = ("_threads", "call")

    def __init__(self, shape: HandlerShape, count: int) -> None:
        self._threads = HandlerThreads(count)
        self.call: Callable[..., Awaitable[Any]] = partial(self._threads.call, shape.call)

    async def start(self) -> None:
        """Threads are started when they are needed."""

    async def close(self) -> None:
        """Let the threads end."""
        self._threads.close()


def caller_for(route: Route) -> Caller:
    """The caller of a route's handler."""
    shape = route.shape
    if route.processes:
        return HandlerProcesses(shape, route.processes)
    if shape.kind is HandlerKind.COROUTINE:
        return OnTheLoop(shape)
    return InThreads(shape, LEVEL_MAX if route.concurrency == "auto" else route.concurrency)
