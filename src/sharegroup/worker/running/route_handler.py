"""Decodes the values of a route's records and calls its handler, with its middleware around."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from sharegroup.worker.declarations.route import Route
from sharegroup.worker.middleware import Call, Middleware, Proceed, wrapped
from sharegroup.worker.running.calling import Caller, caller_for


class RouteHandler:
    """The handler of a route, as slots call it.

    The fields are read for every record, so a slot calls the handler without a call in between.
    """

    __slots__ = ("_caller", "around", "call", "decode", "route", "takes_record")

    def __init__(self, route: Route, middlewares: Sequence[Middleware] = ()) -> None:
        self._caller: Caller = caller_for(route)
        self.route = route
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
