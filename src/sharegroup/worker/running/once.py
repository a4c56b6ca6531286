"""Runs a handler once for each identity: the option ``once_by``.

The mark of the identity and what the handler writes through the store's connection are committed
together, so a record whose handler has run is passed over when it is delivered again.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from sharegroup.worker.declarations.route import Route
from sharegroup.worker.middleware import Call, Middleware, Proceed
from sharegroup.worker.stores.store import TransactionalStore


class _NotDone(Exception):
    """Rolls back the transaction of a handler that returned and decided against its record."""


def run_once(route: Route, store: TransactionalStore) -> Middleware:
    """The innermost middleware of a route with ``once_by``."""
    once_by, keep_seconds = route.once_by, route.once_seconds
    assert once_by is not None, "the route has the option"
    prefix = f"once/{route.group}/{quote(route.shape.name, safe='')}/"

    async def in_transaction(call: Call, proceed: Proceed) -> Any:
        identity: object = once_by(call.payload)  # At run time it may return anything.
        if not isinstance(identity, str | int) or isinstance(identity, bool):
            raise TypeError(
                f"once_by: expected a text or an int of the payload, got {identity!r:.80}"
            )
        if identity == "":
            # All records without an identity would share a mark: only the first one would run.
            raise ValueError("once_by: got '' for this payload; expected a text that is not empty")
        name = prefix + quote(str(identity), safe=" :+@")
        try:
            async with store.once(name, keep_seconds=keep_seconds) as is_new:
                if not is_new:
                    call.passed_over = True
                    return None
                result = await proceed(call)
                if call.record.decision not in (None, "accept"):
                    raise _NotDone  # noqa: TRY301  Only an exception rolls back.
                return result
        except _NotDone:
            return None

    return in_transaction
