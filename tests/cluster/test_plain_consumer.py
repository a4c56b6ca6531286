"""A plain consumer while the leader of a partition and its group coordinator die or hang."""

from __future__ import annotations

import asyncio

import pytest

from sharegroup.client import Consumer, Producer
from tests.cluster.clients import LIMIT_SECONDS, broken, create_topic
from tests.cluster.conftest import all_of_it
from tests.support.kafka_cluster import KafkaCluster

PARTITIONS = 3
REQUEST_MS = 3_000


async def _produced(cluster: KafkaCluster, avoided: int, topic: str, text: str) -> set[str]:
    """One record for each partition, from a producer that knows nothing of the avoided node."""
    others = ",".join(cluster.address_of(node) for node in cluster.nodes if node != avoided)
    values = {f"{text} {partition}" for partition in range(PARTITIONS)}
    async with Producer(
        bootstrap_servers=others, request_timeout_ms=REQUEST_MS, connect_timeout_ms=REQUEST_MS
    ) as producer:
        async with asyncio.timeout(LIMIT_SECONDS):
            for value in values:
                part = int(value.split()[-1])
                await producer.send_and_wait(topic, value.encode(), partition=part)
    return values


async def _read(consumer: Consumer, wanted: set[str]) -> None:
    """Poll until all of these records came; others may come again after a rebalance."""
    missing = set(wanted)
    async with asyncio.timeout(LIMIT_SECONDS):
        while missing:
            missing -= {record.value.decode() for record in await consumer.poll(0.5)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "how"),
    [
        ("classic", "kill"),
        pytest.param("consumer", "kill", marks=all_of_it),
        pytest.param("classic", "freeze", marks=all_of_it),
        pytest.param("consumer", "freeze", marks=all_of_it),
    ],
)
def test_consumer_goes_on_at_other_brokers(
    cluster: KafkaCluster, topic: str, protocol: str, how: str
) -> None:
    """Records of all partitions are read and committed before the broker is back."""

    async def run() -> None:
        await create_topic(cluster, topic, partitions=PARTITIONS)
        group = f"{topic}.group"
        broken_node = await broken(cluster.coordinator_of, group)
        leaders = {await broken(cluster.leader_of, topic, part) for part in range(PARTITIONS)}
        assert broken_node in leaders, "a new topic has one leader on each of the three nodes"
        async with Consumer(
            topic,
            bootstrap_servers=cluster.bootstrap_servers,
            group_id=group,
            group_protocol=protocol,  # type: ignore[arg-type]  # The test's parameter is a str.
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            request_timeout_ms=REQUEST_MS,
            connect_timeout_ms=REQUEST_MS,
        ) as consumer:
            await _read(consumer, await _produced(cluster, broken_node, topic, "before"))
            await consumer.commit()
            await broken(getattr(cluster, how), broken_node)
            await _read(consumer, await _produced(cluster, broken_node, topic, "meanwhile"))
            assert len(consumer.assignment) == PARTITIONS
            await consumer.commit(timeout=LIMIT_SECONDS)
            await broken(cluster.mend)
            await _read(consumer, await _produced(cluster, broken_node, topic, "after"))
            await consumer.commit(timeout=LIMIT_SECONDS)
            committed = await consumer.committed()
            assert [found.offset for found in committed.values() if found] == [3, 3, 3]

    asyncio.run(run())
