"""aiokafka, unmodified, as producer, plain consumer and admin."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic

from tests.interop.foreign_clients import LEAVES_SOCKETS
from tests.support.chosen_broker import KAFKA, chosen
from tests.support.limits import HANGING_SECONDS

pytestmark = LEAVES_SOCKETS

VALUES = [b"%d:" % number + bytes(range(256)) for number in range(100)]
Result = TypeVar("Result")


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_consumed_records_have_the_produced_bytes(
    bootstrap: str, topic: str, codec: str | None
) -> None:
    async def steps() -> list[ConsumerRecord]:
        await produce(bootstrap, topic, compression_type=codec, linger_ms=20)
        return await read_partition(bootstrap, topic, count=100)

    read = run(steps())
    assert [record.value for record in read] == VALUES
    assert [record.offset for record in read] == list(range(100))


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_kind_of_confirmation_works(bootstrap: str, topic: str, acks: int | str) -> None:
    async def steps() -> list[ConsumerRecord]:
        await produce(bootstrap, topic, acks=acks)
        return await read_partition(bootstrap, topic, count=100)

    assert [record.value for record in run(steps())] == VALUES


def test_idempotent_producer_writes_each_record_once(bootstrap: str, topic: str) -> None:
    async def steps() -> dict[TopicPartition, int]:
        await produce(bootstrap, topic, enable_idempotence=True, max_batch_size=1_000)
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
            offsets: dict[TopicPartition, int] = await consumer.end_offsets(
                [TopicPartition(topic, 0)]
            )
            return offsets

    assert run(steps()) == {TopicPartition(topic, 0): 100}


def test_batch_built_by_the_client_is_kept_unchanged(bootstrap: str, topic: str) -> None:
    async def steps() -> list[ConsumerRecord]:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            batch = producer.create_batch()
            for number in range(50):
                batch.append(key=b"%d" % number, value=b"v", timestamp=1_000 + number)
            sent = await producer.send_batch(batch, topic, partition=0)
            assert (await sent).offset == 0
        return await read_partition(bootstrap, topic, count=50)

    read = run(steps())
    assert [record.timestamp for record in read] == list(range(1_000, 1_050))
    assert [record.key for record in read] == [b"%d" % number for number in range(50)]


def test_topics_are_created_grown_listed_and_deleted(bootstrap: str, topic: str) -> None:
    async def steps() -> tuple[list[str], int, list[str]]:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])
            await admin.create_partitions({topic: NewPartitions(3)})
            before = await admin.list_topics()
            (described,) = await admin.describe_topics([topic])
            await admin.delete_topics([topic])
            after = await admin.list_topics()
            while chosen() == KAFKA and topic in after:  # Its broker hears it a moment later.
                after = await admin.list_topics()
            return before, len(described["partitions"]), after
        finally:
            await admin.close()

    before, partitions, after = run(steps())
    assert topic in before
    assert partitions == 3
    assert topic not in after


def run(steps: Coroutine[object, object, Result]) -> Result:
    return asyncio.run(asyncio.wait_for(steps, HANGING_SECONDS))


async def produce(bootstrap: str, topic: str, **config: object) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, **config) as producer:
        sent = [await producer.send(topic, value=value, partition=0) for value in VALUES]
        await asyncio.gather(*sent)


async def read_partition(bootstrap: str, topic: str, *, count: int) -> list[ConsumerRecord]:
    async with AIOKafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        return [await consumer.getone() for _ in range(count)]
