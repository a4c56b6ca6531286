"""Transactions of our producer while coordinators and partition leaders die, hang and move."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer

from sharegroup.client import (
    AdminClient,
    CommittedOffset,
    ConsumerGroupMetadata,
    NewTopic,
    Producer,
    TopicPartition,
    TransactionDescription,
)
from sharegroup.errors import ProducerFenced
from tests.cluster.conftest import all_of_it
from tests.support.kafka_cluster import KafkaCluster

pytestmark = all_of_it

RECORDS = 30
PARTITIONS = 3
LIMIT_SECONDS = 240
QUIET_MS = 3_000


async def coordinator_of(cluster: KafkaCluster, transactional_id: str) -> int:
    """The node that coordinates the transactional id; it has had a transaction."""
    async with AdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        described = (await admin.describe_transactions([transactional_id]))[transactional_id]
    assert isinstance(described, TransactionDescription), described
    return described.coordinator_id


async def committed_values(cluster: KafkaCluster, topic: str) -> list[bytes]:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=cluster.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    await consumer.start()
    try:
        values: list[bytes] = []
        while batches := await consumer.getmany(timeout_ms=QUIET_MS):
            values += [record.value for records in batches.values() for record in records]
        return sorted(values)
    finally:
        await consumer.stop()


async def transact(producer: Producer, topic: str, group: str, number: int) -> list[bytes]:
    """One transaction with records in every partition and an offset; its values."""
    values = [b"%d-%02d" % (number, index) for index in range(RECORDS)]
    async with producer.transaction() as transaction:
        for index, value in enumerate(values):
            await producer.send(topic, value, partition=index % PARTITIONS)
        offsets = {TopicPartition(topic, 0): number + 1}
        await transaction.send_offsets(offsets, ConsumerGroupMetadata(group))
    return values


def test_each_transaction_is_committed_once_while_coordinators_die_and_hang(
    cluster: KafkaCluster, topic: str
) -> None:
    """Kills, freezes and restarts the coordinator while transactions go on."""

    group = f"{topic}.group"

    async def run() -> None:
        written: list[bytes] = []
        servers = cluster.bootstrap_servers
        async with (
            asyncio.timeout(LIMIT_SECONDS),
            AdminClient(bootstrap_servers=servers) as admin,
            Producer(
                bootstrap_servers=servers, transactional_id=topic, request_timeout_ms=5_000
            ) as producer,
        ):
            assert await admin.create_topics([NewTopic(topic, PARTITIONS, 3)]) == {topic: None}
            written += await transact(producer, topic, group, 0)
            number = 1
            for hurt, mend in ((cluster.kill, cluster.start), (cluster.freeze, cluster.thaw)):
                node = await coordinator_of(cluster, topic)
                transaction = asyncio.create_task(transact(producer, topic, group, number))
                await asyncio.to_thread(hurt, node)
                written += await transaction
                written += await transact(producer, topic, group, number + 1)
                await asyncio.to_thread(mend, node)
                await asyncio.to_thread(cluster.wait_until_whole)
                written += await transact(producer, topic, group, number + 2)
                number += 3
            expected = {TopicPartition(topic, 0): CommittedOffset(number, None, "")}
            # Kafka answers EndTxn before the markers are written, which make the offsets visible.
            while (await admin.list_consumer_group_offsets({group: None}))[group] != expected:
                await asyncio.sleep(0.1)
        assert await committed_values(cluster, topic) == sorted(written)

    asyncio.run(run())


def test_a_producer_whose_place_was_taken_while_its_broker_hung_is_fenced(
    cluster: KafkaCluster, topic: str
) -> None:
    group = f"{topic}.group"

    async def run() -> None:
        servers = cluster.bootstrap_servers
        async with (
            asyncio.timeout(LIMIT_SECONDS),
            AdminClient(bootstrap_servers=servers) as admin,
            Producer(
                bootstrap_servers=servers, transactional_id=topic, request_timeout_ms=5_000
            ) as zombie,
        ):
            assert await admin.create_topics([NewTopic(topic, PARTITIONS, 3)]) == {topic: None}
            written = await transact(zombie, topic, group, 0)
            await zombie.begin_transaction()
            await zombie.send_and_wait(topic, b"zombie", partition=0)
            node = await coordinator_of(cluster, topic)
            await asyncio.to_thread(cluster.freeze, node)
            async with Producer(
                bootstrap_servers=servers, transactional_id=topic, request_timeout_ms=5_000
            ) as successor:
                written += await transact(successor, topic, group, 1)
                await asyncio.to_thread(cluster.thaw, node)
                try:
                    await zombie.commit_transaction()
                except ProducerFenced:
                    pass
                else:
                    raise AssertionError("the zombie committed")
                written += await transact(successor, topic, group, 2)
        assert await committed_values(cluster, topic) == sorted(written)

    asyncio.run(run())
