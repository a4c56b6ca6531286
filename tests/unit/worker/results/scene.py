"""The orders of the tests of results: their types, and a handler that bills them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from sharegroup.worker import App, MemoryStore, Record, Reject


@dataclass
class Order:
    id: int
    total: int = 0


@dataclass
class Invoice:
    order: int
    cents: int


KINDS = pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("share_group", {}),
        ("consumer_group", {"order_by": "key"}),
        ("consumer_group", {"exactly_once": True}),
    ],
)
"""The kinds of groups whose handlers return values."""


def billing(kind: str, **options: Any) -> tuple[App, Any]:
    """An application with the handler ``bill``; errors have a 42, which the application redacts.

    A negative total is rejected, a total of 1 fails once, one of 2 always, and one of 0 has no
    invoice.
    """
    app = App("orders-service", store=MemoryStore(), redact=lambda text: text.replace("42", "**"))

    @getattr(app, kind)("billing", topics="orders", **options)
    async def bill(order: Order, record: Record) -> Invoice | None:
        if order.total < 0:
            raise Reject("negative total 42")
        if order.total == 1 and record.attempt == 1:
            raise ConnectionError("later 42")
        if order.total == 2:
            raise ConnectionError("never 42")
        return Invoice(order.id, order.total * 100) if order.total else None

    return app, bill
