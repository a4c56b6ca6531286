"""Partitions with a single replica whose broker dies: they wait, and no other partition does."""

from __future__ import annotations

import asyncio

from sharegroup.client import Producer
from tests.cluster.clients import (
    LIMIT_SECONDS,
    Reading,
    begin_at_the_start,
    broken,
    create_topic,
    produce_to_each,
)
from tests.cluster.conftest import all_of_it
from tests.support.kafka_cluster import KafkaCluster

PARTITIONS = 6
KEYLESS = 200


@all_of_it
def test_partitions_with_leaders_continue_and_the_others_follow(
    cluster: KafkaCluster, topic: str
) -> None:
    """Producer and consumer, both from before the death and new ones.

    Records without a key must go to partitions that have leaders.
    """

    async def run() -> None:
        await create_topic(cluster, topic, partitions=PARTITIONS, replicas=1)
        await begin_at_the_start(cluster, [topic, f"{topic}.new"])
        await produce_to_each(cluster, topic, range(PARTITIONS), "before")
        victim = await broken(cluster.leader_of, topic, 0)
        leaders = {part: view.leader for part, view in cluster.view().topics[topic].items()}
        healthy = [part for part, leader in leaders.items() if leader != victim]
        orphans = [part for part, leader in leaders.items() if leader == victim]
        async with (
            Reading(cluster, topic, topic) as reading,
            Producer(bootstrap_servers=cluster.bootstrap_servers) as producer,
        ):
            await reading.until_seen(f"before {part}" for part in range(PARTITIONS))
            await producer.send_and_wait(topic, b"before the death")
            await broken(cluster.kill, victim)
            waiting = [
                await producer.send(topic, f"after {part}".encode(), partition=part)
                for part in orphans
            ]
            await produce_to_each(cluster, topic, healthy, "after, by another")
            async with asyncio.timeout(LIMIT_SECONDS):
                for part in healthy:
                    await producer.send_and_wait(topic, f"after {part}".encode(), partition=part)
                keyless = [
                    await producer.send_and_wait(topic, f"keyless {index}".encode())
                    for index in range(KEYLESS)
                ]
            assert {sent.partition for sent in keyless} <= set(healthy)
            readable = {
                *(f"after {part}" for part in healthy),
                *(f"after, by another {part}" for part in healthy),
                *(f"keyless {index}" for index in range(KEYLESS)),
            }
            await reading.until_seen(readable)
            async with Reading(cluster, topic, f"{topic}.new") as new:
                await new.until_seen(readable)
                assert not any(delivery.done() for delivery in waiting)
                await broken(cluster.start, victim)
                async with asyncio.timeout(LIMIT_SECONDS):
                    await asyncio.gather(*waiting)
                late = {f"after {part}" for part in orphans}
                await reading.until_seen(late)
                await new.until_seen(late | {f"before {part}" for part in orphans})
        assert {reading.seen[value] for value in readable | late} == {1}

    asyncio.run(run())
