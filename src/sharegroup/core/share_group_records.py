"""The records that a share group is made of, as ``__consumer_offsets`` holds them (types 10-15).

Each is named after Kafka's record and holds the fields of its key and value; a `Tombstone` is
a key without a value.  Everything that outlives a restart is in one of these, so replaying
them in order gives the group.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from sharegroup.core.assignor import Assignment
from sharegroup.ids import GroupId, MemberId, TopicId, TopicName


class RecordType(IntEnum):
    """The first two bytes of a record's key."""

    MEMBER_METADATA = 10
    METADATA = 11
    TARGET_ASSIGNMENT_METADATA = 12
    TARGET_ASSIGNMENT_MEMBER = 13
    CURRENT_MEMBER_ASSIGNMENT = 14
    STATE_PARTITION_METADATA = 15


@dataclass(frozen=True, slots=True)
class ShareGroupMemberMetadata:
    """Who a member is and what it subscribes to (10); the names are sorted and differ."""

    group_id: GroupId
    member_id: MemberId
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[TopicName, ...]


@dataclass(frozen=True, slots=True)
class ShareGroupMetadata:
    """The group's epoch, and a digest of the topics that it was decided on (11)."""

    group_id: GroupId
    epoch: int
    metadata_hash: int


@dataclass(frozen=True, slots=True)
class ShareGroupTargetAssignmentMetadata:
    """The group epoch that the target assignment belongs to, and when it was made (12)."""

    group_id: GroupId
    assignment_epoch: int
    assignment_timestamp: int


@dataclass(frozen=True, slots=True)
class ShareGroupTargetAssignmentMember:
    """What a member is meant to have (13)."""

    group_id: GroupId
    member_id: MemberId
    partitions: Assignment


@dataclass(frozen=True, slots=True)
class ShareGroupCurrentMemberAssignment:
    """What a member was told it has (14).

    Kafka's record also has a state, which for share groups is always 0, stable.
    """

    group_id: GroupId
    member_id: MemberId
    member_epoch: int
    previous_member_epoch: int
    partitions: Assignment


@dataclass(frozen=True, slots=True)
class InitializedTopic:
    """The partitions of a topic for which the share coordinator holds a state of the group."""

    topic_id: TopicId
    name: TopicName
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class ShareGroupStatePartitionMetadata:
    """The topics that the group has a state for (15).

    Kafka's record also lists topics whose state is being made or deleted elsewhere.  Here both
    coordinators are in one process and those lists are always empty.
    """

    group_id: GroupId
    initialized: tuple[InitializedTopic, ...]


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The record of this key holds no longer; types 10, 13 and 14 have a member in the key."""

    record_type: RecordType
    group_id: GroupId
    member_id: MemberId | None = None


ShareGroupRecord = (
    ShareGroupMemberMetadata
    | ShareGroupMetadata
    | ShareGroupTargetAssignmentMetadata
    | ShareGroupTargetAssignmentMember
    | ShareGroupCurrentMemberAssignment
    | ShareGroupStatePartitionMetadata
    | Tombstone
)
Records = tuple[ShareGroupRecord, ...]


def by_topic(assignment: Assignment) -> dict[TopicId, tuple[int, ...]]:
    """An assignment as the protocol writes it: sorted partitions under each topic."""
    topics: dict[TopicId, list[int]] = {}
    for topic_id, partition in sorted(assignment):
        topics.setdefault(topic_id, []).append(partition)
    return {topic_id: tuple(partitions) for topic_id, partitions in topics.items()}


def initialized_topics(
    group_id: GroupId, topics: Iterable[InitializedTopic]
) -> ShareGroupStatePartitionMetadata:
    """The record that lists ``topics``, in the order of their ids."""
    in_order = sorted(topics, key=lambda topic: topic.topic_id)
    return ShareGroupStatePartitionMetadata(group_id, tuple(in_order))
