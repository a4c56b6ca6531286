"""A topic with one partition on two nodes, of which also one that lags may become the leader."""

from __future__ import annotations

from sharegroup.client import AdminClient
from sharegroup.client.admin.types import NewTopic
from tests.cluster.asking import reassign, wait_until_reassigned
from tests.cluster.clients import broken
from tests.support.kafka_cluster import KafkaCluster

CONFIGS = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}


async def create_on_two(cluster: KafkaCluster, topic: str, nodes: tuple[int, int]) -> None:
    """Create the topic on these nodes, and wait until both replicas are in sync."""
    async with AdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        assert await admin.create_topics([NewTopic(topic, 1, 2, CONFIGS)]) == {topic: None}
    await broken(cluster.wait_until_whole)
    await broken(reassign, cluster, {(topic, 0): nodes})
    await broken(wait_until_reassigned, cluster)


async def until_led(cluster: KafkaCluster, topic: str, leader: int, in_sync: set[int]) -> None:
    """Wait until the partition has this leader and these replicas in sync."""

    def led() -> bool | None:
        found = cluster.view().topics[topic][0]
        return True if found.leader == leader and set(found.in_sync) == in_sync else None

    await broken(cluster.wait_for, led, f"{topic} led by {leader} with {in_sync}")
