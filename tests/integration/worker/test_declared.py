"""What an application declares, on a real broker: kinds of handlers, payloads, senders, verbs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic

from sharegroup.client import Producer
from sharegroup.worker import App, Call, Proceed, Record, Reject, Retry
from sharegroup.worker.events import Event
from tests.integration.worker import process_routes
from tests.integration.worker.collecting import Collected, on_a_loop
from tests.integration.worker.dead import lying_in


@dataclass
class Order:
    total: int


class Sold(msgspec.Struct):
    price: int


class Model(pydantic.BaseModel):
    total: int = pydantic.Field(ge=0)


@on_a_loop
async def test_every_kind_of_handler_gets_the_records_of_its_sender(
    bootstrap: str, topic: str, group: str
) -> None:
    app = App("kinds", bootstrap_servers=bootstrap)
    got = Collected()

    @app.share_group(f"{group}-coroutine", topics=f"{topic}-coroutine")
    async def coroutine(order: Order, record: Record) -> None:
        got.add("coroutine", order, record.topic.endswith("-coroutine"), record.key)

    @app.share_group(f"{group}-function", topics=f"{topic}-function")
    def function(value: bytes) -> None:
        coroutine.send.blocking(Order(len(value)), key="from a thread")
        got.add("function", value)

    @app.share_group(f"{group}-class", topics=f"{topic}-class")
    class Selling:
        async def open(self) -> None:
            got.add("opened", app.state.shop)

        async def handle(self, sold: Sold) -> None:
            got.add("class", sold)

        def close(self) -> None:
            got.add("closed", app.state.shop)

    @app.share_group(f"{group}-batch", topics=f"{topic}-batch", batch=10)
    async def batch(models: list[Model], records: list[Record]) -> None:
        for model, record in zip(models, records, strict=True):
            got.add("batch", model, record.header("n"))

    @app.on_startup
    async def open_shop(given: App) -> None:
        given.state.shop = "shop"

    @app.on_shutdown
    async def close_shop() -> None:
        got.add("shop closed")

    async with app:
        await function.send(b"four")
        await Selling.send(Sold(7))
        for number in range(3):
            await batch.send(Model(total=number), headers={"n": str(number)})
        await got.wait_for(7)
    assert got.seen("opened") == [("shop",)]
    assert got.seen("function") == [(b"four",)]
    assert got.seen("coroutine") == [(Order(4), True, b"from a thread")]
    assert got.seen("class") == [(Sold(7),)]
    assert sorted(got.seen("batch"), key=lambda batch: batch[0].total) == [
        (Model(total=number), str(number).encode()) for number in range(3)
    ]
    assert [name for name, *_ in got.all[-2:]] == ["closed", "shop closed"]


@on_a_loop
async def test_delayed_send_reaches_this_group_alone_and_not_early(
    bootstrap: str, topic: str, group: str
) -> None:
    app = App("delays", bootstrap_servers=bootstrap)
    got = Collected()
    loop = asyncio.get_running_loop()

    @app.share_group(group, topics=topic, retry=Retry(max_attempts=1))
    async def handler(order: Order, record: Record) -> None:
        got.add("mine", order, record.topic, record.offset, record.attempt, loop.time())

    @app.share_group(f"{group}-other", topics=topic)
    async def other(order: Order) -> None:
        got.add("other", order)

    async with app:
        await handler.send(Order(0))  # Apache Kafka assigns a new group's topics after seconds.
        await got.wait_for(2)
        began = loop.time()
        written = await handler.send(Order(1), delay="600ms")
        await got.wait_for(3)
        await handler.send(Order(2))
        await got.wait_for(5)
    assert written.topic == f"{group}.retry.due"
    _, first, second = got.seen("mine")
    assert first[:4] == (Order(1), topic, -1, 1)
    assert 0.6 <= first[4] - began < 5.0
    assert second[:2] == (Order(2), topic)
    assert got.seen("other") == [(Order(0),), (Order(2),)]


@on_a_loop
async def test_process_that_only_sends_handles_nothing(
    bootstrap: str, topic: str, group: str
) -> None:
    got = Collected()
    web, worker = (
        App("web", bootstrap_servers=bootstrap),
        App("worker", bootstrap_servers=bootstrap),
    )

    async def handler(order: Order) -> None:
        got.add("handled", order)

    sender = web.share_group(group, topics=topic, handler=handler)
    async with web.client():
        written = await sender.send(Order(1), key="k")
    assert (written.topic, written.offset) == (topic, 0)
    assert got.all == []
    worker.share_group(group, topics=topic, handler=handler)
    async with worker:
        await got.wait_for(1)
    assert got.seen("handled") == [(Order(1),)]


@on_a_loop
async def test_unreadable_bytes_become_dead_letters(bootstrap: str, topic: str, group: str) -> None:
    app = App("unreadable", bootstrap_servers=bootstrap)
    got = Collected()
    app.on("record.dead_lettered", lambda event: got.add("buried", event.offset))

    @app.share_group(group, topics=topic)
    async def handler(model: Model) -> None:
        got.add("handled", model)

    async with Producer(bootstrap_servers=bootstrap) as producer:
        for value in (b'{"total":-1}', b"\xff\x00", None, b'{"total":1}'):
            await producer.send_and_wait(topic, value, key=b"k", headers=[("a", b"\x00")])
    async with app:
        await got.wait_for(4)
    assert got.seen("handled") == [(Model(total=1),)]
    dead = await lying_in(bootstrap, f"{group}.dead")
    assert {record.value for record in dead} == {None, b"\xff\x00", b'{"total":-1}'}
    assert len(dead) == 3
    assert {record.key for record in dead} == {b"k"}
    assert all(record.headers[0] == ("a", b"\x00") for record in dead)


@on_a_loop
async def test_explicit_decision_overrides_the_later_outcome_of_the_handler(
    bootstrap: str, topic: str, group: str
) -> None:
    app = App("by-hand", bootstrap_servers=bootstrap)
    got = Collected()

    def tell(event: Event) -> None:
        got.add(event.name, event.record.value if event.record else None)

    for name in ("record.succeeded", "record.rejected", "record.released", "record.held"):
        app.on(name, tell)

    @app.share_group(group, topics=topic, dead_letter=None)
    async def handler(verb: str, record: Record) -> None:
        if record.delivery_attempt > 1 or record.attempt > 1:
            return
        if verb == "pause":
            record.pause("100ms")
        else:
            getattr(record, verb)()
        if verb == "accept":
            raise ValueError("after the decision")

    async with app:
        for verb in ("accept", "reject", "release", "pause"):
            await handler.send(verb)
        await got.wait_for(6)
    assert sorted(got.all) == [
        ("record.held", b"pause"),
        ("record.rejected", b"reject"),
        ("record.released", b"release"),
        ("record.succeeded", b"accept"),
        ("record.succeeded", b"pause"),
        ("record.succeeded", b"release"),
    ]


@on_a_loop
async def test_middleware_is_around_handlers_on_the_loop_and_in_threads(
    bootstrap: str, topic: str, group: str
) -> None:
    app = App("around", bootstrap_servers=bootstrap)
    got = Collected()

    @app.middleware
    async def around(call: Call, proceed: Proceed) -> Any:
        try:
            return await proceed(call)
        except KeyError as error:
            got.add(call.route.shape.name, call.payload)
            raise Reject("unknown") from error

    @app.share_group(group, topics=f"{topic}-loop", dead_letter=None)
    async def on_the_loop(name: str) -> None:
        raise KeyError(name)

    @app.share_group(group, topics=f"{topic}-thread", dead_letter=None)
    def in_a_thread(name: str) -> None:
        raise KeyError(name)

    app.on("record.rejected", lambda event: got.add("rejected", str(event.error)))
    async with app:
        await on_the_loop.send("a")
        await in_a_thread.send("b")
        await got.wait_for(4)
    assert sorted(got.all) == [
        ("in_a_thread", "b"),
        ("on_the_loop", "a"),
        ("rejected", "unknown"),
        ("rejected", "unknown"),
    ]


@on_a_loop
async def test_module_of_routes_with_a_class_in_a_process_sends_on(
    bootstrap: str,
) -> None:
    app = App("processes", bootstrap_servers=bootstrap)
    app.routes(process_routes)
    got = Collected()

    @app.middleware
    async def note(call: Call, proceed: Proceed) -> Any:
        if isinstance(call.payload, process_routes.Total):
            got.add("total", call.payload)
        return await proceed(call)

    async with app:
        await process_routes.Double.send(process_routes.Order(21))
        await got.wait_for(1)
    ((total,),) = got.seen("total")
    assert total.doubled == 42
