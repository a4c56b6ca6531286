"""Too few replicas in sync: a producer waits and succeeds when they are back, and writes once."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable

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

RECORDS = 100
REQUEST_MS = 2_000


def two_killed(cluster: KafkaCluster, leader: int) -> None:
    """The quorum of the controllers is gone as well."""
    for node in set(cluster.nodes) - {leader}:
        cluster.kill(node)


def leader_isolated(cluster: KafkaCluster, leader: int) -> None:
    """Clients reach it, and it believes to lead; others are elected."""
    cluster.isolate(leader)


def leader_hears_nothing(cluster: KafkaCluster, leader: int) -> None:
    """What it sends arrives: it goes on to ask for what it never gets."""
    cluster.isolate(leader, outgoing=False)


def leader_is_not_heard(cluster: KafkaCluster, leader: int) -> None:
    cluster.isolate(leader, incoming=False)


def leader_frozen(cluster: KafkaCluster, leader: int) -> None:
    """It goes on later with what it was told before."""
    cluster.freeze(leader)


FAULTS = [
    two_killed,
    leader_isolated,
    leader_hears_nothing,
    leader_is_not_heard,
    leader_frozen,
]


@all_of_it
@pytest.mark.parametrize("fault", FAULTS)
def test_produce_outlasts_a_fault_and_nothing_is_written_twice(
    cluster: KafkaCluster, topic: str, fault: Callable[[KafkaCluster, int], None]
) -> None:
    async def run() -> None:
        await create_topic(cluster, topic, partitions=1)
        await begin_at_the_start(cluster, [topic])
        leader = await broken(cluster.leader_of, topic, 0)
        async with Producer(
            bootstrap_servers=cluster.bootstrap_servers,
            request_timeout_ms=REQUEST_MS,
            linger_ms=0,
        ) as producer:
            await producer.send_and_wait(topic, b"before")
            await broken(fault, cluster, leader)
            sent = [await producer.send(topic, b"%d" % index) for index in range(RECORDS)]
            with contextlib.suppress(TimeoutError):  # Some faults it outlasts by itself.
                async with asyncio.timeout(2.5 * REQUEST_MS / 1000):
                    await producer.flush()
            await broken(cluster.mend)
            async with asyncio.timeout(LIMIT_SECONDS):
                offsets = [(await delivery).offset for delivery in sent]
        assert sorted(offsets) == list(range(1, RECORDS + 1))
        async with Reading(cluster, topic, topic) as reading:
            await reading.until_seen(str(index) for index in range(RECORDS))
        assert reading.seen == Counter({"before": 1} | {str(index): 1 for index in range(RECORDS)})

    asyncio.run(run())


@all_of_it
def test_too_few_replicas_in_sync_are_waited_for(cluster: KafkaCluster, topic: str) -> None:
    """One of two replicas dies: the leader refuses (NOT_ENOUGH_REPLICAS) until it is back."""

    async def run() -> None:
        await create_topic(cluster, topic, partitions=1, replicas=2)
        leader = await broken(cluster.leader_of, topic, 0)
        replicas = cluster.view().topics[topic][0].replicas
        (follower,) = set(replicas) - {leader}
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.send_and_wait(topic, b"before")
            await broken(cluster.kill, follower)
            await broken(
                cluster.wait_for,
                lambda: cluster.view().topics[topic][0].in_sync == (leader,) or None,
                "a shrunk ISR",
            )
            refused = await producer.send(topic, b"refused at first")
            retries = "record-retry-total"
            async with asyncio.timeout(LIMIT_SECONDS):
                while not producer.metrics()["producer-metrics"][retries]:
                    await asyncio.sleep(0.05)
            assert not refused.done()
            await broken(cluster.start, follower)
            async with asyncio.timeout(LIMIT_SECONDS):
                assert (await refused).offset == 1

    asyncio.run(run())
