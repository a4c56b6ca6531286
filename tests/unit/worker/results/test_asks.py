"""``handler.ask``: a request, and what the handler returned or how it failed."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from sharegroup.errors import InvalidConfig, NetworkException
from sharegroup.worker import (
    App,
    AskEnded,
    AskFailed,
    AskTimeout,
    Expiry,
    NotConnected,
    Record,
    Reject,
    Retry,
    TooManyAsks,
)
from sharegroup.worker.declarations.replies import PARTITIONS
from sharegroup.worker.results.asks import Asks
from sharegroup.worker.testing.app_test import AppTest
from tests.unit.worker.app_runs import run
from tests.unit.worker.results.scene import KINDS, Invoice, Order, billing

REPLIES = "orders-service.replies"
FORGED = "0/0123456789abcdef.1"


def asked(kind: str = "share_group", **options: Any) -> tuple[App, Any]:
    return billing(kind, replies=True, **options)


@KINDS
def test_ask_returns_what_the_handler_returned(kind: str, options: dict[str, Any]) -> None:
    app, bill = asked(kind, **options)

    async def test(t: AppTest) -> None:
        assert await bill.ask(Order(7, 30), timeout="5s", key="k") == Invoice(7, 3000)
        assert await bill.ask(Order(7), timeout="5s") is None
        assert app.outlet.asks is not None
        assert app.outlet.asks.waiting == 0
        assert t.now == 0

    run(app, test)


def test_failure_comes_back_with_class_text_and_reason_when_it_is_final() -> None:
    app, bill = asked(retry=Retry(max_attempts=2, initial_delay="1s", jitter=0))

    async def test(t: AppTest) -> None:
        with pytest.raises(
            AskFailed, match=r"bill failed after 1 attempts \(rejected\)"
        ) as rejected:
            await bill.ask(Order(7, -1), timeout="5s")
        assert rejected.value.error_text == "negative total **"
        again = asyncio.create_task(bill.ask(Order(7, 1), timeout="5s"))
        never = asyncio.create_task(bill.ask(Order(8, 2), timeout="5s"))
        await t.settle()
        assert not again.done()
        await t.advance("1s")
        assert await again == Invoice(7, 100)
        with pytest.raises(AskFailed, match="after 2 attempts") as failed:
            await never
        error = failed.value
        assert error.error_class == "builtins.ConnectionError"
        assert (error.error_text, error.reason) == ("never **", "attempts-exhausted")
        assert error.attempts == 2

    run(app, test)


@pytest.mark.parametrize("letters", [None, "orders.dead"])
def test_unreadable_request_is_answered_with_and_without_dead_letters(letters: str | None) -> None:
    app, _ = asked(dead_letter=letters)

    async def test(t: AppTest) -> None:
        asks = app.outlet.waiting_asks()
        address, waiting = await asks.begin()
        sent = await t.send("orders", b"not JSON", headers=[address.header("billing")])
        await t.settle()
        assert (await waiting).reason == "unreadable"
        assert sent.outcome == ("rejected" if letters is None else "dead_lettered")

    run(app, test)


def test_timeout_says_what_to_look_at_and_a_late_reply_is_counted_and_dropped() -> None:
    app, bill = asked(retry=Retry(max_attempts=2, initial_delay="1m", jitter=0))

    async def test(t: AppTest) -> None:
        asking = asyncio.create_task(bill.ask(Order(7, 1), timeout="5s"))
        await t.advance("4900ms")
        assert not asking.done()
        await t.advance("100ms")
        with pytest.raises(
            AskTimeout, match=r"no reply within 5 s; .* offset 0 of orders-0"
        ) as late:
            await asking
        assert "sharegroup retries list billing" in str(late.value)
        assert "topic 'orders-service.replies' is as it should be (sharegroup worker plan)" in str(
            late.value
        )
        await t.advance("2m")
        assert app.outlet.asks is not None
        assert (app.outlet.asks.unawaited, app.outlet.asks.waiting) == (1, 0)

    run(app, test)


def test_request_that_cannot_be_written_leaves_nothing() -> None:
    app, bill = asked()

    async def test(t: AppTest) -> None:
        t.fail_writes("orders")
        with pytest.raises(NetworkException):
            await bill.ask(Order(7), timeout="5s")
        assert app.outlet.asks is not None
        assert app.outlet.asks.waiting == 0

    run(app, test)


def test_asker_that_is_cancelled_leaves_nothing() -> None:
    app, bill = asked(retry=Retry(max_attempts=2, initial_delay="1m", jitter=0))

    async def test(t: AppTest) -> None:
        asking = asyncio.create_task(bill.ask(Order(7, 1), timeout="1h"))
        await t.settle()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert app.outlet.asks is not None
        assert app.outlet.asks.waiting == 0

    run(app, test)


def test_stop_ends_the_asks_that_wait() -> None:
    app, bill = asked(retry=Retry(max_attempts=2, initial_delay="1m", jitter=0))

    async def test() -> None:
        async with app.test() as t:
            asking = asyncio.create_task(bill.ask(Order(7, 1), timeout="1h"))
            await t.settle()
        with pytest.raises(AskEnded, match="the application stopped"):
            await asking
        with pytest.raises(NotConnected):
            await bill.ask(Order(7), timeout="1s")

    asyncio.run(test())


def test_crashed_worker_answers_after_the_next_delivery() -> None:
    app = App("orders-service")
    stuck = asyncio.Event()

    @app.share_group("billing", topics="orders", replies=True)
    async def bill(order: Order, record: Record) -> int:
        if record.delivery_attempt == 1:
            await stuck.wait()
        return order.id

    async def test(t: AppTest) -> None:
        # The asker is another process: its asks outlive the crash of the worker.
        asks = app.outlet.waiting_asks()
        address, _ = await asks.begin()
        await t.send("orders", b'{"id": 7}', headers=[address.header("billing")])
        await t.settle()
        await t.crash()
        await t.advance("1m")
        (reply,) = t.in_topic(REPLIES)
        assert (reply.key, reply.value) == (address.ask_id.encode(), b"7")

    run(app, test, patience_seconds=0.01)


def test_no_more_asks_wait_than_may() -> None:
    async def test() -> None:
        log = Log()
        asks = Asks(REPLIES, lambda _topic: log, asks_max=2)
        first, _ = await asks.begin()
        second, _ = await asks.begin()
        with pytest.raises(TooManyAsks, match="expected at most 2"):
            await asks.begin()
        asks.end(first)
        asks.end((await asks.begin())[0])
        asks.end(second)
        await asks.close()
        assert log.is_closed

    asyncio.run(test())


def test_replies_that_cannot_be_read_end_the_asks_and_the_next_one_reads_anew() -> None:
    async def test() -> None:
        logs = [Log(error=NetworkException("gone")), Log()]
        opened = iter(logs)
        asks = Asks(REPLIES, lambda _topic: next(opened))
        _, waiting = await asks.begin()
        logs[0].go_on.set()
        with pytest.raises(AskEnded, match="gone"):
            await waiting
        assert logs[0].is_closed
        await asks.begin()
        assert not logs[1].is_closed
        await asks.close()

    asyncio.run(test())


def test_a_start_goes_on_when_the_ask_that_began_it_has_ended() -> None:
    async def test() -> None:
        log = Log(starts=False)
        opened: list[str] = []
        asks = Asks(REPLIES, lambda topic: opened.append(topic) or log)  # type: ignore[func-returns-value]
        for _ in range(3):
            too_short = asyncio.create_task(asks.begin())
            await asyncio.sleep(0)
            too_short.cancel()
            await asyncio.gather(too_short, return_exceptions=True)
        log.may_start.set()
        await asks.begin()
        assert opened == [REPLIES]
        assert not log.is_closed
        await asks.close()
        assert log.is_closed

    asyncio.run(test())


def test_asks_that_are_closed_while_they_start_leave_no_reader() -> None:
    async def test() -> None:
        log = Log(starts=False)
        asks = Asks(REPLIES, lambda _topic: log)
        asking = asyncio.create_task(asks.begin())
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # The second task starts the reader.
        await asks.close()
        log.may_start.set()
        with pytest.raises(AskEnded, match="the application stopped"):
            await asking
        with pytest.raises(AskEnded, match="the request was not sent"):
            await asks.begin()
        assert log.is_closed
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(test())


def test_a_start_that_fails_is_raised_and_the_next_ask_starts_anew() -> None:
    async def test() -> None:
        logs = [Log(refuses=NetworkException("no broker")), Log()]
        opened = iter(logs)
        asks = Asks(REPLIES, lambda _topic: next(opened))
        both = await asyncio.gather(asks.begin(), asks.begin(), return_exceptions=True)
        assert [type(error) for error in both] == [NetworkException] * 2
        assert logs[0].is_closed
        await asks.begin()
        await asks.close()

    asyncio.run(test())


def test_an_ask_whose_application_stops_while_topics_are_prepared_opens_nothing() -> None:
    app, bill = asked()
    opened: list[str] = []

    async def test() -> None:
        may_go_on = asyncio.Event()
        async with app.test():
            app.outlet.prepare = may_go_on.wait
            asking = asyncio.create_task(bill.ask(Order(7, 30), timeout="5s"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        app.outlet.open_replies = lambda topic: opened.append(topic) or Log()  # type: ignore[func-returns-value]
        may_go_on.set()
        with pytest.raises(NotConnected):
            await asking
        assert opened == []
        assert app.outlet.asks is None

    asyncio.run(test())


class Log:
    """A topic for replies in which nothing arrives, or an error."""

    def __init__(
        self,
        error: Exception | None = None,
        *,
        starts: bool = True,
        refuses: Exception | None = None,
    ) -> None:
        self.error = error
        self.refuses = refuses
        self.go_on = asyncio.Event()
        self.may_start = asyncio.Event()
        self.is_closed = False
        if starts:
            self.may_start.set()

    async def start(self) -> int:
        await self.may_start.wait()
        if self.refuses is not None:
            raise self.refuses
        return 0

    async def read(self) -> Any:
        await self.go_on.wait()
        assert self.error is not None
        raise self.error

    async def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize(
    "header",
    [
        *(b"", b"x", b"0/", b"-1/0123456789abcdef.1", f"{PARTITIONS}/0123456789abcdef.1".encode()),
        *(b"0/0123456789abcdef.1\n", b"other-topic/0/0123456789abcdef.1", b"0/" + b"f" * 70_000),
    ],
)
def test_forged_request_makes_no_worker_write(header: bytes) -> None:
    app, _ = asked()

    async def test(t: AppTest) -> None:
        sent = await t.send("orders", Order(7, 30), headers={"sharegroup-reply": header})
        await t.settle()
        assert sent.outcome == "accepted"
        assert t.in_topic(REPLIES) == []

    run(app, test)


def test_forged_replies_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    app, bill = asked(retry=Retry(max_attempts=2, initial_delay="1s", jitter=0))

    async def test(t: AppTest) -> None:
        asking = asyncio.create_task(bill.ask(Order(7, 1), timeout="5s"))
        await t.settle()
        outbox = app.outlet.outbox
        assert outbox is not None
        for key, headers in ((None, []), (b"x", []), (b"0123456789abcdef.1", [])):
            await outbox.send(REPLIES, b"{}", key=key, headers=headers, partition=0)
        stranger = [("sharegroup-outcome", b"succeeded")]
        await outbox.send(REPLIES, b"{}", key=b"0123456789abcdef.1", headers=stranger, partition=0)
        await t.settle()
        assert not asking.done()
        await t.advance("1s")
        assert await asking == Invoice(7, 100)

    run(app, test)


@pytest.mark.parametrize("kind", ["share_group", "consumer_group"])
@pytest.mark.parametrize(
    ("options", "reason", "is_kept"),
    [
        ({"only": lambda record: False}, "filtered", False),
        ({"expires_after": Expiry(dead_letter=False), "order_by": "key"}, "expired", True),
        ({"expires_after": Expiry()}, "expired", True),
    ],
)
def test_request_that_is_not_handled_is_answered(
    kind: str, options: dict[str, Any], reason: str, is_kept: bool
) -> None:
    app, bill = asked(kind, result_for="1h", **options)

    async def test(t: AppTest) -> None:
        headers = {"expires": "0", "sharegroup-id": "order-7"}
        asking = asyncio.create_task(bill.ask(Order(7), timeout="5s", key="k", headers=headers))
        await t.advance("5s")
        with pytest.raises(AskFailed) as failed:
            await asking
        assert (failed.value.reason, failed.value.attempts) == (reason, 0)
        result = await bill.result("order-7")
        assert (result is not None and result.reason == reason) is is_kept
        # Nobody asks for the other one, so nothing is written for it.
        other = await t.send(bill, Order(8), headers={"expires": "0"})
        await t.settle()
        assert other.outcome == ("dead_lettered" if t.dead_letters else "accepted")
        assert len(t.in_topic(REPLIES)) == 1

    run(app, test)


def test_other_groups_of_the_topic_do_not_answer() -> None:
    app, bill = asked()

    @app.share_group("audit", topics="orders", replies=True)
    async def audit(order: Order) -> None:
        raise Reject("not for us")

    @app.share_group("mail", topics="orders", replies=True, only=lambda record: False)
    async def mail(order: Order) -> None: ...

    async def test(t: AppTest) -> None:
        assert await bill.ask(Order(7, 30), timeout="5s") == Invoice(7, 3000)
        await t.settle()
        assert len(t.in_topic(REPLIES)) == 1

    run(app, test)


@pytest.mark.parametrize("error", [None, RuntimeError("the producer is closed")])
@pytest.mark.parametrize("total", [30, -1])
def test_reply_that_cannot_be_written_is_missed_by_its_asker_alone(
    caplog: pytest.LogCaptureFixture, error: Any, total: int
) -> None:
    app, bill = asked()

    async def test(t: AppTest) -> None:
        t.fail_writes(REPLIES, error)
        asking = asyncio.create_task(bill.ask(Order(7, total), timeout="5s"))
        other = await t.send(bill, Order(8, total), headers={"sharegroup-reply": FORGED})
        await t.advance("5s")
        with pytest.raises(AskTimeout):
            await asking
        assert other.outcome == ("accepted" if total > 0 else "dead_lettered")

    with caplog.at_level(logging.WARNING):
        run(app, test)
    assert "event=reply.unwritten group=billing handler=bill" in caplog.text


@pytest.mark.parametrize("total", [30, -1])
def test_reply_that_blocks_makes_no_handler_run_again(
    caplog: pytest.LogCaptureFixture, total: int
) -> None:
    """The broker with the topic for replies is away: a write waits longer than a run may take."""
    app, _ = asked(max_handling="1s", concurrency=1)

    async def test(t: AppTest) -> None:
        outbox = app.outlet.outbox
        app.outlet.outbox = BlockedReplies(outbox)
        first = await t.send("orders", Order(7, total), headers={"sharegroup-reply": FORGED})
        await t.advance("4900ms")
        assert first.outcome != ("accepted" if total > 0 else "dead_lettered")
        await t.advance("200ms")
        assert first.outcome == ("accepted" if total > 0 else "dead_lettered")
        assert len(first.runs) == 1
        app.outlet.outbox = outbox

    with caplog.at_level(logging.WARNING):
        run(app, test, patience_seconds=0.01)
    assert "event=reply.unwritten group=billing handler=bill" in caplog.text


class BlockedReplies:
    """An outbox whose writes of replies never end."""

    def __init__(self, outbox: Any) -> None:
        self.outbox = outbox

    async def send(self, topic: str, value: bytes | None, **options: Any) -> Any:
        if topic == REPLIES:
            await asyncio.Event().wait()
        return await self.outbox.send(topic, value, **options)


def test_value_that_is_too_large_for_a_reply_comes_back_as_a_failure() -> None:
    app = App("orders-service")

    @app.share_group("billing", topics="orders", replies=True)
    async def bill(size: int) -> str:
        return "x" * size

    async def test(t: AppTest) -> None:
        assert len(await bill.ask(900 * 1024, timeout="5s")) == 900 * 1024
        with pytest.raises(AskFailed, match="expected up to 921600") as failed:
            await bill.ask(900 * 1024 + 1, timeout="5s")
        assert failed.value.reason == "reply-too-large"

    run(app, test)


def test_handler_asks_another_one_and_one_with_exactly_once_is_refused() -> None:
    app, bill = asked()
    said: list[object] = []

    @app.share_group("shipping", topics="parcels")
    async def ship(order: Order) -> None:
        said.append(await bill.ask(order, timeout="5s"))

    @app.consumer_group("auditing", topics="audits", exactly_once=True, retry=None)
    async def audit(order: Order) -> None:
        try:
            await bill.ask(order, timeout="5s")
        except InvalidConfig as error:
            said.append(str(error))

    async def test(t: AppTest) -> None:
        await t.send(ship, Order(7, 30))
        await t.settle()
        await t.send(audit, Order(8, 30))
        await t.settle()
        assert said[0] == Invoice(7, 3000)
        assert "a handler with exactly_once sends when it has returned" in str(said[1])

    run(app, test)


def test_misuse_is_refused_with_what_to_write() -> None:
    app = App("orders-service")

    @app.share_group("billing", topics="orders")
    async def bill(order: Order) -> None: ...

    asked_app, asked_bill = asked()

    async def test() -> None:
        async with app.test(), asked_app.test():
            with pytest.raises(InvalidConfig, match="replies=True"):
                await bill.ask(Order(7), timeout="1s")
            with pytest.raises(ValueError, match="expected more than 0"):
                await asked_bill.ask(Order(7), timeout=0)

    asyncio.run(test())
    with pytest.raises(InvalidConfig, match="replies=1; expected True or False"):
        app.share_group("other", topics="others", replies=1)(bill)  # type: ignore[call-overload]
