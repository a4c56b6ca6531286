"""``result_for``: the result of each record is in the store before the record is settled."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sharegroup.errors import InvalidConfig
from sharegroup.worker import (
    App,
    MemoryStore,
    Result,
    ResultState,
    Retry,
    SqliteStore,
    StoreUnavailable,
)
from sharegroup.worker.results.result import RESULT_BYTES_MAX, parsed, written
from sharegroup.worker.running.returned import STORE_TRIES
from sharegroup.worker.testing.app_test import AppTest
from tests.unit.worker.app_runs import run
from tests.unit.worker.results.scene import Invoice, Order, billing

RETRY = Retry(max_attempts=2, initial_delay="1s", jitter=0)


def kept(kind: str = "share_group", **options: Any) -> tuple[App, Any]:
    return billing(kind, **{"result_for": "1h", "retry": RETRY, **options})


@pytest.mark.parametrize("kind", ["share_group", "consumer_group"])
def test_result_has_the_value_and_expires(kind: str) -> None:
    app, bill = kept(kind)

    async def test(t: AppTest) -> None:
        sent = await bill.send(Order(7, 30), id="order-7")
        placed = await bill.send(Order(8))
        await t.settle()
        result = await bill.result("order-7")
        assert result is not None
        assert (result.state, result.value) == (ResultState.SUCCEEDED, Invoice(7, 3000))
        assert (result.attempts, result.handler, result.id) == (1, "bill", "order-7")
        assert result.sent_ms == sent.timestamp_ms == result.started_ms == result.ended_ms
        assert result.worker_id.startswith("billing-")
        of_place = await bill.result(placed)
        assert of_place is not None
        assert (of_place.id, of_place.value) == ("orders-0-1", None)
        assert await bill.result("orders-0-1") == of_place
        assert await bill.result("nothing") is None
        await t.advance("1h")
        assert await bill.result("order-7") is None

    run(app, test)


def test_result_of_a_failure_goes_from_retrying_to_its_end() -> None:
    app, bill = kept()

    async def test(t: AppTest) -> None:
        await bill.send(Order(7, 1), id="again")
        await bill.send(Order(7, 2), id="never")
        await bill.send(Order(7, -1), id="rejected")
        await t.settle()
        retrying = await bill.result("again")
        assert retrying is not None
        assert (retrying.state, retrying.attempts) == (ResultState.RETRYING, 1)
        assert retrying.error_class == "builtins.ConnectionError"
        assert retrying.error_text == "later **"
        rejected = await bill.result("rejected")
        assert rejected is not None
        assert (rejected.state, rejected.reason) == (ResultState.FAILED, "rejected")
        assert rejected.error_text == "negative total **"
        await t.advance("1s")
        again, never = await bill.result("again"), await bill.result("never")
        assert again is not None
        assert never is not None
        assert (again.state, again.attempts, again.error_text) == (ResultState.SUCCEEDED, 2, "")
        assert again.started_ms == again.sent_ms + 1000
        assert (never.state, never.reason) == (ResultState.FAILED, "attempts-exhausted")
        assert (never.attempts, never.started_ms) == (2, never.sent_ms + 1000)

    run(app, test)


def test_result_of_a_delayed_record_has_its_id_alone() -> None:
    app, bill = kept()

    async def test(t: AppTest) -> None:
        delayed = await bill.send(Order(7, 3), delay="1m", id="delayed")
        with pytest.raises(ValueError, match="send it with an id"):
            await bill.result(delayed)
        await bill.send(Order(8, 4), delay="1m")
        await t.advance("2m")
        result = await bill.result("delayed")
        assert result is not None
        assert result.value == Invoice(7, 300)

    run(app, test)


def test_result_of_a_record_that_never_ran() -> None:
    app, bill = kept()

    async def test(t: AppTest) -> None:
        await t.send("orders", b"not JSON", headers={"sharegroup-id": "bad"})
        await t.settle()
        result = await bill.result("bad")
        assert result is not None
        assert (result.state, result.reason) == (ResultState.FAILED, "unreadable")
        assert (result.attempts, result.started_ms) == (0, 0)

    run(app, test)


@pytest.mark.parametrize("header", [b"", b"a b", b"x" * 201, b"a\n", "ä".encode()])
def test_forged_id_is_ignored(header: bytes) -> None:
    app, bill = kept()

    async def test(t: AppTest) -> None:
        await t.send("orders", Order(7, 30), headers={"sharegroup-id": header})
        await t.settle()
        assert (await bill.result("orders-0-0")).value == Invoice(7, 3000)

    run(app, test)


class Away(MemoryStore):
    """A store that is unavailable for a number of calls."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.calls = calls

    async def put(self, name: str, value: bytes, *, keep_seconds: float) -> None:
        self.calls -= 1
        if self.calls >= 0:
            raise StoreUnavailable("the store is away")
        await super().put(name, value, keep_seconds=keep_seconds)


def test_store_that_is_away_shortly_is_waited_for_before_the_record_is_accepted() -> None:
    app, bill = kept()
    store = Away(STORE_TRIES - 1)

    async def test(t: AppTest) -> None:
        sent = await t.send(bill, Order(7, 30))
        await t.settle()
        assert sent.outcome == "running"
        await t.advance("10s")
        assert sent.outcome == "accepted"
        assert (await bill.result("orders-0-0")).attempts == 1

    run(app, test, store=store, patience_seconds=0.01)


def test_store_that_stays_away_fails_the_run_and_settles_a_failed_record(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app, bill = kept()

    async def test(t: AppTest) -> None:
        sent = await t.send(bill, Order(7, 30))
        await t.advance("1m")
        assert sent.outcome == "dead_lettered"
        (letter,) = t.dead_letters
        assert letter.death.error_class == "sharegroup.worker.stores.store.StoreUnavailable"

    with caplog.at_level(logging.WARNING):
        run(app, test, store=Away(10**6), patience_seconds=0.01)
    assert caplog.text.count("event=result.unwritten") == 1


@pytest.mark.parametrize(("total", "outcome"), [(3, "accepted"), (-1, "dead_lettered")])
def test_a_slow_store_makes_no_handler_run_again(total: int, outcome: str) -> None:
    app = App("orders-service")

    class Slow(MemoryStore):
        async def put(self, name: str, value: bytes, *, keep_seconds: float) -> None:
            clock = app.outlet.clock
            assert clock is not None
            await clock.sleep_until(clock.now() + 3)
            await super().put(name, value, keep_seconds=keep_seconds)

    app.store = Slow()
    retry = Retry(max_attempts=3, initial_delay="1s", dont_retry_on=ValueError)

    @app.share_group("billing", topics="orders", result_for="1h", max_handling="1s", retry=retry)
    async def bill(order: Order) -> int:
        if order.total < 0:
            raise ValueError("not this one")
        return order.total

    async def test(t: AppTest) -> None:
        sent = await t.send(bill, Order(1, total))
        await t.advance("10s")
        assert (sent.outcome, len(sent.runs)) == (outcome, 1)

    run(app, test, store=app.store, patience_seconds=0.01)


def test_a_store_that_never_answers_fails_the_run() -> None:
    app, bill = kept(max_handling=None)

    class Silent(MemoryStore):
        async def put(self, name: str, value: bytes, *, keep_seconds: float) -> None:
            await asyncio.Event().wait()

    async def test(t: AppTest) -> None:
        sent = await t.send(bill, Order(7, 30))
        await t.advance("10m")
        assert sent.outcome == "dead_lettered"
        assert isinstance(sent.errors[0], StoreUnavailable)

    run(app, test, store=Silent(), patience_seconds=0.01)


def test_crash_before_the_result_runs_again_and_the_last_result_stays() -> None:
    app, bill = kept()
    stuck = asyncio.Event()

    class Stuck(MemoryStore):
        is_stuck = True

        async def put(self, name: str, value: bytes, *, keep_seconds: float) -> None:
            if self.is_stuck:
                await stuck.wait()
            await super().put(name, value, keep_seconds=keep_seconds)

    store = Stuck()

    async def test(t: AppTest) -> None:
        sent = await t.send(bill, Order(7, 30))
        await t.settle()
        assert sent.outcome == "running"
        store.is_stuck = False
        await t.crash()
        await t.advance("1m")
        assert sent.outcome == "accepted"
        assert (await bill.result("orders-0-0")).value == Invoice(7, 3000)

    run(app, test, store=store, patience_seconds=0.01)


def test_work_that_was_done_before_keeps_its_result_and_replies_with_it(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    app = App("orders-service", store=store)
    runs = []
    options: dict[str, Any] = {"once_by": lambda order: order.id, "once_for": "1h"}

    @app.share_group("billing", topics="orders", replies=True, result_for="1h", **options)
    async def bill(order: Order) -> Invoice:
        runs.append(order)
        return Invoice(order.id, len(runs))

    async def test(t: AppTest) -> None:
        assert await bill.ask(Order(7), timeout="5s", headers={"sharegroup-id": "a"}) == Invoice(
            7, 1
        )
        assert await bill.ask(Order(7), timeout="5s", headers={"sharegroup-id": "a"}) == Invoice(
            7, 1
        )
        assert await bill.ask(Order(7), timeout="5s", headers={"sharegroup-id": "b"}) is None
        result = await bill.result("a")
        assert result is not None
        assert result.value == Invoice(7, 1)
        assert len(runs) == 1

    run(app, test, store=store)


def test_value_that_is_too_large_is_left_out() -> None:
    app = App("orders-service", store=MemoryStore())

    @app.share_group("billing", topics="orders", result_for="1h")
    async def bill(size: int) -> bytes:
        return b"x" * size

    async def test(t: AppTest) -> None:
        await bill.send(RESULT_BYTES_MAX, id="fits")
        await bill.send(RESULT_BYTES_MAX + 1, id="large")
        await t.settle()
        fits, large = await bill.result("fits"), await bill.result("large")
        assert fits is not None
        assert large is not None
        assert len(fits.value or b"") == RESULT_BYTES_MAX
        assert (large.state, large.value) == (ResultState.SUCCEEDED, None)
        assert large.omitted_bytes == RESULT_BYTES_MAX + 1

    run(app, test)


RESULT: Result[bytes] = Result(
    id="a", state=ResultState.SUCCEEDED, value=b"1\n2", attempts=3, error_text="\ud800\n\x00"
)


def test_written_result_is_read_back() -> None:
    assert parsed(written(RESULT), bytes) == RESULT
    empty = replace(RESULT, value=b"")
    assert parsed(written(empty), bytes) == empty
    none = replace(RESULT, value=None)
    assert parsed(written(none), bytes) == none


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\n", b"[]\n", b"null", b"{}\n1", b'{"state": "succeeded"}\n', b"{" * 9000),
        written(RESULT).replace(b"succeeded", b"perhaps"),
        written(RESULT).replace(b'"attempts": 3', b'"attempts": "3"'),
        written(RESULT).replace(b'"a"', b'"' + b"a" * 20_000 + b'"'),
    ],
)
def test_forged_result_is_refused(data: bytes) -> None:
    with pytest.raises(StoreUnavailable, match="expected a result, which only workers write"):
        parsed(data, bytes)


def test_misuse_is_refused_with_what_to_write() -> None:
    with pytest.raises(InvalidConfig, match="result_for requires a store"):
        App("a").share_group("billing", topics="orders", result_for="1h")(handle)
    app, bill = kept()
    plain = app.share_group("plain", topics="plain")(handle)

    async def test(t: AppTest) -> None:
        with pytest.raises(InvalidConfig, match="result_for='1h'"):
            await plain.result("a")
        with pytest.raises(ValueError, match="expected 1 to 200 letters"):
            await bill.send(Order(7), id="a b")
        with pytest.raises(ValueError, match="expected 1 to 300 characters"):
            await bill.result("")

    run(app, test)


async def handle(order: Order) -> None: ...
