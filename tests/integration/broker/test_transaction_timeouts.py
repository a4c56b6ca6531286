"""Transactions that take too long are aborted, each at its time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from sharegroup.testing import TestBroker, run_broker
from sharegroup.testing.virtual_time import ManualClock
from tests.support.limits import HANGING_SECONDS

TIMEOUT_MS = 10_000


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    with run_broker(clock=ManualClock()) as running:
        running.create_topic("accounts")
        yield running


def open_transaction(broker: TestBroker, transactional_id: str) -> Producer:
    """A producer with a record in an open transaction."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": TIMEOUT_MS,
        }
    )
    producer.init_transactions(HANGING_SECONDS)
    producer.begin_transaction()
    producer.produce("accounts", transactional_id.encode())
    assert producer.flush(HANGING_SECONDS) == 0
    return producer


def code_of_commit(producer: Producer) -> int | None:
    try:
        producer.commit_transaction(10)
    except KafkaException as error:
        code: int = error.args[0].code()
        return code
    return None


def test_transaction_times_out_though_an_earlier_one_ended_in_time(broker: TestBroker) -> None:
    """The timer of the first transaction comes up while only the second one is open."""
    first = open_transaction(broker, "first")
    assert code_of_commit(first) is None
    broker.advance(5)
    second = open_transaction(broker, "second")
    broker.advance(6)
    broker.advance(5)
    assert code_of_commit(second) == KafkaError._FENCED


def test_transaction_may_take_its_whole_time(broker: TestBroker) -> None:
    first = open_transaction(broker, "first")
    broker.advance(5)
    second = open_transaction(broker, "second")
    broker.advance(9.9)
    assert code_of_commit(first) == KafkaError._FENCED
    assert code_of_commit(second) is None
