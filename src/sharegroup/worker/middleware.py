"""Middleware: functions that wrap every handler of an application (``@app.middleware``).

    @app.middleware
    async def timed(call, proceed):
        began = time.monotonic()
        try:
            return await proceed(call)
        finally:
            print(call.route.shape.name, time.monotonic() - began)

The middleware that was declared first is the outermost.  It sees the record, the payload, which it
may replace, and the exceptions of the handler.  Its own exceptions count as raised by the handler.
It runs on the event loop, also for handlers that run in threads and processes.

If a middleware returns None, the handler's result stays.  The result of a batch handler says which
of its records failed.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sharegroup.worker.declarations.route import Route
from sharegroup.worker.records.record import Record


@dataclass(slots=True)
class Call:
    """One call of a handler."""

    route: Route
    payload: Any
    """The payload; for a batch handler the list of payloads."""
    records: tuple[Record, ...]
    """One record; for a batch handler one per payload, in the same order."""
    passed_over: bool = False
    """Whether the handler was not called, because its work was done before (``once_by``)."""

    @property
    def record(self) -> Record:
        """The record; for a batch handler the first one."""
        return self.records[0]


Proceed = Callable[[Call], Awaitable[Any]]
"""Calls the next inner middleware, or the handler."""
Middleware = Callable[[Call, Proceed], Awaitable[Any]]
EXPECTED = "expected `return await proceed(call)`"


def wrapped(handler: Proceed, around: Sequence[Middleware]) -> Proceed:
    """The handler wrapped in these middlewares; the handler itself if there are none.

    Built once for each route, so a call of the handler builds nothing.
    """
    for middleware in reversed(around):
        handler = _around(handler, middleware)
    return handler


def _around(handler: Proceed, middleware: Middleware) -> Proceed:
    name = getattr(middleware, "__qualname__", repr(middleware))

    async def call_it(call: Call) -> Any:
        inside: Any = None
        asked = begun = 0

        def proceed(call: Call) -> Awaitable[Any]:
            nonlocal asked
            asked += 1
            return begin(call)

        async def begin(call: Call) -> Any:
            nonlocal begun, inside
            begun += 1
            inside = await handler(call)
            return inside

        awaited = middleware(call, proceed)
        if not inspect.isawaitable(awaited):
            raise TypeError(f"middleware {name}: it is not a coroutine function; {EXPECTED}")
        returned = await awaited
        if asked > begun:
            # Without this check, a record whose handler never ran would be accepted.
            if inspect.iscoroutine(returned):
                returned.close()
            raise TypeError(
                f"middleware {name}: it calls proceed() without awaiting it; {EXPECTED}"
            )
        # A middleware that forgets to return loses no failures of a batch.
        return inside if returned is None else returned

    return call_it
