"""Tests a consumer that is written with confluent-kafka.

    pip install . confluent-kafka pytest
    pytest examples/testing/test_confluent_consumer.py

``sharegroup_broker`` is a fixture of sharegroup: a broker in this process, without any topics.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer

from sharegroup.testing import TestBroker

# A consumer group waits three seconds for more members before it starts; tests need not.
pytestmark = pytest.mark.sharegroup(settings={"group.initial.rebalance.delay.ms": "0"})


def bill_orders(bootstrap: str, bill: Callable[[bytes], None], *, orders_max: int) -> None:
    """The code under test: bill orders, and commit the offset of each one when it is billed."""
    options = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing", **options})
    consumer.subscribe(["orders"])
    try:
        for _ in range(orders_max):
            message = consumer.poll(30)
            assert message is not None, "no order within 30 s"
            assert message.error() is None, message.error()
            bill(message.value() or b"")
            consumer.commit(message, asynchronous=False)
    finally:
        consumer.close()


def test_every_order_is_billed(sharegroup_broker: TestBroker) -> None:
    sharegroup_broker.produce("orders", "apple", "pear")
    billed: list[bytes] = []
    bill_orders(sharegroup_broker.bootstrap_servers, billed.append, orders_max=2)
    assert billed == [b"apple", b"pear"]
    sharegroup_broker.wait_until(group="billing", lag=0)


def test_order_whose_bill_fails_is_billed_by_the_next_consumer(
    sharegroup_broker: TestBroker,
) -> None:
    sharegroup_broker.produce("orders", "apple")

    def refuse(_: bytes) -> None:
        raise ConnectionError("no printer")

    with pytest.raises(ConnectionError, match="no printer"):
        bill_orders(sharegroup_broker.bootstrap_servers, refuse, orders_max=1)
    billed: list[bytes] = []
    bill_orders(sharegroup_broker.bootstrap_servers, billed.append, orders_max=1)
    assert billed == [b"apple"]
