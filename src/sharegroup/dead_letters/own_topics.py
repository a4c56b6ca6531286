"""Creates the topics in which this library keeps what it knows, with the replicas of a worker's."""

from __future__ import annotations

from collections.abc import Mapping

from sharegroup.client.admin.topics import create_topics, describe_cluster, describe_topics
from sharegroup.client.admin.types import NewTopic, TopicDescription
from sharegroup.client.net.cluster import Cluster
from sharegroup.dead_letters.topics import MIN_INSYNC, default_min_insync, default_replicas
from sharegroup.errors import TopicAlreadyExists, UnknownTopicOrPartition

OWN_TOPICS = "__sharegroup."
"""The beginning of the names of these topics."""


async def create_if_missing(
    cluster: Cluster,
    name: str,
    configs: Mapping[str, str],
    *,
    partitions: int = 1,
    replicas: int | None = None,
) -> None:
    """Create a topic unless it exists, which needs no right to create it.

    ``replicas`` None: three, or one for each broker if there are fewer.
    """
    described = (await describe_topics(cluster, [name]))[name]
    if isinstance(described, TopicDescription):
        return
    if not isinstance(described, UnknownTopicOrPartition):
        raise described
    if replicas is None:
        brokers = (await describe_cluster(cluster, include_fenced=True)).nodes
        replicas = default_replicas(max(1, len(brokers)))
    settings = {**configs, MIN_INSYNC: str(default_min_insync(replicas))}
    created = (await create_topics(cluster, [NewTopic(name, partitions, replicas, settings)]))[name]
    if created is not None and not isinstance(created, TopicAlreadyExists):
        raise created
