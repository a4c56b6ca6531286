"""Brokers that are there and do not answer, or answer from the past: the client finds the others.

A frozen broker accepts connections.  One that is cut off from the others believes in the cluster
as it was, names itself as leader and coordinator, and answers clients.
"""

from __future__ import annotations

import asyncio

import pytest

from sharegroup.client import Producer
from tests.cluster.clients import (
    LIMIT_SECONDS,
    Reading,
    begin_at_the_start,
    broken,
    create_topic,
)
from tests.cluster.conftest import all_of_it
from tests.support.kafka_cluster import KafkaCluster

PARTITIONS = 3
REQUEST_MS = 3_000


def _others(cluster: KafkaCluster, node: int) -> str:
    return ",".join(cluster.address_of(other) for other in cluster.nodes if other != node)


async def _produced(cluster: KafkaCluster, avoided: int, topic: str, text: str) -> set[str]:
    """One record for each partition, from a producer that knows nothing of the avoided node."""
    values = {f"{text} {partition}" for partition in range(PARTITIONS)}
    async with Producer(
        bootstrap_servers=_others(cluster, avoided),
        request_timeout_ms=REQUEST_MS,
        connect_timeout_ms=REQUEST_MS,
    ) as producer:
        async with asyncio.timeout(LIMIT_SECONDS):
            for value in values:
                part = int(value.split()[-1])
                await producer.send_and_wait(topic, value.encode(), partition=part)
    return values


@all_of_it
@pytest.mark.parametrize("how", ["freeze", "isolate"])
def test_member_continues_while_its_leader_and_coordinator_is_silent(
    cluster: KafkaCluster, topic: str, how: str
) -> None:
    """An existing member gets records of all partitions before the broker is back."""

    async def run() -> None:
        await create_topic(cluster, topic, partitions=PARTITIONS)
        other = f"{topic}.other"
        await create_topic(cluster, other, partitions=PARTITIONS)
        group = f"{topic}.group"
        silent = await broken(cluster.coordinator_of, group)
        leaders = {await broken(cluster.leader_of, topic, part) for part in range(PARTITIONS)}
        assert silent in leaders, "a new topic has one leader on each of the three nodes"
        await begin_at_the_start(cluster, [group])
        async with Reading(
            cluster,
            topic,
            group,
            request_timeout_ms=REQUEST_MS,
            connect_timeout_ms=REQUEST_MS,
        ) as reading:
            await reading.until_seen(await _produced(cluster, silent, topic, "before"))
            await broken(getattr(cluster, how), silent)
            await reading.until_seen(await _produced(cluster, silent, topic, "meanwhile"))
            # Only a coordinator that answers assigns the partitions of another topic.
            reading.consumer.subscribe(topic, other)
            await reading.until_seen(await _produced(cluster, silent, other, "elsewhere"))
            await broken(cluster.mend)
            await reading.until_seen(await _produced(cluster, silent, topic, "after"))

    asyncio.run(run())


@all_of_it
@pytest.mark.parametrize("how", ["freeze", "isolate"])
def test_new_client_gets_past_a_silent_broker(cluster: KafkaCluster, topic: str, how: str) -> None:
    """The silent one is first in the list of addresses, and leads and coordinates for others."""

    async def run() -> None:
        await create_topic(cluster, topic, partitions=PARTITIONS)
        await begin_at_the_start(cluster, [topic])
        silent = await broken(cluster.coordinator_of, topic)
        before = await _produced(cluster, silent, topic, "before")
        await broken(getattr(cluster, how), silent)
        await broken(
            cluster.wait_for,
            lambda: True if silent not in cluster.view().brokers else None,
            "an expired session",
        )
        first = f"{cluster.address_of(silent)},{_others(cluster, silent)}"
        short = {
            "bootstrap_servers": first,
            "request_timeout_ms": REQUEST_MS,
            "connect_timeout_ms": REQUEST_MS,
        }
        async with (
            Producer(**short) as producer,
            Reading(cluster, topic, topic, **short) as reading,
        ):
            await reading.until_seen(before)
            async with asyncio.timeout(LIMIT_SECONDS):
                for part in range(PARTITIONS):
                    await producer.send_and_wait(topic, b"%d" % part, partition=part)
            await reading.until_seen(str(part) for part in range(PARTITIONS))

    asyncio.run(run())
