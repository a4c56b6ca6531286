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
processes, and what it raises counts as raised by the handler.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sharegroup.worker.declared.route import Route
from sharegroup.worker.record import Record


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


def wrapped(handler: Proceed, around: Sequence[Middleware]) -> Proceed:
    """The handler with all of these around it; itself where there are none.

    Made once for a route, so that nothing is built for a call.
    """
    for middleware in reversed(around):
        handler = _around(handler, middleware)
    return handler


def _around(handler: Proceed, middleware: Middleware) -> Proceed:
    def call_it(call: Call) -> Awaitable[Any]:
        return middleware(call, handler)

    return call_it
