"""Defaults of an App for all its handlers: what they apply to, and what has precedence."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sharegroup.errors import InvalidConfig
from sharegroup.worker import App, Batching, DeadLetter, Retry, Routed, consumer_group, share_group

QUICK, SLOW = Retry(max_attempts=2, initial_delay="1s", jitter=0), Retry(max_attempts=9)


def app(**defaults: Any) -> App:
    return App("shop", defaults=defaults)  # type: ignore[arg-type]  # Some are wrong.


def test_handler_has_the_defaults_of_its_app_but_for_its_own_options() -> None:
    shop = app(concurrency=7, retry=QUICK, max_handling="1m", dead_letter="all.dead")

    @shop.share_group("billing", topics="orders", retry=SLOW)
    async def bill(order: dict) -> None: ...

    @shop.consumer_group("audit", topics="orders", concurrency=64)
    async def audit(order: dict) -> None: ...

    assert (bill.route.concurrency, bill.route.retry) == (7, SLOW)
    assert (bill.route.max_handling_seconds, audit.route.max_handling_seconds) == (60.0, 60.0)
    assert (audit.route.concurrency, audit.route.retry) == (64, QUICK)
    assert bill.route.dead_letter == audit.route.dead_letter == DeadLetter("all.dead")


def test_defaults_apply_to_handlers_that_are_declared_without_an_app() -> None:
    @share_group("billing", topics="orders", concurrency=3)
    async def bill(order: dict) -> None: ...

    @consumer_group("audit", topics="orders")
    async def audit(order: dict) -> None: ...

    declared: tuple[Routed[Any, Any], ...] = (bill, audit)
    app(concurrency=7, retry=QUICK).routes(*declared)
    assert [routed.route.concurrency for routed in declared] == [3, 7]
    # Of another App nothing is left.
    app(in_flight_bytes=1).routes(*declared)
    assert [routed.route.concurrency for routed in declared] == [3, 32]
    assert [routed.route.in_flight_bytes for routed in declared] == [1, 1]


def test_default_of_a_batch_applies_to_handlers_of_lists_alone() -> None:
    shop = app(batch=5)

    @shop.share_group("billing", topics="orders")
    async def bill(order: dict) -> None: ...

    @shop.share_group("loading", topics="rows")
    async def load(rows: list[dict]) -> None: ...

    assert (bill.route.batching, load.route.batching) == (None, Batching(size=5))


def test_sender_and_retries_use_the_defaults() -> None:
    shop = app(retry=QUICK)
    seen = SimpleNamespace(runs=0)

    @shop.share_group("billing", topics="orders")
    async def bill(order: dict) -> None:
        seen.runs += 1
        raise ConnectionError

    async def main() -> None:
        async with shop.test() as t:
            order = await t.send(bill, {})
            await t.advance("10s")
            assert (order.outcome, order.times) == ("dead_lettered", (0, 1))

    asyncio.run(main())


def test_delayed_record_is_refused_if_no_handler_retries_by_default() -> None:
    shop = app(retry=None)

    @shop.share_group("billing", topics="orders")
    async def bill(order: dict) -> None: ...

    async def main() -> None:
        async with shop.test():
            with pytest.raises(InvalidConfig, match="with retry=None there are none"):
                await bill.send({}, delay="1m")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("defaults", "text"),
    [
        ({"name": "bill"}, "App 'shop': defaults: name is declared for each handler"),
        ({"payload": None}, "payload is declared for each handler"),
        ({"concurency": 3}, "unknown option concurency; did you mean concurrency?"),
        ({"max_retries": 3}, r"max_retries is not an option of all handlers; retry=Retry\("),
        ({"max_handling": "soon"}, "App 'shop': defaults: max_handling:"),
    ],
)
def test_option_that_is_no_default_is_refused(defaults: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidConfig, match=text):
        app(**defaults)


def test_defaults_that_contradict_a_handler_are_named() -> None:
    shop = app(steering=True, concurrency=3)
    with pytest.raises(InvalidConfig) as raised:

        @shop.share_group("billing", topics="orders", retry=None)
        async def bill(order: dict) -> None: ...

    assert "share group 'billing', handler bill: steering: with retry=None" in str(raised.value)
    assert "(with the App's defaults: concurrency, steering)" in str(raised.value)


def test_setting_of_a_group_differs_if_one_handler_overrides_it() -> None:
    shop = app(retry_tiers=("1s", "10s"))

    @shop.share_group("billing", topics="orders")
    async def bill(order: dict) -> None: ...

    with pytest.raises(InvalidConfig, match="differ in retry_tiers"):

        @shop.share_group("billing", topics="returns", retry_tiers=("5s",))
        async def repay(order: dict) -> None: ...
