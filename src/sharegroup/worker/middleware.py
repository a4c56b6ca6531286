"""Around every handler of an application: ``@app.middleware``.

    @app.middleware
    async def timed(call, proceed):
        began = time.monotonic()
        try:
            return await proceed(call)
        finally:
            print(call.route.shape.name, time.monotonic() - began)

The first that was declared is the outermost.  It sees the payload, which it may replace, the
record, and whatever the handler raises; it runs on the loop, also around handlers in threads and
processes, and what it raises counts as raised by the handler.  One that returns nothing leaves
what the handler returned as it is: of a batch handler that says which of its records failed.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sharegroup.worker.declared.route import Route
from sharegroup.worker.records.record import Record


@dataclass(slots=True)
class Call:
    """One call of a handler."""

    route: Route
    payload: Any
    """Of a batch handler the list of them."""
    records: tuple[Record, ...]
    """One; of a batch handler as many as payloads, in their order."""

    @property
    def record(self) -> Record:
        """The record; of a batch handler the first."""
        return self.records[0]


Proceed = Callable[[Call], Awaitable[Any]]
"""What is inside of a middleware: the next one, or the handler."""
Middleware = Callable[[Call, Proceed], Awaitable[Any]]
EXPECTED = "expected `return await proceed(call)`"


def wrapped(handler: Proceed, around: Sequence[Middleware]) -> Proceed:
    """The handler with all of these around it; itself where there are none.

    Made once for a route, so that nothing is built for a call.
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
            raise TypeError(f"middleware {name}: it is no coroutine function; {EXPECTED}")
        returned = await awaited
        if asked > begun:
            # Else a record would be accepted whose handler never ran.
            if inspect.iscoroutine(returned):
                returned.close()
            raise TypeError(f"middleware {name}: nobody awaits what it calls; {EXPECTED}")
        return inside if returned is None else returned

    return call_it
