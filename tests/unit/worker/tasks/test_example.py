"""The shop with 30 tasks runs as its project expects, in virtual time: examples/shop_tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from examples.shop_tasks import app, catalog, mail, orders, reports, tables, upkeep
from sharegroup.worker.tasks import Task, TaskFailed
from sharegroup.worker.testing.app_test import AppTest

MODULES = (orders, mail, catalog, reports, upkeep)


@pytest.fixture(autouse=True)
def own_tables() -> Iterator[None]:
    app.set_current()
    tables.clear()
    yield
    tables.clear()


def run(test: Callable[[AppTest], Awaitable[None]]) -> None:
    async def inside() -> None:
        async with app.test() as t:
            await test(t)

    asyncio.run(inside())


def test_it_has_thirty_tasks_in_three_queues() -> None:
    tasks = {
        task.name: task
        for module in MODULES
        for task in vars(module).values()
        if isinstance(task, Task)
    }
    assert len(tasks) == 30
    assert {app.queue_of(name, task.options) for name, task in tasks.items()} == {
        "default", "mail", "reports",
    }  # fmt: skip
    groups = {route.group: route for route in app.worker_app.route_list}
    assert sorted(groups) == ["shop.default", "shop.mail", "shop.reports"]
    assert groups["shop.reports"].concurrency == 2
    assert groups["shop.mail"].rate_limit is not None
    assert [entry.name for entry in app.worker_app.schedule_list] == [
        "sales-of-the-day", "carts", "rates",
    ]  # fmt: skip


def test_order_goes_through_its_chain_and_its_failures() -> None:
    tables.FAILURES.update(payments=2, parcels=1, smtp=1)

    async def test(t: AppTest) -> None:
        placed = await orders.place.adelay(7, "chair", 3000, customer="ann@x")
        await t.settle()
        assert await placed.aget(timeout=0) == 7
        charged = app.AsyncResult("charge-7")
        assert (await charged.afacts()).state == "retrying"  # type: ignore[union-attr]
        await t.advance("7s")
        assert await charged.aget(timeout=0) == "receipt-7"
        assert tables.ORDERS[7]["state"] == "charged"
        restocked = await catalog.restock.adelay("chair", 1)
        await t.advance("5m")
        assert await restocked.aget(timeout=0) == 1
        assert tables.ORDERS[7]["state"] == "shipped"
        assert tables.MAILS == [("ann@x", "order 7 is on its way")]
        assert tables.STOCK == {"chair": 0}
        assert t.dead_letters == []

    run(test)


def test_order_that_cannot_be_charged_is_a_dead_letter() -> None:
    async def test(t: AppTest) -> None:
        await orders.place.adelay(8, "chair", 0, customer="ann@x")
        await t.settle()
        with pytest.raises(TaskFailed, match="nothing to pay"):
            await app.AsyncResult("charge-8").aget(timeout=0)
        (letter,) = t.dead_letters
        assert letter.death.reason == "rejected"

    run(test)


def test_report_of_twelve_parts_is_joined_by_the_last() -> None:
    async def test(t: AppTest) -> None:
        await reports.yearly.adelay(2026)
        await t.settle()
        assert tables.REPORTS["2026"]["joined"] == 7800

    run(test)


def test_schedules_run() -> None:
    tables.CARTS.update(old=31, new=1)

    async def test(t: AppTest) -> None:
        await t.advance("5h1m")  # Thursday, 6:01 in Berlin.
        assert tables.CARTS == {"new": 1}
        assert "sales-day" in tables.REPORTS

    run(test)


@pytest.mark.parametrize(
    ("task", "arguments", "returned"),
    [
        (orders.cancel, (1,), True),
        (orders.refund, (1, 300), None),
        (orders.track, (1,), "new"),
        (orders.remind, (1,), None),
        (orders.reserve, (1,), None),
        (mail.welcome, ("a@x",), None),
        (mail.login_code, ("a@x", "4711"), None),
        (mail.invoice, ("a@x", 1, [{"cents": 3}]), None),
        (mail.newsletter, (["a@x", "b@x"], "news"), None),
        (catalog.fetch_rates, (), {"EUR": 1.0, "USD": 1.1}),
        (catalog.raise_prices, (10,), 1),
        (catalog.thumbnail, ("a.png",), "a.png-200"),
        (catalog.import_file, ("a.csv",), {"path": "a.csv", "run": 0, "queue": "default"}),
        (reports.stock, (), {}),
        (reports.export, ("e", [[1]]), None),
        (upkeep.ping, (), "pong"),
        (upkeep.reindex, (["a"],), 1),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_task_runs(task: Task[..., Any], arguments: tuple[Any, ...], returned: object) -> None:
    tables.ORDERS[1] = {"article": "chair", "cents": 3, "customer": "a@x", "state": "new"}
    tables.PRICES["chair"] = 100

    async def test(t: AppTest) -> None:
        result = await task.adelay(*arguments)
        await t.settle()
        assert await result.aget(timeout=0) == returned
        assert t.dead_letters == []

    run(test)
