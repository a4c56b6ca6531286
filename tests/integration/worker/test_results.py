"""A chain of handlers, asks and results, on a broker: topics are made, replies are read."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from sharegroup.client import AdminClient, Producer
from sharegroup.worker import App, AskFailed, AskTimeout, MemoryStore, Reject, Retry
from tests.support.limits import HANGING_SECONDS


@dataclass
class Order:
    id: int
    cents: int


@dataclass
class Invoice:
    order: int
    cents: int


@dataclass
class Scene:
    app: App
    bill: Any
    mailed: asyncio.Queue[Invoice]


def application(bootstrap: str, topic: str, *, exactly_once: bool) -> tuple[App, Scene]:
    app = App(topic, bootstrap_servers=bootstrap, store=MemoryStore())
    billed = app.topic(f"{topic}.billed", payload=Invoice)
    mailed: asyncio.Queue[Invoice] = asyncio.Queue()

    async def bill(order: Order) -> Invoice:
        if order.cents < 0:
            raise Reject("negative")
        return Invoice(order.id, order.cents)

    options: Any = {
        "to": billed,
        "replies": True,
        "result_for": "1h",
        "retry": Retry(max_attempts=1),
    }
    if exactly_once:
        declared = app.consumer_group(
            f"{topic}.billing", topics=topic, exactly_once=True, handler=bill, **options
        )
    else:
        declared = app.share_group(f"{topic}.billing", topics=topic, handler=bill, **options)

    @app.share_group(f"{topic}.mailing", topics=billed)
    async def mail(invoice: Invoice) -> None:
        mailed.put_nowait(invoice)

    return app, Scene(app, declared, mailed)


@pytest.mark.parametrize("exactly_once", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_chain_asks_and_results_on_a_broker(bootstrap: str, topic: str, exactly_once: bool) -> None:
    app, scene = application(bootstrap, topic, exactly_once=exactly_once)
    asker, other = application(bootstrap, topic, exactly_once=exactly_once)
    bill, remote = scene.bill, other.bill

    async def run() -> None:
        async with app, asker.client():
            asked = [remote.ask(Order(n, n * 100), timeout="30s") for n in range(20)]
            answers = await asyncio.gather(*asked)
            assert answers == [Invoice(n, n * 100) for n in range(20)]
            with pytest.raises(AskFailed, match=r"after 1 attempts \(rejected\).*negative"):
                await remote.ask(Order(20, -1), timeout="30s")
            mailed = [await scene.mailed.get() for _ in range(20)]
            assert sorted(invoice.order for invoice in mailed) == list(range(20))
            await bill.send(Order(21, 5), id="order-21")
            assert await scene.mailed.get() == Invoice(21, 5)
            result = await bill.result("order-21")
            assert (result.state, result.value, result.attempts) == ("succeeded", Invoice(21, 5), 1)

    asyncio.run(asyncio.wait_for(run(), HANGING_SECONDS))


def test_ask_without_workers_times_out_and_foreign_replies_are_passed_over(
    bootstrap: str, topic: str
) -> None:
    app, scene = application(bootstrap, topic, exactly_once=False)

    async def run() -> None:
        async with app.client(), Producer(bootstrap_servers=bootstrap) as producer:
            # Topics are made and the reader starts before the time of an ask counts.
            await app.outlet.prepared()
            asks = app.outlet.waiting_asks()
            asks.end((await asks.begin())[0])
            first = asyncio.create_task(scene.bill.ask(Order(1, 1), timeout="900ms"))
            second = asyncio.create_task(scene.bill.ask(Order(2, 1), timeout="900ms"))
            while asks.waiting < 2:
                await asyncio.sleep(0.01)
            for partition in range(8):
                await producer.send_and_wait(
                    f"{topic}.replies", b"?", key=b"0" * 16 + b".1", partition=partition
                )
            for asking in (first, second):
                with pytest.raises(AskTimeout, match=f"retries list {topic}.billing"):
                    await asking
            assert asks.waiting == 0

    asyncio.run(asyncio.wait_for(run(), HANGING_SECONDS))


def test_deleted_topic_for_replies_is_not_made_with_the_defaults_of_the_broker(
    bootstrap: str, topic: str
) -> None:
    app, _ = application(bootstrap, topic, exactly_once=False)
    replies = f"{topic}.replies"

    async def run() -> None:
        async with app.client(), AdminClient(bootstrap_servers=bootstrap) as admin:
            await app.outlet.prepared()
            await admin.delete_topics([replies])
            async with asyncio.timeout(HANGING_SECONDS):
                while replies in await admin.list_topics():
                    await asyncio.sleep(0.05)
            assert app.outlet.outbox is not None
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await app.outlet.outbox.send(replies, b"a reply")
            assert replies not in await admin.list_topics()

    asyncio.run(asyncio.wait_for(run(), HANGING_SECONDS))
