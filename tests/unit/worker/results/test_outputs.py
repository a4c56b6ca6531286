"""``to``: what a handler returns is sent to another topic, before its record is accepted."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from sharegroup.errors import InvalidConfig
from sharegroup.worker import App, MemoryStore, Payload, Record, Retry
from sharegroup.worker.declarations.outputs import fits
from sharegroup.worker.testing.app_test import AppTest
from tests.unit.worker.app_runs import run
from tests.unit.worker.results.scene import KINDS, Invoice, Order


class Late(Invoice):
    """A subclass of what the topic has."""


def chain(kind: str = "share_group", **options: Any) -> tuple[App, list[tuple[Invoice, Record]]]:
    """An application in which one handler sends to the next; and what that got."""
    app = App("orders-service", store=MemoryStore())
    billed = app.topic("billed", payload=Invoice)
    got: list[tuple[Invoice, Record]] = []

    @getattr(app, kind)("billing", topics="orders", to=billed, **options)
    async def bill(order: Order) -> Invoice | None:
        if order.total < 0:
            raise ValueError("negative")
        return Invoice(order.id, order.total * 100) if order.total else None

    @app.share_group("mailing", topics=billed)
    async def mail(invoice: Invoice, record: Record) -> None:
        got.append((invoice, record))

    return app, got


@KINDS
def test_next_handler_gets_what_the_first_returned(kind: str, options: dict[str, Any]) -> None:
    app, got = chain(kind, **options)

    async def test(t: AppTest) -> None:
        await t.send("orders", Order(7, 30), key="customer-1", headers={"tenant": "north"})
        await t.send("orders", Order(8, 0))  # Returns None.
        await t.advance("2s")  # The commit of the consumer group.
        ((invoice, record),) = got
        assert invoice == Invoice(7, 3000)
        assert record.key == b"customer-1"
        assert record.headers == (("tenant", b"north"), ("sharegroup-id", b"orders-0-0"))
        assert len(t.in_topic("billed")) == 1

    run(app, test)


def test_id_of_the_first_record_goes_through_the_chain_and_a_request_for_a_reply_does_not() -> None:
    app, got = chain()

    async def test(t: AppTest) -> None:
        headers = {"sharegroup-id": "order-7", "sharegroup-reply": "0/0123456789abcdef.1"}
        await t.send("orders", Order(7, 30), headers=headers)
        await t.settle()
        assert got[0][1].headers == (("sharegroup-id", b"order-7"),)

    run(app, test)


def test_failed_run_sends_nothing_and_a_failed_send_is_a_failed_run() -> None:
    app, got = chain(retry=Retry(max_attempts=2, initial_delay="1s", jitter=0))

    async def test(t: AppTest) -> None:
        bad = await t.send("orders", Order(7, -1))
        await t.advance("1m")
        assert bad.outcome == "dead_lettered"
        assert t.in_topic("billed") == []
        t.fail_writes("billed")
        good = await t.send("orders", Order(8, 1))
        await t.settle()
        assert good.outcome == "retrying"
        t.mend_writes("billed")
        await t.advance("1m")
        assert good.outcome == "accepted"
        assert [invoice.order for invoice, _ in got] == [8]

    run(app, test)


@pytest.mark.parametrize("verb", ["release", "reject", "pause"])
def test_handler_that_decides_against_its_record_sends_nothing(verb: str) -> None:
    app = App("orders-service")
    app.topic("billed", payload=int)

    @app.share_group("billing", topics="orders", to="billed")
    async def bill(order: Order, record: Record) -> int:
        if record.delivery_attempt == 1:
            getattr(record, verb)(*(["1h"] if verb == "pause" else []))
        return 1

    async def test(t: AppTest) -> None:
        await t.send(bill, Order(1))
        await t.settle()
        assert len(t.in_topic("billed")) == (1 if verb == "release" else 0)

    run(app, test)


def test_crash_between_the_send_and_the_end_sends_again_and_loses_nothing() -> None:
    app = App("orders-service")
    app.topic("billed", payload=int)
    stuck = asyncio.Event()

    @app.middleware
    async def hang_once(call: Any, proceed: Any) -> Any:
        value = await proceed(call)
        if call.record.delivery_attempt == 1:
            await stuck.wait()
        return value

    @app.share_group("billing", topics="orders", to="billed")
    async def bill(order: Order) -> int:
        return order.id

    async def test(t: AppTest) -> None:
        sent = await t.send(bill, Order(7))
        await t.settle()
        await t.crash()
        await t.advance("1m")
        assert sent.outcome == "accepted"
        assert [record.value for record in t.in_topic("billed")] == [b"7", b"7"]

    run(app, test, patience_seconds=0.01)


@pytest.mark.parametrize("grace", ["ends", "is given up"])
def test_handler_that_swallows_its_interruption_sends_and_reports_nothing(grace: str) -> None:
    app = App("orders-service", store=MemoryStore())
    app.topic("billed", payload=int)
    late = asyncio.Event()

    @app.share_group(
        *("billing",), topics="orders", to="billed", result_for="1h", max_handling="1s", retry=None
    )
    async def bill(order: Order) -> int:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if grace == "is given up":
                with suppress(asyncio.CancelledError):
                    await late.wait()
        return order.id

    async def test(t: AppTest) -> None:
        sent = await t.send(bill, Order(7))
        await t.advance("1m")
        late.set()
        await t.settle()
        assert sent.outcome == "dead_lettered"
        assert t.in_topic("billed") == []
        result = await bill.result("orders-0-0")
        assert result is not None
        assert result.state == "failed"

    run(app, test, patience_seconds=0.01)


def test_exactly_once_sends_one_output_for_a_record_that_ran_twice() -> None:
    app, got = chain("consumer_group", exactly_once=True)
    runs = []

    @app.middleware
    async def fail_once(call: Any, proceed: Any) -> Any:
        value = await proceed(call)
        runs.append(value)
        if len(runs) == 1:
            raise ConnectionError("after the output was buffered")
        return value

    async def test(t: AppTest) -> None:
        await t.send("orders", Order(7, 30))
        await t.advance("1m")
        assert len(t.in_topic("billed")) == 1
        assert len(got) == 1

    run(app, test)


def test_trace_of_the_producer_goes_on_unless_a_run_is_traced() -> None:
    app, got = chain()

    async def test(t: AppTest) -> None:
        await t.send("orders", Order(1, 1), headers={"traceparent": "of-the-producer"})
        await t.settle()
        app.before_send(lambda _topic, headers: headers.append(("traceparent", b"of-the-run")))
        await t.send("orders", Order(2, 1), headers={"traceparent": "of-the-producer"})
        await t.settle()
        traces = [record.header("traceparent") for _, record in got]
        assert traces == [b"of-the-producer", b"of-the-run"]

    run(app, test)


def test_plain_function_sends_from_its_thread() -> None:
    app = App("orders-service")
    app.topic("billed")

    @app.share_group("billing", topics="orders", to="billed")
    def bill(order: Order) -> str:
        return f"order {order.id}"

    async def test(t: AppTest) -> None:
        await t.send(bill, Order(7))
        await t.settle()
        assert [record.value for record in t.in_topic("billed")] == [b"order 7"]

    run(app, test)


def test_value_of_another_type_than_annotated_fails_with_the_names_of_both() -> None:
    app = App("orders-service")
    app.topic("billed", payload=Invoice)

    @app.share_group("billing", topics="orders", to="billed", retry=None)
    async def bill(order: Order):  # type: ignore[no-untyped-def]
        return order

    async def test(t: AppTest) -> None:
        await t.send(bill, Order(7))
        await t.settle()
        (letter,) = t.dead_letters
        assert "bill: what it returned cannot be sent to 'billed'" in letter.death.error_message
        assert "expected Invoice, got Order" in letter.death.error_message

    run(app, test)


# Declarations.


def declared(returns: Any, *, topic: Any = None, reader: Any = None, **options: Any) -> App:
    app = App("orders-service")
    if topic is not None:
        app.topic("billed", payload=topic)
    if reader is not None:

        async def mail(invoice: Any) -> None: ...

        mail.__annotations__["invoice"] = reader
        app.share_group("mailing", topics="billed", payload=options.pop("read", None))(mail)

    async def bill(order: Order) -> None: ...

    bill.__annotations__["return"] = returns
    app.share_group("billing", topics="orders", to="billed", **options)(bill)
    return app


def test_topic_is_declared_before_the_handler_that_sends_to_it() -> None:
    with pytest.raises(InvalidConfig, match=r"app\.topic\('billed', payload=Invoice\)"):
        declared(Invoice)
    assert declared(Invoice, topic=Invoice).route_list[0].output is not None
    assert declared(Invoice, reader=Invoice).route_list[1].output is not None


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"topic": Order}, "it gets Invoice, and has Order as app.topic declares it"),
        ({"reader": Order}, "has Order as handler mail of group 'mailing' reads it"),
        ({"reader": Order, "read": Payload(decode=bytes)}, "has Order as handler mail"),
        ({"reader": Invoice, "read": Payload(decode=bytes)}, "has no `encode`"),
        ({"topic": Invoice, "returns": None}, "annotated `-> None`"),
    ],
)
def test_types_that_do_not_fit_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidConfig, match=problem):
        declared(**{"returns": Invoice, **options})


def test_reader_that_is_declared_later_must_fit_too() -> None:
    app = declared(Invoice, topic=Invoice)
    with pytest.raises(InvalidConfig, match="has Order as handler wrong of group 'late' reads it"):

        @app.share_group("late", topics="billed")
        async def wrong(order: Order) -> None: ...

    assert len(app.route_list) == 1


def test_topic_of_the_handler_itself_its_group_or_replies_is_refused() -> None:
    app = App("orders-service")
    for to, problem in (
        ("orders", "would form a loop"),
        ("billing.retry", "the group's own"),
        ("billing.retry.30s", "the group's own"),
        ("a b", "expected 1 to 249"),
        ("orders-service.replies", "the one for replies"),
    ):
        with pytest.raises(InvalidConfig, match=problem):

            @app.share_group("billing", topics="orders", to=to)
            async def bill(order: Order) -> Invoice: ...


def test_handlers_that_send_to_each_other_in_a_loop_are_refused() -> None:
    app = App("orders-service")
    for topic in ("a", "b", "c"):
        app.topic(topic, payload=int)

    async def step(number: int) -> int:
        return number

    for topic, to in (("a", "b"), ("b", "c"), ("other", "c")):
        app.share_group(f"group-{topic}", topics=topic, to=to, name=f"step-{topic}")(step)
    with pytest.raises(InvalidConfig, match=r"loop \(step-a -> step-b -> step-c -> step-a\)"):
        app.share_group("group-c", topics="c", to="a", name="step-c")(step)


@pytest.mark.parametrize("options", [{"to": "billed"}, {"replies": True}, {"result_for": "1h"}])
def test_batch_handler_is_refused(options: dict[str, Any]) -> None:
    app = App("orders-service", store=MemoryStore())
    with pytest.raises(InvalidConfig, match=f"{next(iter(options))}: a batch handler"):

        @app.share_group("billing", topics="orders", **options)
        async def bill(orders: list[Order]) -> None: ...


def test_what_fits() -> None:
    assert fits(Invoice, Invoice)
    assert fits(Late, Invoice)
    assert not fits(Invoice, Late)
    assert fits(Invoice | None, Invoice)
    assert fits(Any, Invoice)
    assert fits(Invoice, Any)
    assert fits(dict[str, int], dict)
    assert fits(dict, dict[str, int])
    assert not fits(dict[str, int], dict[str, str])
    assert fits(int | str, int | str | None)
    assert not fits(int | str, int)
    assert not fits(bytes, str)


def test_narrowed_process_encodes_as_the_reader_that_it_does_not_run() -> None:
    app = declared(Invoice, reader=Invoice, read=Payload(decode=bytes, encode=lambda _: b"own"))
    app.narrow(["billing"])
    (route,) = app.route_list
    assert route.output is not None
    assert route.output.encode(Invoice(1, 2), "billed") == b"own"
