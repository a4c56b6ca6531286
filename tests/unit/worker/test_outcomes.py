"""What becomes of a record, by the worker itself: the table of docs/worker.md, row by row.

`decisions/test_decide.py` has what is decided of each row; here the whole worker runs, in virtual
time, and what is looked at is what a user sees: outcome, when it ran, its dead letter.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from sharegroup.worker import App, Event, Record, Reject, Release, Retry, RetryAfter, SomeFailed
from sharegroup.worker.testing.app_test import AppTest

PATIENCE_SECONDS = 0.02
"""No handler here waits for anything outside of its test, so none is waited for long."""
EXACT = Retry(
    max_attempts=3,
    initial_delay="10s",
    multiplier=2,
    jitter=0,
    retry_on=TimeoutError,
    dont_retry_on=InterruptedError,
)


@dataclass
class Order:
    id: int = 1


def worker(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test that is a coroutine function."""

    @functools.wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


def shop(does: Callable[[Record], Any], **options: Any) -> tuple[App, Any]:
    """An application whose handler does this, and returns or raises as that does."""
    app = App("shop")

    @app.share_group("billing", topics="orders", **{"retry": EXACT, **options})
    async def bill(order: Order | None, record: Record) -> None:
        ended = does(record)
        if asyncio.iscoroutine(ended):
            await ended

    return app, bill


def raising(*errors: BaseException | None) -> Callable[[Record], None]:
    """Raise these, one in each run; None, or no more of them: return."""
    left = list(errors)

    def does(record: Record) -> None:
        error = left.pop(0) if left else None
        if error is not None:
            raise error

    return does


async def ending(
    does: Callable[[Record], Any], *, value: Any = None, **options: Any
) -> tuple[str, tuple[float, ...], list[str]]:
    """How a record ends in a day: its outcome, when it ran, and why it is a dead letter."""
    app, bill = shop(does, **options)
    async with app.test(patience_seconds=PATIENCE_SECONDS) as t:
        order = await t.send(bill, Order() if value is None else value)
        await t.advance("1d")
        return order.outcome, times(order), reasons(t)


def times(order: Any) -> tuple[float, ...]:
    return tuple(round(time, 1) for time in order.times)


def reasons(t: AppTest) -> list[str]:
    return [letter.death.reason for letter in t.dead_letters]


@worker
async def test_row_1_handler_that_returns() -> None:
    assert await ending(raising(None)) == ("accepted", (0.0,), [])


@worker
async def test_row_2_reject() -> None:
    assert await ending(raising(Reject("no"))) == ("dead_lettered", (0.0,), ["rejected"])
    assert await ending(lambda record: record.reject("no")) == (
        "dead_lettered",
        (0.0,),
        ["rejected"],
    )
    assert await ending(raising(Reject("no")), dead_letter=None) == ("rejected", (0.0,), [])


@worker
async def test_row_3_released_record_is_redelivered_immediately() -> None:
    assert await ending(raising(Release(), Release())) == ("accepted", (0.0, 0.0, 0.0), [])


@worker
async def test_row_3_record_released_with_a_delay_is_redelivered_after_it() -> None:
    """A delay of the broker may last a sixteenth longer; it costs no attempt."""
    for release in (raising(Release(delay="1m")), lambda record: released_once(record, "1m")):
        outcome, (first, again), letters = await ending(release, retry=None)
        assert (outcome, first, letters) == ("accepted", 0.0, [])
        assert 60 <= again <= 60 + 60 / 16


def released_once(record: Record, delay: str) -> None:
    if record.delivery_attempt == 1:
        record.release(delay=delay)


@worker
async def test_row_4_retry_after_runs_again_after_its_delay() -> None:
    assert await ending(raising(RetryAfter("1m"))) == ("accepted", (0.0, 60.0), [])
    assert await ending(lambda record: record.pause("2s") if record.attempt == 1 else None) == (
        "accepted",
        (0.0, 2.0),
        [],
    )


@worker
async def test_row_5_failure_is_retried_after_the_delays_of_the_policy() -> None:
    outcome, ran, letters = await ending(raising(TimeoutError(), TimeoutError()))
    assert (outcome, letters) == ("accepted", [])
    assert ran == (0.0, 10.0, 30.0)


@worker
async def test_row_6_failure_of_the_last_attempt() -> None:
    for error in (TimeoutError("slow"), RetryAfter("10s", "slow")):
        outcome, ran, letters = await ending(raising(*[error] * 9))
        assert (outcome, len(ran), letters) == ("dead_lettered", 3, ["attempts-exhausted"])


@worker
async def test_row_7_failure_not_in_the_policy_is_dead_lettered() -> None:
    assert await ending(raising(ValueError())) == ("dead_lettered", (0.0,), ["not-retried"])


@worker
async def test_row_8_failure_that_is_never_tried_again() -> None:
    assert await ending(raising(InterruptedError())) == ("dead_lettered", (0.0,), ["not-retried"])


@worker
async def test_row_9_failure_without_a_policy() -> None:
    for error in (TimeoutError(), RetryAfter("1s")):
        assert await ending(raising(error), retry=None) == (
            "dead_lettered",
            (0.0,),
            ["not-retried"],
        )


@worker
async def test_row_10_unreadable_record() -> None:
    assert await ending(raising(), value=b"\xff") == ("dead_lettered", (), ["unreadable"])


@worker
async def test_row_11_unreadable_record_is_rejected_without_a_dead_letter() -> None:
    assert await ending(raising(), value=b"\xff", unreadable="reject") == ("rejected", (), [])


@worker
async def test_row_12_unreadable_record_is_released_until_its_deliveries_end() -> None:
    """Another process may be able to read it; otherwise the delivery limit ends it."""
    assert await ending(raising(), value=b"\xff", unreadable="release") == (
        "dead_lettered",
        (),
        ["deliveries-exhausted"],
    )


@worker
async def test_row_13_last_permitted_delivery() -> None:
    outcome, ran, letters = await ending(raising(*[Release()] * 9))
    assert (outcome, ran, letters) == ("dead_lettered", (0.0,) * 6, ["deliveries-exhausted"])


@worker
async def test_row_14_group_of_exceptions() -> None:
    both = ExceptionGroup("both", [TimeoutError(), Reject("no")])
    assert await ending(raising(both)) == ("dead_lettered", (0.0,), ["rejected"])


@worker
async def test_row_15_error_that_is_no_exception() -> None:
    anything = Retry(max_attempts=3, initial_delay="10s", multiplier=1, jitter=0)
    for error in (asyncio.CancelledError(), SystemExit(3)):
        assert await ending(raising(error), retry=anything) == ("accepted", (0.0, 10.0), [])


@worker
async def test_row_16_explicit_decision_is_kept() -> None:
    def accepts_and_fails(record: Record) -> None:
        record.accept()
        raise TimeoutError("after the decision")

    assert await ending(accepts_and_fails) == ("accepted", (0.0,), [])


@worker
async def test_row_17_handler_that_runs_too_long() -> None:
    async def hangs(record: Record) -> None:
        if record.attempt == 1:
            await asyncio.Event().wait()

    outcome, ran, letters = await ending(hangs, max_handling="1m")
    assert (outcome, len(ran), letters) == ("accepted", 2, [])
    assert 70.0 <= ran[1] <= 72.0  # A minute, ten seconds, and the watch's step.


@worker
async def test_row_19_lock_that_is_lost() -> None:
    app, bill = shop(
        lambda record: asyncio.Event().wait() if record.delivery_attempt == 1 else None
    )
    async with app.test(patience_seconds=PATIENCE_SECONDS) as t:
        order = await t.send(bill, Order())
        await t.settle()
        t.lose_lock(order)
        await t.advance("1m")
        assert (order.outcome, len(order.times)) == ("accepted", 2)
        assert reasons(t) == []


@worker
async def test_row_21_process_that_is_killed() -> None:
    app, bill = shop(
        lambda record: asyncio.Event().wait() if record.delivery_attempt == 1 else None
    )
    async with app.test(patience_seconds=PATIENCE_SECONDS) as t:
        order = await t.send(bill, Order())
        await t.settle()
        await t.crash()
        await t.advance("1m")
        assert order.outcome == "accepted"
        assert [run.attempt for run in order.runs] == [1, 1]


@worker
async def test_row_25_exception_that_cannot_be_judged() -> None:
    def raises(record: Record) -> None:
        raise RetryAfter.__new__(RetryAfter)  # Without its constructor.

    outcome, ran, letters = await ending(raises)
    assert (outcome, len(ran), letters) == ("dead_lettered", 1, ["not-retried"])


@worker
async def test_row_22_records_of_a_batch_are_settled_individually() -> None:
    app = App("shop")

    @app.share_group("billing", topics="orders", retry=EXACT, batch=4)
    async def bill(orders: list[Order], records: list[Record]) -> list[Any]:
        if records[0].attempt > 1:
            raise SomeFailed({0: Reject("later")})
        return [None, Reject("no"), TimeoutError(), 3]

    async with app.test(patience_seconds=PATIENCE_SECONDS) as t:
        orders = [await t.send(bill, Order(number)) for number in range(4)]
        await t.advance("1m")
        assert [order.outcome for order in orders] == [
            "accepted",
            "dead_lettered",
            "dead_lettered",
            "accepted",
        ]
        assert reasons(t) == ["rejected", "rejected"]


@worker
async def test_row_23_topic_that_can_not_be_written() -> None:
    waiting = ("billing.retry.10m", "billing.retry.due")
    for topics, error, ended in (
        (("billing.dead",), Reject("no"), "dead_lettered"),
        (waiting, RetryAfter("10m"), "accepted"),
    ):
        app, bill = shop(raising(error), retry_tiers=("10m",))
        heard: list[str] = []
        app.on("outbox.blocked", lambda event, heard=heard: heard.append(event.name))
        app.on("outbox.unblocked", lambda event, heard=heard: heard.append(event.name))
        async with app.test(patience_seconds=PATIENCE_SECONDS) as t:
            for topic in topics:
                t.fail_writes(topic)
            order = await t.send(bill, Order())
            await t.advance("5m")
            assert order.outcome not in {"accepted", "dead_lettered", "rejected", "exhausted"}
            assert (len(order.times), set(heard)) == (1, {"outbox.blocked"})
            for topic in topics:
                t.mend_writes(topic)
            await t.advance("1h")
            assert (order.outcome, heard[-1]) == (ended, "outbox.unblocked")


@worker
async def test_row_23_missing_retry_topic_holds_no_record_of_another() -> None:
    delays = ("10m", "1m", "10m", "1m")
    app, bill = shop(raising(*map(RetryAfter, delays)), retry_tiers=("1m", "10m"))
    postponed: list[int | None] = []
    app.on("record.postponed", lambda event: postponed.append(event.offset))
    async with app.test(patience_seconds=PATIENCE_SECONDS) as t:
        t.fail_writes("billing.retry.10m")
        for _ in delays:
            await t.send(bill, Order(), key=b"same")
            await t.advance("1s")
        assert postponed == [1, 3]
        # After 12 s the rest of ten minutes is a delay of ten times one minute.
        await t.advance("1m")
        assert set(postponed) == {0, 1, 2, 3}


@worker
async def test_registry_that_is_away_is_tried_again_and_foreign_bytes_are_not() -> None:
    from sharegroup.worker import Payload
    from sharegroup.worker.payloads.registry import RegistryAway

    answers: list[Exception | None] = [RegistryAway("HTTP 503"), None]

    def decode(value: bytes) -> Order:
        answer = answers.pop(0) if answers else None
        if answer is not None:
            raise answer
        return Order(int(value))

    payload = Payload(decode, encode=lambda order: b"%d" % order.id)
    retry = Retry(max_attempts=3, initial_delay="10s", jitter=0)
    app, bill = shop(raising(), payload=payload, retry=retry)
    object.__setattr__(bill.route.codec, "may_block", True)  # As a registry's: in a thread.
    async with app.test(patience_seconds=PATIENCE_SECONDS) as t:
        good = await t.send(bill, Order(7))
        await t.advance("1m")
        bad = await t.send(bill, b"seven")
        await t.advance("1m")
        assert (good.outcome, bad.outcome) == ("accepted", "dead_lettered")
        assert reasons(t) == ["unreadable"]


@worker
async def test_application_notes_a_dead_letter_before_it_is_written() -> None:
    app, bill = shop(raising(Reject("no"), Reject("no")))
    noted: list[tuple[bytes | None, list[str]]] = []
    async with app.test(patience_seconds=PATIENCE_SECONDS) as t:

        async def note(event: Event) -> None:
            noted.append((event.details["key"], reasons(t)))

        app.events.before_letter = note
        await t.send(bill, Order(), key="a")
        await t.advance("1m")
        assert (noted, reasons(t)) == ([(b"a", [])], ["rejected"])
