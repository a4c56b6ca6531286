"""FastStream with both of its Kafka clients, aiokafka and confluent-kafka."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sharegroup.testing import TestBroker
from tests.interop.frameworks.conftest import values
from tests.support.limits import HANGING_SECONDS

pytest.importorskip("faststream", reason="FastStream is not installed; make frameworks runs this")
confluent = pytest.importorskip("faststream.confluent", exc_type=ImportError)
kafka = pytest.importorskip("faststream.kafka", exc_type=ImportError)

CLIENTS = {"aiokafka": kafka, "confluent": confluent}


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> Any:
    """One of the two modules of FastStream for Kafka."""
    return CLIENTS[request.param]


def name_of(client: Any, topic: str) -> str:
    """A topic that only one of the clients uses."""
    return f"{client.__name__}.{topic}"


def test_handler_publishes_and_its_group_commits(client: Any, broker: TestBroker) -> None:
    orders, bills = name_of(client, "orders"), name_of(client, "bills")
    for topic in (orders, bills):
        broker.create_topic(topic)
    broker.produce(orders, b'{"total": 3}', b'{"total": 4}')

    async def run() -> None:
        app = client.KafkaBroker(broker.bootstrap_servers)
        handled: list[int] = []
        done = asyncio.Event()

        @app.subscriber(orders, group_id=orders, auto_offset_reset="earliest")
        @app.publisher(bills)
        async def bill(body: dict[str, int]) -> dict[str, int]:
            handled.append(body["total"])
            if len(handled) == 2:
                done.set()
            return {"bill": body["total"] * 2}

        async with app:
            await app.start()
            async with asyncio.timeout(HANGING_SECONDS):
                await done.wait()

    asyncio.run(run())
    assert values(broker, bills) == [b'{"bill":6}', b'{"bill":8}']
    broker.wait_until(group=orders, topic=orders, lag=0, timeout_s=60)


def test_negatively_acknowledged_record_comes_again(client: Any, broker: TestBroker) -> None:
    topic = name_of(client, "refused")
    broker.create_topic(topic)
    broker.produce(topic, b"1")

    async def run() -> None:
        from faststream import AckPolicy

        app = client.KafkaBroker(broker.bootstrap_servers)
        seen: list[int] = []
        done = asyncio.Event()

        @app.subscriber(
            topic, group_id=topic, auto_offset_reset="earliest", ack_policy=AckPolicy.NACK_ON_ERROR
        )
        async def fail_once(body: int) -> None:
            seen.append(body)
            if len(seen) == 1:
                raise ValueError("not yet")
            done.set()

        async with app:
            await app.start()
            async with asyncio.timeout(HANGING_SECONDS):
                await done.wait()
        assert seen == [1, 1]

    asyncio.run(run())


def test_batch_of_records_reaches_one_call(client: Any, broker: TestBroker) -> None:
    topic = name_of(client, "batches")
    broker.create_topic(topic)
    broker.produce(topic, b"1", b"2", b"3")

    async def run() -> None:
        app = client.KafkaBroker(broker.bootstrap_servers)
        seen: list[int] = []
        done = asyncio.Event()

        @app.subscriber(topic, group_id=topic, auto_offset_reset="earliest", batch=True)
        async def handle(bodies: list[int]) -> None:
            seen.extend(bodies)
            if len(seen) == 3:
                done.set()

        async with app:
            await app.start()
            async with asyncio.timeout(HANGING_SECONDS):
                await done.wait()
        assert seen == [1, 2, 3]

    asyncio.run(run())
