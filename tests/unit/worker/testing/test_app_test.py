"""`App.test` shows what an application does: outcomes, times, retries, dead letters, crashes.

The worker that runs here is the real one, so these are also its own tests, end to end, on
virtual time.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from sharegroup.dead_letters.story_headers import story_of
from sharegroup.errors import GroupAuthorizationFailed
from sharegroup.waiting.control_records import Command, Intent, Place, encoded
from sharegroup.worker import App, DeadLetter, Record, Reject, Release, Retry, RetryAfter
from sharegroup.worker.testing import NeverAtRest, WorkerFailed
from sharegroup.worker.transport.memory_source import MemoryDelivery, MemorySource
from tests.support.limits import HANGING_SECONDS

EXACT = Retry(
    max_attempts=4,
    initial_delay="1s",
    multiplier=3,
    max_delay="1h",
    jitter=0,
    dont_retry_on=(KeyError,),
)


@dataclass
class Order:
    """What is sent."""

    id: int
    total: int = 5


def run(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    def runs() -> None:
        asyncio.run(test())

    runs.__name__ = test.__name__
    return runs


def shop(handler: Callable[..., object], **options: object) -> App:
    """An application with one handler."""
    app = App("shop")
    declared = {"retry": EXACT, "dead_letter": DeadLetter("orders.dead"), **options}
    app.share_group("billing", topics="orders", handler=handler, **declared)  # type: ignore[call-overload]
    return app


@run
async def test_handler_that_returns_accepts() -> None:
    async def bill(order: Order) -> None:
        assert order == Order(7)

    async with shop(bill).test() as t:
        order = await t.send("orders", Order(7), key="customer-1", headers={"h": "x"})
        assert order.outcome == "queued"
        await t.settle()
        assert (order.outcome, order.times, order.errors) == ("accepted", (0.0,), (None,))
        assert (order.key, order.headers) == (b"customer-1", (("h", b"x"),))
        assert t.accepted == [order]
        assert t.outcomes == {"accepted": 1}


@run
async def test_rejected_record_is_a_dead_letter() -> None:
    async def bill(order: Order) -> None:
        raise Reject("negative total")

    async with shop(bill).test() as t:
        order = await t.send("orders", Order(7))
        await t.settle()
        (letter,) = t.dead_letters
        assert order.outcome == "dead_lettered"
        assert (letter.death.reason, letter.value) == ("rejected", b'{"id":7,"total":5}')
        assert letter.death.error_message == "negative total"
        assert len(order.runs) == 1


@run
async def test_rejected_record_without_dead_letters_is_rejected() -> None:
    async def bill(order: Order) -> None:
        raise Reject("negative total")

    async with shop(bill, dead_letter=None).test() as t:
        order = await t.send("orders", Order(7))
        await t.settle()
        assert order.outcome == "rejected"
        assert t.dead_letters == []


@run
async def test_failures_are_tried_again_at_their_times_and_buried_in_the_end() -> None:
    async def bill(order: Order) -> None:
        raise TimeoutError("the bank is asleep")

    async with shop(bill).test() as t:
        order = await t.send("orders", Order(7))
        await t.settle()
        assert (order.outcome, order.due_at) == ("retrying", 1.0)
        await t.advance("3.9s")
        assert (order.times, order.due_at) == ((0.0, 1.0), 4.0)
        await t.advance("1h")
        assert order.times == pytest.approx((0.0, 1.0, 4.0, 13.0), abs=0.1)
        assert order.outcome == "dead_lettered"
        (letter,) = t.dead_letters
        assert letter.death.reason == "attempts-exhausted"
        assert [attempt.number for attempt in letter.story.attempts] == [1, 2, 3, 4]


@pytest.mark.parametrize("delay", ["6s", "31s", "7m", "3h", "2d"])
def test_longer_delays_are_observed(delay: str) -> None:
    seconds = {"6s": 6, "31s": 31, "7m": 420, "3h": 10_800, "2d": 172_800}[delay]

    async def bill(order: Order, record: Record) -> None:
        if record.attempt == 1:
            raise RetryAfter(delay)

    async def test() -> None:
        async with shop(bill).test() as t:
            order = await t.send("orders", Order(7))
            await t.settle()
            assert (order.due_at, t.retries) == (seconds, [order])
            await t.advance("3d")
            assert order.outcome == "accepted"
            assert seconds <= order.times[1] <= seconds * 1.02 + 0.1

    asyncio.run(test())


@run
async def test_error_that_is_never_tried_again_is_buried_at_once() -> None:
    async def bill(order: Order) -> None:
        raise KeyError("no such customer")

    async with shop(bill).test() as t:
        await t.send("orders", Order(7))
        await t.settle()
        assert [letter.death.reason for letter in t.dead_letters] == ["not-retried"]


@run
async def test_released_record_is_redelivered_up_to_the_delivery_limit() -> None:
    async def bill(order: Order, record: Record) -> None:
        raise Release

    async with shop(bill).test(delivery_limit=4) as t:
        order = await t.send("orders", Order(7))
        await t.settle()
        assert len(order.runs) == 4  # Two of them after it was put aside.
        assert [letter.death.reason for letter in t.dead_letters] == ["deliveries-exhausted"]


@run
async def test_unreadable_bytes_are_buried_unchanged() -> None:
    async def bill(order: Order) -> None:
        raise AssertionError("it is not called")

    async with shop(bill).test() as t:
        order = await t.send("orders", b"{nope", key=b"k")
        await t.settle()
        (letter,) = t.dead_letters
        assert (letter.death.reason, letter.key, letter.value) == ("unreadable", b"k", b"{nope")
        assert order.runs == ()


@run
async def test_handler_that_hangs_is_ended_at_its_limit_and_tried_again() -> None:
    async def bill(order: Order, record: Record) -> None:
        if record.attempt == 1:
            await asyncio.Event().wait()

    async with shop(bill, max_handling="1m").test(patience_seconds=0.05) as t:
        order = await t.send("orders", Order(7))
        await t.settle()
        assert order.outcome == "running"
        await t.advance("59s")
        assert order.outcome == "running"
        await t.advance("10s")
        assert order.outcome == "accepted"
        assert isinstance(order.errors[0], TimeoutError)
        assert order.times[1] == pytest.approx(61, abs=3.1)


@run
async def test_dead_letters_that_cannot_be_written_hold_the_record() -> None:
    async def bill(order: Order) -> None:
        raise Reject("negative total")

    async with shop(bill).test() as t:
        t.fail_writes("orders.dead")
        order = await t.send("orders", Order(7))
        await t.advance("10m")
        assert (order.outcome, t.dead_letters) == ("retrying", [])
        t.mend_writes("orders.dead")
        await t.advance("1m")
        assert (order.outcome, len(t.dead_letters), len(order.runs)) == ("dead_lettered", 1, 1)


@run
async def test_crash_counts_as_a_delivery_and_not_as_an_attempt() -> None:
    seen = []

    async def bill(order: Order, record: Record) -> None:
        seen.append((record.attempt, record.delivery_attempt, record.redelivered))
        if record.delivery_attempt == 1:
            await asyncio.Event().wait()

    async with shop(bill).test(patience_seconds=0.05) as t:
        order = await t.send("orders", Order(7))
        await t.settle()
        await t.crash()
        assert seen == [(1, 1, False), (1, 2, True)]
        assert (order.outcome, [handler_run.crashed for handler_run in order.runs]) == (
            "accepted",
            [True, False],
        )


@run
async def test_record_that_kills_its_process_ends_with_the_dead_letters() -> None:
    async def bill(order: Order) -> None:
        await asyncio.Event().wait()

    async with shop(bill).test(patience_seconds=0.01) as t:
        order = await t.send("orders", Order(7))
        for _ in range(6):
            await t.settle()
            await t.crash()
        await t.settle()
        assert [letter.death.reason for letter in t.dead_letters] == ["deliveries-exhausted"]
        assert [handler_run.crashed for handler_run in order.runs] == [True] * 6


@run
async def test_crashes_while_burying_a_record_lose_no_record() -> None:
    """Each crash uses up a delivery; the last permitted one must not be the first attempt."""

    async def bill(order: Order) -> None:
        raise Reject("negative total")

    async with shop(bill).test() as t:
        t.fail_writes("orders.dead")
        order = await t.send("orders", Order(7))
        for _ in range(8):
            await t.settle()
            await t.crash()
        assert (len(order.runs), t.dead_letters) == (6, [])
        t.mend_writes("orders.dead")
        await t.advance("1m")
        assert order.outcome == "dead_lettered"


@run
async def test_retry_that_waits_survives_a_crash() -> None:
    async def bill(order: Order, record: Record) -> None:
        if record.attempt == 1:
            raise RetryAfter("10m")

    async with shop(bill).test() as t:
        order = await t.send("orders", Order(7))
        await t.advance("5m")
        await t.crash()
        await t.advance("10m")
        assert order.outcome == "accepted"
        assert order.times == pytest.approx((0.0, 600.0), abs=12)


@run
async def test_lost_lock_ends_the_handler_and_delivers_again() -> None:
    cancelled = []

    async def bill(order: Order, record: Record) -> None:
        if record.delivery_attempt == 1:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(record.offset)
                raise

    async with shop(bill).test(patience_seconds=0.05) as t:
        order = await t.send("orders", Order(7))
        await t.settle()
        t.lose_lock(order)
        await t.advance("10s")
        assert (cancelled, order.outcome, len(order.runs)) == ([0], "accepted", 2)


@run
async def test_settle_waits_for_a_plain_function_in_a_thread() -> None:
    began, may_end = threading.Event(), threading.Event()

    def bill(order: Order) -> None:
        began.set()
        assert may_end.wait(HANGING_SECONDS)

    async with shop(bill).test(patience_seconds=5) as t:
        order = await t.send("orders", Order(7))
        threading.Thread(target=lambda: began.wait(HANGING_SECONDS) and may_end.set()).start()
        await t.settle()
        assert order.outcome == "accepted"


@run
async def test_record_has_a_separate_outcome_in_each_group() -> None:
    app = App("shop")

    @app.share_group("billing", topics="orders", dead_letter=DeadLetter("dead"))
    async def bill(order: Order) -> None:
        raise Reject("no")

    @app.share_group("shipping", topics="orders", dead_letter=DeadLetter("dead"))
    async def ship(order: Order) -> None:
        """Done."""

    async with app.test() as t:
        order = await t.send("orders", Order(7))
        await t.settle()
        assert order.outcomes == {"billing": "dead_lettered", "shipping": "accepted"}
        assert len(order.runs_in("shipping")) == 1
        with pytest.raises(LookupError, match="read by 2 groups"):
            _ = order.outcome


@run
async def test_record_sent_with_a_delay_reaches_only_its_handler_after_the_delay() -> None:
    app = App("shop")

    @app.share_group("billing", topics="orders")
    async def bill(order: Order) -> None:
        """Done."""

    async with app.test() as t:
        order = await t.send(bill, Order(7), key="k", delay="10m")
        await t.advance("9m59s")
        assert (order.outcome, order.runs) == ("retrying", ())
        await t.advance("20s")
        assert order.outcome == "accepted"
        assert order.times == pytest.approx((600.0,), abs=12)
        assert t.in_topic("orders") == []


@run
async def test_handlers_may_send_to_each_other() -> None:
    app = App("shop")

    @app.share_group("billing", topics="orders")
    async def bill(order: Order) -> None:
        await ship.send(Order(order.id + 1))

    @app.share_group("shipping", topics="parcels")
    async def ship(order: Order) -> None:
        app.state.shipped = order

    async with app.test() as t:
        await t.send(bill, Order(7))
        await t.settle()
        assert app.state.shipped == Order(8)


@run
async def test_hooks_run_and_state_is_available() -> None:
    told = []

    async def bill(order: Order) -> None:
        told.append(app.state.name)

    app = shop(bill)

    @app.on_startup
    async def begin() -> None:
        app.state.name = "begun"

    @app.on_shutdown
    def end() -> None:
        told.append("ended")

    async with app.test() as t:
        await t.send("orders", Order(7))
        await t.settle()
    assert told == ["begun", "ended"]


@run
async def test_batch_handler_gets_many_at_a_time() -> None:
    sizes = []

    async def bill(orders: list[Order]) -> None:
        sizes.append(len(orders))

    async with shop(bill, batch=10).test() as t:
        for number in range(25):
            await t.send("orders", Order(number))
        await t.advance("1s")
        assert t.outcomes == {"accepted": 25}
        assert max(sizes) <= 10
        assert len(sizes) < 25


@run
async def test_a_day_passes_in_no_time() -> None:
    async def bill(order: Order) -> None:
        """Done."""

    async with shop(bill).test() as t:
        began = asyncio.get_running_loop().time()
        await t.advance("1d")
        assert t.now == 86_400
        assert asyncio.get_running_loop().time() - began < 5


@run
async def test_tasks_that_never_rest_are_reported() -> None:
    async def bill(order: Order) -> None:
        while True:
            await asyncio.sleep(0)

    async with shop(bill).test() as t:
        await t.send("orders", Order(7))
        with pytest.raises(NeverAtRest, match="some task is still ready"):
            await t.settle()


@run
async def test_consecutive_tests_of_an_application_share_no_state() -> None:
    async def bill(order: Order) -> None:
        """Done."""

    app = shop(bill)
    for _ in range(2):
        async with app.test() as t:
            await t.send("orders", Order(7))
            await t.settle()
            assert t.outcomes == {"accepted": 1}


crunched_in: list[int] = []


def crunch(order: Order) -> None:
    crunched_in.append(os.getpid())


@run
async def test_handler_with_processes_runs_in_the_process_of_the_test() -> None:
    app = shop(crunch, processes=2)
    async with app.test() as t:
        assert app.route_list[0].concurrency == 2  # As many at a time as there are processes.
        await t.send("orders", Order(7))
        await t.settle()
    assert crunched_in == [os.getpid()]
    assert app.route_list[0].processes == 2


@run
async def test_decision_by_hand_ends_the_run() -> None:
    async def bill(order: Order, record: Record) -> None:
        record.accept()

    async with shop(bill).test() as t:
        order = await t.send("orders", Order(7))
        await t.settle()
        assert (order.outcome, order.runs[0].ended_at) == ("accepted", 0.0)


@run
async def test_finished_test_has_no_event_listeners() -> None:
    async def bill(order: Order) -> None:
        """Done."""

    app = shop(bill)
    async with app.test():
        assert app.events.wants("record.started")
    assert not app.events.wants("record.started")


def _double(value: bytes) -> None: ...


@pytest.mark.parametrize("ending", ["hook", "worker"])
def test_start_that_fails_leaves_the_application_as_it_was(
    ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its handlers keep their processes, nothing listens any more, and no task is left."""
    app = App("shop")
    app.share_group("billing", topics="orders", handler=_double, processes=2)
    fails = True

    @app.on_startup
    def hook() -> None:
        if fails and ending == "hook":
            raise ConnectionError("the database is away")

    async def take(source: MemorySource, room: int, wait_seconds: float) -> list[MemoryDelivery]:
        raise GroupAuthorizationFailed("no right")

    async def test() -> None:
        nonlocal fails
        before = asyncio.all_tasks()
        with monkeypatch.context() as patched:
            if ending == "worker":
                patched.setattr(MemorySource, "take", take)
            with pytest.raises(ConnectionError if ending == "hook" else WorkerFailed):
                async with app.test():
                    raise AssertionError("it has not started")
        assert app.route_list[0].processes == 2
        assert not app.events.wants("record.succeeded")
        assert asyncio.all_tasks() == before
        fails = False
        async with app.test() as t:
            order = await t.send("orders", b"1")
            await t.settle()
            assert order.outcome == "accepted"

    asyncio.run(test())


@run
async def test_record_for_a_time_of_a_zone_runs_then() -> None:
    """The virtual time begins at 2026-01-01 00:00 UTC, which is 1:00 in Berlin."""
    app = App("shop")

    @app.share_group("billing", topics="orders")
    async def bill(order: Order) -> None: ...

    async with app.test() as t:
        at = datetime(2026, 1, 1, 9, 30, tzinfo=ZoneInfo("Europe/Berlin"))
        order = await t.send(bill, Order(7), at=at)
        await t.advance("8h29m")
        assert order.outcome == "retrying"
        await t.advance("2m")
        assert order.outcome == "accepted"
        assert order.times == (pytest.approx(8.5 * 3600, abs=1),)


@run
async def test_records_of_a_steered_group_wait_and_are_steered_in_virtual_time() -> None:
    """The commands are those of the control topic, which a test writes itself."""
    runs: list[int] = []

    async def bill(order: Order) -> None:
        runs.append(order.id)
        raise TimeoutError

    hourly = Retry(max_attempts=3, initial_delay="1h", multiplier=1, jitter=0)
    app = shop(bill, retry=hourly, steering=True)
    async with app.test() as t:
        first, second = [await t.send("orders", Order(number)) for number in (1, 2)]
        await t.settle()
        for retry in tuple(t._world.log.records("billing.retry.1h")):
            story = story_of(retry.headers)
            assert story.id is not None
            command = Command(
                record_id=story.id,
                intent=Intent.RUN if b'"id":1' in (retry.value or b"") else Intent.CANCEL,
                place=Place(retry.topic, retry.partition, retry.offset),
                ask=story.id,
                by="anna",
                asked_ms=0,
            )
            key, value = encoded(command)
            t._world.log.append("billing.retry.control", value, key=key)
        await t.advance("5s")
        assert runs == [1, 2, 1]
        assert (first.outcome, second.outcome) == ("retrying", "dead_lettered")
        assert [str(letter.death.reason) for letter in t.dead_letters] == ["cancelled"]
        await t.advance("2d")
        assert runs == [1, 2, 1, 1]
        assert first.outcome == "dead_lettered"
