"""DeleteRecords: all partitions of a request at once, and not where nothing may be deleted."""

from __future__ import annotations

import asyncio

import pytest

from sharegroup.client import AdminClient, Producer, TopicPartition
from sharegroup.errors import OffsetOutOfRange, PolicyViolation
from sharegroup.ids import TopicName
from sharegroup.testing import TestBroker, broker

TOPIC = TopicName("events")
PARTITIONS = 12


async def filled(running: TestBroker, policy: str) -> None:
    topics = running.running.parts.topics
    await topics.create(TOPIC, partitions=PARTITIONS, settings={"cleanup.policy": policy})
    async with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
        for partition in range(PARTITIONS):
            for _ in range(3):
                await producer.send_and_wait(TOPIC, b"value", key=b"key", partition=partition)


def starts(running: TestBroker) -> list[int]:
    topics = running.running.parts.topics
    return [topics.named(TOPIC, partition)[1].start_offset for partition in range(PARTITIONS)]


def test_many_partitions_are_cut_with_one_write() -> None:
    async def main() -> None:
        async with (
            broker() as running,
            AdminClient(bootstrap_servers=running.bootstrap_servers) as admin,
        ):
            await filled(running, "delete")
            ends = {TopicPartition(TOPIC, partition): 2 for partition in range(1, PARTITIONS)}
            results = await admin.delete_records({**ends, TopicPartition(TOPIC, 0): 4})
            refused = results.pop(TopicPartition(TOPIC, 0))
            assert isinstance(refused, OffsetOutOfRange)
            assert set(results.values()) == {2}
            assert starts(running) == [0] + [2] * (PARTITIONS - 1)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("policy", "start"), [("compact", 0), ("compact,delete", 1), ("delete", 1)]
)
def test_nothing_is_deleted_from_a_topic_that_is_only_compacted(policy: str, start: int) -> None:
    async def main() -> None:
        async with (
            broker() as running,
            AdminClient(bootstrap_servers=running.bootstrap_servers) as admin,
        ):
            await filled(running, policy)
            place = TopicPartition(TOPIC, 0)
            result = (await admin.delete_records({place: 1}))[place]
            assert isinstance(result, PolicyViolation) is (start == 0)
            assert starts(running)[0] == start

    asyncio.run(main())
