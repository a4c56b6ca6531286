"""Decodes the values of a route's records and calls its handler, with its middleware around."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol

from sharegroup.worker.declarations.handler import HandlerKind, HandlerShape
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.executors.process_sends import Sending
from sharegroup.worker.executors.processes import HandlerProcesses
from sharegroup.worker.executors.threads import HandlerThreads
from sharegroup.worker.middleware import Call, Middleware, Proceed, wrapped
from sharegroup.worker.running.level import LEVEL_MAX


class RouteHandler:
    """The handler of a route, as slots call it.

    The fields are read for every record, so a slot calls the handler without a call in between.
    """

    __slots__ = ("_caller", "around", "call", "decode", "route", "takes_record")

    def __init__(
        self, route: Route, middlewares: Sequence[Middleware] = (), sending: Sending | None = None
    ) -> None:
        self._caller: Caller = caller_for(route, sending)
        self.route = route
        # The caller's own function: a method in between would cost a call for every record.
        self.call: Callable[..., Awaitable[Any]] = self._caller.call
        self.takes_record = route.shape.takes_record
        self.around: Proceed | None = wrapped(self._innermost, middlewares) if middlewares else None
        """The middleware around the call of the handler; None if there is no middleware."""
        self.decode: Callable[[bytes | None], Any] | None = (
            None if route.codec.may_block else route.codec.decode
        )
        """Decodes a value; None if the codec may block and must run in a thread (`read`)."""

    async def start(self) -> None:
        """Start the processes if the handler runs in processes."""
        await self._caller.start()

    async def close(self) -> None:
        """End the threads and processes of the handler."""
        await self._caller.close()

    async def read(self, value: bytes | None) -> Any:
        """Decode a value; in a thread if the codec may block."""
        if self.decode is not None:
            return self.decode(value)
        return await asyncio.to_thread(self.route.codec.decode, value)

    async def _innermost(self, call: Call) -> Any:
        """Call the handler; the innermost function of the middleware."""
        if not self.takes_record:
            return await self.call(call.payload)
        is_batch = self.route.shape.is_batch
        return await self.call(call.payload, list(call.records) if is_batch else call.record)


# A caller calls the handler on the event loop, in a thread, or in another process.
#
# The application opens and closes handlers that are classes. Handlers in other processes are opened
# and closed there, once in each process.


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


def caller_for(route: Route, sending: Sending | None = None) -> Caller:
    """Return the caller of a route's handler; with ``sending``, it may send in other processes."""
    shape = route.shape
    if route.processes:
        return HandlerProcesses(shape, route.processes, sending=sending)
    if shape.kind is HandlerKind.COROUTINE:
        return OnTheLoop(shape)
    return InThreads(shape, LEVEL_MAX if route.concurrency == "auto" else route.concurrency)
