"""A broker for one test of a framework, and names for its topics."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from sharegroup.testing import run_broker

WAIT_SECONDS_MAX = 60.0
Produce = Callable[..., None]
Consume = Callable[[str, int], list[bytes]]
CommittedOffset = Callable[[str, str], int]


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    """The address of the broker, or of another one in ``SHAREGROUP_BOOTSTRAP``."""
    other = os.environ.get("SHAREGROUP_BOOTSTRAP")
    if other:
        yield other
        return
    with run_broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def create_topic(bootstrap: str) -> Callable[..., None]:
    """A function that creates a topic."""

    def create(name: str, partitions: int = 1) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(WAIT_SECONDS_MAX)

    return create


@pytest.fixture
def produce(bootstrap: str) -> Produce:
    """A function that produces values to a topic, all with one key."""

    def send(name: str, *values: bytes, key: bytes | None = None) -> None:
        producer = Producer({"bootstrap.servers": bootstrap})
        for value in values:
            producer.produce(name, value, key)
        assert producer.flush(WAIT_SECONDS_MAX) == 0

    return send


@pytest.fixture
def consume(bootstrap: str) -> Consume:
    """A function that reads a number of values from the start of partition 0 of a topic."""

    def read(name: str, count: int) -> list[bytes]:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
        consumer.assign([TopicPartition(name, 0, 0)])
        messages = consumer.consume(count, WAIT_SECONDS_MAX)
        consumer.close()
        return [bytes(message.value() or b"") for message in messages]

    return read


@pytest.fixture
def committed(bootstrap: str) -> CommittedOffset:
    """A function that returns the offset that a group has committed for partition 0 of a topic."""

    def offset(group: str, name: str) -> int:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        [partition] = consumer.committed([TopicPartition(name, 0)], WAIT_SECONDS_MAX)
        consumer.close()
        return int(partition.offset)

    return offset


def wait_until(condition: Callable[[], bool], *, waiting_for: str) -> None:
    """Wait in a thread until a condition holds; fails with its name after a minute."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"{waiting_for}: not within {WAIT_SECONDS_MAX} s"
        time.sleep(0.05)
