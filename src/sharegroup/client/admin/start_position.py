"""Sets where a new share group starts, before its first member joins.

    setting as wanted? --> nothing to do
          | no
    offsets for every topic? --> no effect: the group goes on where it was
          | no
    set share.auto.offset.reset --> wait until all brokers know it --> join

The leader of a partition decides where the group starts, by the settings of the group as this
leader knows them.  So a member that joins before all brokers know the setting could start at the
end of some partitions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from enum import Enum, auto

from sharegroup.client.admin.configs import describe_configs, incremental_alter_configs
from sharegroup.client.admin.groups import list_share_group_offsets
from sharegroup.client.admin.types import AlterConfig, ConfigResource, SharePartitionOffset
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.client.settings.option_values import StartFrom
from sharegroup.errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    GroupIdNotFound,
    KafkaError,
    UnknownTopicOrPartition,
)
from sharegroup.protocol_enums import ResourceType

START_CONFIG = "share.auto.offset.reset"
KNOWN_SECONDS_MAX = 5.0
"""Maximum time to wait for brokers that lag behind, or that do not answer."""
LOOK_SECONDS = 0.05

UNSEEN = (GroupAuthorizationFailed, ClusterAuthorizationFailed)
"""Errors that say that this user may not read or change the settings of a group."""

log = logging.getLogger(__name__)


class StartOutcome(Enum):
    """What `set_start` found or did."""

    SAME = auto()
    """The group has this setting already."""
    HAS_OFFSETS = auto()
    """The group has offsets for all topics, so its setting was not changed."""
    SET = auto()
    """The setting was changed."""


async def set_start(
    cluster: Cluster, group_id: str, topics: Iterable[str], start_from: StartFrom
) -> StartOutcome:
    """Set where the group starts in topics that it has no offsets for.

    Raises KafkaError, in particular GroupAuthorizationFailed without the right ALTER_CONFIGS.
    """
    group = ConfigResource(ResourceType.GROUP, group_id)
    present = await _setting(cluster, group)
    if present == start_from:
        return StartOutcome.SAME
    offsets = (await list_share_group_offsets(cluster, {group_id: None}))[group_id]
    if not topics_without_offsets(offsets, topics):
        return StartOutcome.HAS_OFFSETS
    change = AlterConfig(START_CONFIG, str(start_from))
    results = await incremental_alter_configs(cluster, {group: [change]}, validate_only=False)
    error = results[group]
    if isinstance(error, UNSEEN):
        raise type(error)(
            f"{error}; start_from={str(start_from)!r} sets {START_CONFIG} of a new group: request "
            "this permission, have an administrator set it, or omit start_from"
        )
    if error is not None:
        raise error
    # A user who may not read the setting cannot see when brokers know it.
    if present is not None:
        await _known_everywhere(cluster, group, start_from)
    return StartOutcome.SET


def topics_without_offsets(
    offsets: Mapping[TopicPartition, SharePartitionOffset | KafkaError] | KafkaError,
    topics: Iterable[str],
) -> list[str]:
    """Return those of the topics in which a group with these offsets has no start offset yet.

    Raises the error if there is one in place of the offsets, of all or of one of these topics,
    unless the group or the topic does not exist.
    """
    if isinstance(offsets, GroupIdNotFound):
        return list(topics)
    if isinstance(offsets, KafkaError):
        raise offsets
    begun = {
        where.topic
        for where, offset in offsets.items()
        if isinstance(offset, SharePartitionOffset) and offset.start_offset is not None
    }
    unknown = {
        where.topic: error
        for where, error in offsets.items()
        if isinstance(error, KafkaError) and not isinstance(error, UnknownTopicOrPartition)
    }
    new_topics = [topic for topic in topics if topic not in begun]
    for topic in new_topics:
        if topic in unknown:
            raise unknown[topic]
    return new_topics


async def _setting(
    cluster: Cluster, group: ConfigResource, node_id: int | None = None
) -> str | None:
    """Return the setting as a broker knows it; None if this user may not read it."""
    configs = (await describe_configs(cluster, [group], documentation=False, node_id=node_id))[
        group
    ]
    if isinstance(configs, UNSEEN):
        return None
    if isinstance(configs, KafkaError):
        raise configs
    entry = configs.get(START_CONFIG)
    return None if entry is None else entry.value


async def _known_everywhere(cluster: Cluster, group: ConfigResource, start_from: StartFrom) -> None:
    """Wait until every broker knows the setting; log those that do not after the limit."""
    await cluster.retrying(lambda: cluster.refresh(()), subject="the brokers of the cluster")
    looking = {
        node_id: asyncio.create_task(_known_by(cluster, group, start_from, node_id))
        for node_id in cluster.nodes
    }
    try:
        await asyncio.wait(looking.values(), timeout=KNOWN_SECONDS_MAX)
        lagging = [
            node_id
            for node_id, look in looking.items()
            if not look.done() or look.exception() is not None
        ]
    finally:
        for look in looking.values():
            look.cancel()
        await asyncio.gather(*looking.values(), return_exceptions=True)
    if lagging:
        log.warning(
            "event=group.start_lagging group=%s brokers=%s seconds=%s reason='these brokers have "
            "not applied the setting of the group' action='the group may start at the end of "
            "partitions that they lead'",
            group.name,
            ",".join(map(str, sorted(lagging))),
            KNOWN_SECONDS_MAX,
        )


async def _known_by(
    cluster: Cluster, group: ConfigResource, start_from: StartFrom, node_id: int
) -> None:
    """Wait until this broker knows the setting."""
    while await _setting(cluster, group, node_id) != start_from:  # noqa: ASYNC110  A broker tells.
        await asyncio.sleep(LOOK_SECONDS)
