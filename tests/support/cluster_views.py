"""What one broker of a real cluster knows, asked over a connection of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.metadata.v13.request import MetadataRequest
from kio.static.primitive import i8

from sharegroup.client.net.cluster import Cluster
from sharegroup.client.settings.client_config import ClientConfig

ANSWER_MS_MAX = 5_000


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition as a broker knows it; ``leader`` is -1 when it has none."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class View:
    """What one broker answered."""

    brokers: tuple[int, ...]
    topics: Mapping[str, Mapping[int, PartitionView]]
    topic_ids: Mapping[str, Any]
    coordinator: int
    """The node that was asked for; -1: nothing was asked, or the broker knows none now."""

    def is_whole(self, brokers: Collection[int]) -> bool:
        """Whether all these brokers are there and every replica is in sync."""
        return set(self.brokers) == set(brokers) and all(
            partition.leader >= 0 and set(partition.in_sync) == set(partition.replicas)
            for partitions in self.topics.values()
            for partition in partitions.values()
        )


def view_of(
    address: str, options: Mapping[str, Any], *, find: tuple[int, str] | None = None
) -> View:
    """Ask a broker; ``find`` is the type and the key of a coordinator to ask for.

    In a thread of its own, so that a test with an event loop can call it.
    """
    config = ClientConfig(
        bootstrap_servers=address,
        connect_timeout_ms=ANSWER_MS_MAX,
        request_timeout_ms=ANSWER_MS_MAX,
        **options,
    )
    with ThreadPoolExecutor(1, thread_name_prefix="view") as thread:
        return thread.submit(asyncio.run, _asked(config, find)).result()


async def _asked(config: ClientConfig, find: tuple[int, str] | None) -> View:
    cluster = Cluster(config)
    try:
        connection = await cluster.any_connection()
        metadata = await connection.request(
            MetadataRequest(
                topics=None,
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=False,
            )
        )
        coordinator = -1
        if find is not None:
            kind, key = find
            found = await connection.request(
                FindCoordinatorRequest(key_type=i8(kind), coordinator_keys=(key,))
            )
            if not found.coordinators[0].error_code:
                coordinator = int(found.coordinators[0].node_id)
    finally:
        cluster.close()
    topics = {
        str(topic.name): {
            int(partition.partition_index): PartitionView(
                leader=int(partition.leader_id),
                leader_epoch=int(partition.leader_epoch),
                replicas=tuple(map(int, partition.replica_nodes)),
                in_sync=tuple(map(int, partition.isr_nodes)),
            )
            for partition in topic.partitions
        }
        for topic in metadata.topics
    }
    return View(
        brokers=tuple(sorted(int(broker.node_id) for broker in metadata.brokers)),
        topics=topics,
        topic_ids={str(topic.name): topic.topic_id for topic in metadata.topics},
        coordinator=coordinator,
    )
