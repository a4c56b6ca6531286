"""Circuit breakers in virtual time: when they open, where records wait, and how they close."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sharegroup.errors import InvalidConfig, TopicAuthorizationFailed
from sharegroup.worker import App, CircuitBreaker, Reject, Retry
from sharegroup.worker.decisions.circuit import Circuit, CircuitState
from sharegroup.worker.testing.app_test import AppTest
from tests.unit.worker.app_runs import run

RETRY = Retry(max_attempts=50, initial_delay="2s", multiplier=1, jitter=0)
BREAKER = CircuitBreaker(failures=3, of=5, open_for="1m")


class Shop:
    """An application whose handler calls a service that may be down."""

    def __init__(self, *, kind: str = "share_group", **options: Any) -> None:
        self.app = App("shop")
        self.is_down = True
        self.calls: list[Any] = []
        self.events: list[str] = []
        declare = getattr(self.app, kind)

        async def bill(order: dict) -> None:
            self.calls.append(order["number"])
            if order.get("wrong"):
                raise Reject("wrong")
            if self.is_down:
                raise ConnectionError("no answer")

        self.bill: Any = declare(
            "billing",
            topics="orders",
            **{"retry": RETRY, "breaker": BREAKER, "concurrency": 1, **options},
        )(bill)
        for name in ("breaker.opened", "breaker.half_open", "breaker.closed", "record.released"):
            self.app.on(name, lambda event: self.events.append(event.name.partition(".")[2]))

    def run(self, story: Callable[[AppTest], Awaitable[None]], **settings: Any) -> None:
        run(self.app, story, **settings)


async def send(t: AppTest, shop: Shop, count: int, *, first: int = 0) -> list[Any]:
    return [await t.send(shop.bill, {"number": first + number}) for number in range(count)]


def test_circuit_opens_after_so_many_failures_among_the_last_runs() -> None:
    circuit = Circuit(failures=3, of=4)
    outcomes = [True, True, False, False, True, True]
    assert not any(circuit.observe(has_failed=failed, begun_at=0) for failed in outcomes)
    assert circuit.observe(has_failed=True, begun_at=0)
    assert circuit.state is CircuitState.OPEN


@pytest.mark.parametrize(
    ("has_failed", "state"), [(True, CircuitState.OPEN), (False, CircuitState.CLOSED)]
)
def test_run_that_begins_after_the_pause_decides(has_failed: bool, state: CircuitState) -> None:
    circuit = Circuit(failures=1, of=1)
    circuit.observe(has_failed=True, begun_at=0)
    assert not circuit.observe(has_failed=False, begun_at=1)
    circuit.half_open(10)
    assert not circuit.observe(has_failed=not has_failed, begun_at=9)
    assert circuit.observe(has_failed=has_failed, begun_at=10)
    assert circuit.state is state


@pytest.mark.parametrize("kind", ["share_group", "consumer_group"])
def test_open_breaker_parks_records_and_tries_one_after_the_pause(kind: str) -> None:
    shop = Shop(kind=kind)

    async def story(t: AppTest) -> None:
        orders = await send(t, shop, 20)
        await t.advance("59s")
        assert len(shop.calls) == 3
        later = await send(t, shop, 5, first=20)
        await t.advance("2m")
        # The breaker tries one record a minute.
        assert len(shop.calls) in (5, 6)
        assert shop.events[:4] == ["opened", "half_open", "opened", "half_open"]
        shop.is_down = False
        await t.advance("10m")
        assert shop.events[-1] == "closed"
        assert "released" not in shop.events
        assert {order.outcome for order in orders + later} == {"accepted"}
        assert {*range(25)} == set(shop.calls)
        assert t.dead_letters == []

    shop.run(story)


def test_parked_records_keep_their_failures_and_cost_no_attempt() -> None:
    retry = Retry(max_attempts=2, initial_delay="2s", jitter=0)
    shop = Shop(retry=retry, breaker=CircuitBreaker(failures=1, of=1, open_for="1m"))

    async def story(t: AppTest) -> None:
        orders = await send(t, shop, 5)
        await t.advance("61s")
        # Each minute one run fails, and each record has two.
        await t.advance("30m")
        assert {order.outcome for order in orders} == {"dead_lettered"}
        assert sorted(shop.calls) == sorted([*range(5)] * 2)

    shop.run(story)


def test_records_wait_in_the_process_where_their_order_is_kept() -> None:
    shop = Shop(kind="consumer_group", order_by="key")

    async def story(t: AppTest) -> None:
        for number in range(6):
            await t.send(shop.bill, {"number": number}, key="a")
        await t.advance("5m")
        shop.is_down = False
        await t.advance("5m")
        runs = list(dict.fromkeys(shop.calls))
        assert runs == [0, 1, 2, 3, 4, 5]
        assert t.in_topic("billing.retry") == []

    shop.run(story)


def test_decisions_of_the_handler_open_no_breaker() -> None:
    shop = Shop()
    shop.is_down = False

    async def story(t: AppTest) -> None:
        for number in range(10):
            await t.send(shop.bill, {"number": number, "wrong": True})
        await t.advance("1s")
        assert (len(shop.calls), shop.events) == (10, [])

    shop.run(story)


def test_only_the_declared_classes_count() -> None:
    shop = Shop(breaker=CircuitBreaker(failures=1, of=1, on=TimeoutError))

    async def story(t: AppTest) -> None:
        await send(t, shop, 5)
        await t.advance("1s")
        assert (len(shop.calls), shop.events) == (5, [])

    shop.run(story)


def test_records_that_wait_for_the_rate_limit_are_parked_and_run_once() -> None:
    shop = Shop(rate_limit="1/s", concurrency=8)

    async def story(t: AppTest) -> None:
        orders = await send(t, shop, 12)
        await t.advance("50s")
        assert len(shop.calls) == 3
        shop.is_down = False
        await t.advance("20m")
        assert {order.outcome for order in orders} == {"accepted"}
        assert len(shop.calls) == 3 + 12

    shop.run(story)


def test_handlers_that_take_too_long_count_whatever_classes_are_declared() -> None:
    breaker = CircuitBreaker(failures=2, of=2, on=ConnectionError)
    app = App("shop")
    opened: list[Any] = []

    @app.share_group("billing", topics="orders", max_handling="1s", breaker=breaker, retry=RETRY)
    async def bill(order: dict) -> None:
        await asyncio.Event().wait()

    app.on("breaker.opened", lambda event: opened.append(event.error))

    async def main() -> None:
        async with app.test(patience_seconds=0.01) as t:
            for number in range(2):
                await t.send(bill, {"number": number})
            await t.advance("10s")
            assert [type(error).__name__ for error in opened] == ["HandlingTimeout"]

    asyncio.run(main())


def test_records_stay_locked_while_they_cannot_be_parked() -> None:
    shop = Shop(dead_letter=None)

    async def story(t: AppTest) -> None:
        tiers = [f"billing.retry.{delay}" for delay in ("5s", "30s", "2m")]
        for topic in tiers:
            t.fail_writes(topic, TopicAuthorizationFailed("no right"))
        orders = await send(t, shop, 6)
        await t.advance("50s")
        assert len(shop.calls) == 3
        assert t._worker is not None
        assert t._worker.state.groups[0].blocked_writes == 3
        for topic in tiers:
            t.mend_writes(topic)
        shop.is_down = False
        await t.advance("10m")
        assert {order.outcome for order in orders} == {"accepted"}
        assert len(shop.calls) == 3 + 6

    shop.run(story)


def test_state_is_in_health_and_counts() -> None:
    shop = Shop()

    async def story(t: AppTest) -> None:
        await send(t, shop, 10)
        await t.advance("30s")
        worker = t._worker
        assert worker is not None
        (counts,), (group,) = worker.counts, worker.state.groups
        assert (counts.circuit, counts.opened, group.open_breakers) == ("open", 1, ("bill",))
        assert counts.parked == 2  # The two that were held; the others were never taken.
        shop.is_down = False
        await t.advance("10m")
        (counts,), (group,) = worker.counts, worker.state.groups
        assert (counts.circuit, group.open_breakers) == ("closed", ())

    shop.run(story)


def test_breaker_of_one_handler_leaves_the_others_of_its_group_alone() -> None:
    shop = Shop()
    repaid: list[Any] = []

    @shop.app.share_group("billing", topics="returns", retry=RETRY)
    async def repay(order: dict) -> None:
        repaid.append(order["number"])

    async def story(t: AppTest) -> None:
        await send(t, shop, 10)
        await t.advance("5s")
        for number in range(10):
            await t.send(repay, {"number": number})
        await t.advance("5s")
        assert len(repaid) == 10
        shop.is_down = False
        await t.advance("10m")
        assert set(shop.calls) == {*range(10)}

    shop.run(story)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"breaker": 3}, r"breaker=3; expected CircuitBreaker\(failures"),
        ({"retry": None}, "breaker: with retry=None there are no retry topics"),
    ],
)
def test_breaker_that_makes_no_sense_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidConfig, match=text):
        Shop(**options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"failures": 6, "of": 5}, "failures=6, of=5; expected a number of runs"),
        ({"failures": 0}, "failures=0"),
        ({"of": 10_001}, "of=10001"),
        ({"open_for": 0}, "open_for=0; expected more than 0"),
        ({"open_for": "soon"}, "CircuitBreaker: open_for: a duration"),
        ({"on": Reject}, "CircuitBreaker: on has Reject, which itself decides"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidConfig, match=text):
        CircuitBreaker(**options)
