"""Tests a FastStream application with a real broker instead of FastStream's in-memory one.

    pip install . 'faststream[kafka]' pytest
    pytest examples/testing/test_faststream_app.py

So the test also covers groups, commits and serialization, and it can let the broker fail.
"""

from __future__ import annotations

import asyncio

import pytest
from faststream.kafka import KafkaBroker

from sharegroup.testing import TestBroker

# A consumer group waits three seconds for more members before it starts; tests need not.
pytestmark = pytest.mark.sharegroup(settings={"group.initial.rebalance.delay.ms": "0"})


def orders_app(bootstrap: str) -> KafkaBroker:
    """The code under test: a bill for each order."""
    app = KafkaBroker(bootstrap)

    @app.subscriber("orders", group_id="billing", auto_offset_reset="earliest")
    @app.publisher("bills")
    async def bill(order: dict[str, int]) -> dict[str, int]:
        return {"order": order["id"], "amount": order["total"] * 2}

    return app


async def run_until_billed(broker: TestBroker, count: int) -> None:
    async with orders_app(broker.bootstrap_servers) as app:
        await app.start()
        await broker.asynchronous.wait_until(topic="bills", records=count, timeout_s=30)


def test_order_gets_a_bill(sharegroup_broker: TestBroker) -> None:
    for topic in ("orders", "bills"):
        sharegroup_broker.create_topic(topic)
    sharegroup_broker.produce("orders", '{"id": 1, "total": 30}')
    asyncio.run(run_until_billed(sharegroup_broker, 1))
    [bill] = sharegroup_broker.records("bills")
    assert bill.value == b'{"order":1,"amount":60}'


def test_bill_is_written_although_the_broker_refuses_it_once(
    sharegroup_broker: TestBroker,
) -> None:
    for topic in ("orders", "bills"):
        sharegroup_broker.create_topic(topic)
    sharegroup_broker.produce("orders", '{"id": 1, "total": 30}')
    refusal = sharegroup_broker.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", topic="bills")
    asyncio.run(run_until_billed(sharegroup_broker, 1))
    assert refusal.count == 1
    assert len(sharegroup_broker.records("bills")) == 1
