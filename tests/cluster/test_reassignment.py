"""Partitions move to other brokers under load: the application's and those of coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from tests.cluster.asking import reassign, wait_until_reassigned
from tests.cluster.conftest import all_of_it
from tests.cluster.traffic import Traffic
from tests.support.cluster_views import PartitionView
from tests.support.kafka_cluster import KafkaCluster

pytestmark = all_of_it

INTERNAL = {"__share_group_state", "__consumer_offsets"}
ROUNDS = 2


def _all(cluster: KafkaCluster) -> dict[tuple[str, int], PartitionView]:
    return {
        (topic, index): partition
        for topic, partitions in cluster.view().topics.items()
        for index, partition in partitions.items()
    }


def _without_leaders(cluster: KafkaCluster) -> Mapping[tuple[str, int], Sequence[int]]:
    """Two replicas for each partition, and its leader is none of them.

    A partition with two replicas has to be copied to the broker that has none.
    """
    return {
        where: sorted(set(cluster.nodes) - {partition.leader})
        for where, partition in _all(cluster).items()
    }


def test_clients_continue_while_partitions_and_coordinators_move(cluster: KafkaCluster) -> None:
    """Every round moves each partition from its leader; the first one removes a third replica."""

    async def run() -> None:
        topic = "moving"
        async with Traffic(cluster, topic) as traffic:
            await traffic.goes_on()
            assert {topic, *INTERNAL} <= {name for name, _ in _all(cluster)}
            seconds = []
            for _ in range(ROUNDS):
                await asyncio.to_thread(reassign, cluster, _without_leaders(cluster))
                seconds.append(await traffic.goes_on())
                await asyncio.to_thread(wait_until_reassigned, cluster)
                seconds.append(await traffic.goes_on())
                assert all(len(partition.replicas) == 2 for partition in _all(cluster).values())
            await asyncio.to_thread(reassign, cluster, dict.fromkeys(_all(cluster), cluster.nodes))
            await asyncio.to_thread(wait_until_reassigned, cluster)
            seconds.append(await traffic.goes_on())
            account = await traffic.settled()
        print("goes on after", [round(span, 1) for span in seconds])
        assert not account.problems
        assert not account.refused

    asyncio.run(run())
