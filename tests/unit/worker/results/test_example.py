"""examples/order_chain.py: unique, once_by, to, ask and results together."""

from __future__ import annotations

import asyncio
import importlib
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sharegroup.worker import AskFailed


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("STORE", str(tmp_path / "orders.db"))
    yield importlib.import_module("examples.order_chain")
    del sys.modules["examples.order_chain"]  # It has the store of this test.


def test_order_is_sent_billed_and_mailed_once_however_often_it_is_placed(example: Any) -> None:
    async def run() -> None:
        async with example.app.test(store=example.store) as t:
            order_id = await example.place(example.Order(7, 3))
            assert await example.place(example.Order(7, 3)) == order_id
            assert len(t.in_topic("orders")) == 1
            await example.bill.send(example.Order(7, 3, cents=750))  # By another way.
            await t.settle()
            assert await example.outcome(order_id) == "order 7: 7.50 EUR"
            assert len(t.in_topic("billed")) == 1
            billed = await example.bill.result(order_id)
            assert billed.value == example.Invoice(7, 750)
            with pytest.raises(AskFailed, match="0 pieces"):
                await example.place(example.Order(8, 0))

    asyncio.run(run())
    with closing(sqlite3.connect(example.STORE)) as database:
        assert database.execute("SELECT * FROM bills").fetchall() == [(7, 750)]


def test_bill_that_fails_is_told_by_its_result(example: Any) -> None:
    async def run() -> None:
        async with example.app.test(store=example.store) as t:
            with closing(sqlite3.connect(example.STORE)) as database:
                database.execute("DROP TABLE bills")
            order_id = await example.place(example.Order(7, 3))
            await t.advance("1d")
            assert await example.outcome(order_id) == "not billed: no such table: bills"

    asyncio.run(run())
