"""Reads the control topic of a group: the committed commands and answers, in their order."""

from __future__ import annotations

from typing import TypeAlias

from sharegroup.client.fetch.followed_partition import FollowedPartition
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.waiting.control_records import ControlRecord, parsed
from sharegroup.waiting.retry_topics import CONTROL_PARTITION, control_topic

ControlTopic: TypeAlias = FollowedPartition[ControlRecord]


def follow_control(cluster: Cluster, group: str) -> ControlTopic:
    """Return the control topic of one group, to be read from its start on."""
    where = TopicPartition(control_topic(group), CONTROL_PARTITION)
    return FollowedPartition(cluster, where, lambda record: parsed(record.key, record.value))
