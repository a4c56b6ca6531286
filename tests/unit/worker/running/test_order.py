"""Records of one key one after the other, on virtual time (`App.test`)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sharegroup.worker import App, Holding, Registry, Retry
from sharegroup.worker.testing.app_test import AppTest

ONCE = Retry(max_attempts=1)


def by_customer(order: dict[str, Any]) -> Any:
    return order["customer"]


class Book:
    """Notes who is being handled beside whom, and in which order."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.together = 0
        self.order: list[tuple[str, int]] = []

    async def handle(self, order: dict[str, Any]) -> None:
        customer = str(order["customer"])
        assert customer not in self.running, "two records of one key at the same time"
        self.running.add(customer)
        self.together = max(self.together, len(self.running))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.running.remove(customer)
        self.order.append((customer, order["number"]))


def run(test: Callable[[AppTest, Book], Coroutine[Any, Any, None]]) -> None:
    async def runs() -> None:
        app, book = App("ordered"), Book()
        app.share_group("billing", topics="orders", order_by=by_customer, retry=ONCE, handler=book)
        async with app.test() as t:
            await test(t, book)

    asyncio.run(runs())


def test_records_of_one_key_run_in_order_and_other_keys_concurrently() -> None:
    async def test(t: AppTest, book: Book) -> None:
        for number in range(4):
            await t.send("orders", b'{"customer": "ann", "number": %d}' % number)
            await t.send("orders", b'{"customer": "bob", "number": %d}' % number)
        await t.settle()
        assert len(t.accepted) == 8
        assert [number for customer, number in book.order if customer == "ann"] == [0, 1, 2, 3]
        assert [number for customer, number in book.order if customer == "bob"] == [0, 1, 2, 3]
        assert book.together == 2

    run(test)


@pytest.mark.parametrize(
    ("value", "error_class"),
    [
        (b'{"number": 1}', "builtins.KeyError"),
        (b'{"number": 1, "customer": ["ann"]}', "builtins.TypeError"),
    ],
    ids=["it raises", "no two such results can be compared"],
)
def test_record_whose_key_cannot_be_computed_fails_alone(value: bytes, error_class: str) -> None:
    async def test(t: AppTest, book: Book) -> None:
        bad = await t.send("orders", value)
        good = await t.send("orders", b'{"customer": "ann", "number": 2}')
        await t.settle()
        assert (bad.outcome, good.outcome) == ("dead_lettered", "accepted")
        assert t.dead_letters[0].death.error_class == error_class
        assert book.order == [("ann", 2)]

    run(test)


def test_a_key_that_can_be_had_later_orders_its_record_then() -> None:
    places: dict[str, str] = {}

    async def handle(order: dict[str, Any]) -> None: ...

    async def test() -> None:
        app = App("ordered")
        app.share_group(
            "billing", topics="orders", handler=handle, retry=Retry(initial_delay="1s", jitter=0),
            order_by=lambda order: places[order["customer"]],
        )  # fmt: skip
        async with app.test() as t:
            sent = await t.send("orders", b'{"customer": "ann"}')
            await t.settle()
            assert sent.outcome == "retrying"
            places["ann"] = "Berlin"
            await t.advance("1s")
            assert (sent.outcome, sent.times) == ("accepted", (0.0, 1.0))

    asyncio.run(test())


def test_retry_of_an_ordered_record_decodes_its_payload_again() -> None:
    """The handler of the previous run may have changed the decoded payload."""
    seen: list[int] = []

    async def handle(order: dict[str, Any]) -> None:
        seen.append(order["total"])
        order["total"] += 1
        if len(seen) < 3:
            raise TimeoutError

    async def test() -> None:
        app = App("ordered")
        app.share_group(
            "billing", topics="orders", handler=handle, order_by=by_customer,
            retry=Retry(initial_delay="1s", multiplier=1, jitter=0),
        )  # fmt: skip
        async with app.test() as t:
            sent = await t.send("orders", b'{"customer": "ann", "total": 30}')
            await t.advance("2s")
            assert (sent.outcome, sent.times) == ("accepted", (0.0, 1.0, 2.0))

    asyncio.run(test())
    assert seen == [30, 30, 30]


def test_key_of_a_registry_payload_is_computed_in_a_thread() -> None:
    """An unreachable registry would otherwise keep the event loop from renewing locks."""
    threads: set[str] = set()
    book = Book()

    def by_customer_elsewhere(order: dict[str, Any]) -> Any:
        threads.add(threading.current_thread().name)
        return order["customer"]

    async def test() -> None:
        app = App("ordered")
        schema = '{"type": "object", "title": "order"}'
        registry = Registry("mock://ordered", format="json", schema=schema)
        routed = app.share_group(
            "billing", topics="orders", handler=book, order_by=by_customer_elsewhere,
            payload=registry, retry=ONCE,
        )  # fmt: skip
        async with app.test() as t:
            for number in range(4):
                for customer in ("ann", "bob"):
                    await t.send(routed, {"customer": customer, "number": number})
            bad = await t.send("orders", b"no schema")
            await t.settle()
            assert (len(t.accepted), bad.outcome) == (8, "dead_lettered")

    asyncio.run(test())
    assert [number for customer, number in book.order if customer == "ann"] == [0, 1, 2, 3]
    assert threading.current_thread().name not in threads


def test_bytes_that_can_not_be_read_have_no_key_and_are_unreadable() -> None:
    async def test(t: AppTest, book: Book) -> None:
        bad = await t.send("orders", b"{")
        await t.settle()
        assert bad.outcome == "dead_lettered"
        assert t.dead_letters[0].death.reason == "unreadable"
        assert book.order == []

    run(test)


@pytest.mark.parametrize(
    ("holding", "first_runs"),
    [(Holding(), [0.0, 4.0, 8.0]), (Holding(longest_seconds=0), [0.0, 0.0, 0.0])],
)
def test_failing_key_advances_by_one_record_per_series_of_held_retries(
    holding: Holding, first_runs: list[float]
) -> None:
    """The third retry, after 9 s, uses a retry topic; docs/worker.md, «Order»."""

    async def handle(order: dict[str, Any]) -> None:
        raise TimeoutError

    async def test() -> None:
        app = App("ordered")
        app.share_group(
            "billing", topics="orders", handler=handle, order_by=by_customer,
            retry=Retry(jitter=0), holding=holding,
        )  # fmt: skip
        async with app.test() as t:
            sent = [await t.send("orders", b'{"customer": "ann"}') for _ in range(3)]
            await t.advance("9s")
            assert [record.times[0] for record in sent] == first_runs

    asyncio.run(test())
