"""Our plain consumer in a classic group with members of other libraries; any of them may lead."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer

from sharegroup.client import AdminClient, Consumer, NewTopic
from tests.support.chosen_broker import chosen, running
from tests.support.limits import HANGING_SECONDS

PARTITIONS = 4
numbers = count()
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(chosen(), tmp_path_factory.mktemp("mixed"), SETTINGS) as broker:
        yield broker.bootstrap_servers


class Foreign:
    """A member of librdkafka, polled in a thread."""

    def __init__(self, bootstrap: str, topic: str, strategy: str) -> None:
        self._consumer: Any = ConfluentConsumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": topic,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": strategy,
                "heartbeat.interval.ms": 100,
                "session.timeout.ms": 6_000,
            }
        )
        self._consumer.subscribe([topic])

    async def poll(self) -> None:
        await asyncio.to_thread(self._consumer.poll, 0.1)

    @property
    def numbers(self) -> list[int]:
        return sorted(where.partition for where in self._consumer.assignment())

    async def close(self) -> None:
        await asyncio.to_thread(self._consumer.close)


async def shared(consumer: Consumer, foreign: Foreign) -> tuple[list[int], list[int]]:
    """Poll both until each has half of the partitions; return the numbers of both."""
    deadline = time.monotonic() + HANGING_SECONDS
    while True:
        await asyncio.gather(consumer.poll(0.1), foreign.poll())
        ours = sorted(partition for _, partition in consumer.assignment)
        if len(ours) == len(foreign.numbers) == PARTITIONS // 2:
            return ours, foreign.numbers
        assert time.monotonic() < deadline, (ours, foreign.numbers)


async def whole(numbers: Callable[[], list[int]], poll: Callable[[], Any]) -> None:
    deadline = time.monotonic() + HANGING_SECONDS
    while numbers() != list(range(PARTITIONS)):
        await poll()
        assert time.monotonic() < deadline, numbers()


@pytest.mark.parametrize("leads", ["ours", "librdkafka"])
@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_of_two_libraries_share_the_partitions(
    bootstrap: str, strategy: str, leads: str
) -> None:
    """The first member leads the group; the second one joins, and the first one leaves."""

    async def run() -> None:
        topic = f"mixed-{next(numbers)}"
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics([NewTopic(topic, PARTITIONS)])
        consumer = Consumer(
            bootstrap_servers=bootstrap,
            group_id=topic,
            partition_assignment_strategy=strategy,
            heartbeat_interval_ms=100,
        )
        consumer.subscribe(topic)
        foreign = None
        try:
            if leads == "ours":
                await whole(
                    lambda: sorted(n for _, n in consumer.assignment), lambda: consumer.poll(0.1)
                )
                foreign = Foreign(bootstrap, topic, strategy)
            else:
                foreign = Foreign(bootstrap, topic, strategy)
                await whole(lambda: foreign.numbers, foreign.poll)
            ours, theirs = await shared(consumer, foreign)
            assert sorted(ours + theirs) == list(range(PARTITIONS))
            if leads == "ours":
                await consumer.close()
                await whole(lambda: foreign.numbers, foreign.poll)
            else:
                await foreign.close()
                foreign = None
                await whole(
                    lambda: sorted(n for _, n in consumer.assignment), lambda: consumer.poll(0.1)
                )
        finally:
            await consumer.close()
            if foreign is not None:
                await foreign.close()

    asyncio.run(run())
