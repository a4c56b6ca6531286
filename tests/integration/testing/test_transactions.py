"""Transactions on an embedded broker whose clock a test advances."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException, Producer

from sharegroup.client.sync import AdminClient
from sharegroup.testing import TestBroker, run_broker
from tests.support.limits import HANGING_SECONDS

SECONDS_MAX = HANGING_SECONDS


def producer_of(broker: TestBroker, **settings: str | int) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": "payments",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    producer.init_transactions(SECONDS_MAX)
    return producer


def test_a_transaction_times_out_when_the_clock_is_advanced() -> None:
    with run_broker() as broker:
        broker.create_topic("orders")
        producer = producer_of(broker, transaction_timeout_ms=60_000)
        producer.begin_transaction()
        producer.produce("orders", b"late")
        assert producer.flush(SECONDS_MAX) == 0
        broker.advance(30)
        assert states(broker) == ["Ongoing"]
        broker.advance(31)
        with pytest.raises(KafkaException):
            producer.commit_transaction(SECONDS_MAX)
        assert states(broker) == ["CompleteAbort"]


def test_an_idle_transactional_id_is_forgotten_after_a_week() -> None:
    with run_broker() as broker:
        producer_of(broker)
        assert states(broker) == ["Empty"]
        for _ in range(7 * 24 + 2):
            broker.advance(3_600)
        assert states(broker) == []


def states(broker: TestBroker) -> list[str]:
    """The states of all transactional ids, as an administrator sees them."""
    with AdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        return [str(listed.state) for listed in admin.list_transactions()]
