"""The records of a share group in ``__consumer_offsets`` (types 10 to 15).

Each class has the fields of the key and the value of Kafka's record; a `ShareGroupTombstone` is a
key without a value. Modern groups have three of the records, too: `GroupEpoch`, `TargetAssignment`
and `TargetAssignmentEpoch`. These records have everything that survives a restart, so replaying
them in order restores the group.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from sharegroup.core.groups.share.assignor import Assignment
from sharegroup.ids import GroupId, MemberId, TopicId, TopicName


class ShareGroupRecordType(IntEnum):
    """The first two bytes of a record's key."""

    MEMBER_METADATA = 10
    METADATA = 11
    TARGET_ASSIGNMENT_METADATA = 12
    TARGET_ASSIGNMENT_MEMBER = 13
    CURRENT_MEMBER_ASSIGNMENT = 14
    STATE_PARTITION_METADATA = 15


@dataclass(frozen=True, slots=True)
class ShareGroupMemberMetadata:
    """A member's identity and subscription (type 10); the names are sorted and unique."""

    group_id: GroupId
    member_id: MemberId
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[TopicName, ...]


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    """The group's epoch, and a hash of the topics at that epoch (type 11; of modern groups 3)."""

    group_id: GroupId
    epoch: int
    metadata_hash: int


@dataclass(frozen=True, slots=True)
class TargetAssignmentEpoch:
    """The epoch and the time of the target assignment (type 12; of modern groups 6)."""

    group_id: GroupId
    assignment_epoch: int
    assignment_timestamp: int


@dataclass(frozen=True, slots=True)
class TargetAssignment:
    """A member's part of the target assignment (type 13; of modern groups 7)."""

    group_id: GroupId
    member_id: MemberId
    partitions: Assignment


@dataclass(frozen=True, slots=True)
class ShareGroupCurrentMemberAssignment:
    """The assignment that was sent to a member (type 14).

    Kafka's record also has a state, which for share groups is always 0, stable.
    """

    group_id: GroupId
    member_id: MemberId
    member_epoch: int
    previous_member_epoch: int
    partitions: Assignment


@dataclass(frozen=True, slots=True)
class InitializedTopic:
    """The partitions of a topic for which the share coordinator has a state of the group."""

    topic_id: TopicId
    name: TopicName
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class ShareGroupStatePartitionMetadata:
    """The topics that the group has a state for (type 15).

    Kafka's record also lists topics whose state is being initialized or deleted by another broker.
    Here both coordinators are in one process, and those lists are always empty.
    """

    group_id: GroupId
    initialized: tuple[InitializedTopic, ...]


@dataclass(frozen=True, slots=True)
class ShareGroupTombstone:
    """A record that deletes the record of its key; types 10, 13 and 14 have a member in the key."""

    record_type: ShareGroupRecordType
    group_id: GroupId
    member_id: MemberId | None = None


ShareGroupRecord = (
    ShareGroupMemberMetadata
    | GroupEpoch
    | TargetAssignmentEpoch
    | TargetAssignment
    | ShareGroupCurrentMemberAssignment
    | ShareGroupStatePartitionMetadata
    | ShareGroupTombstone
)
Records = tuple[ShareGroupRecord, ...]


def by_topic(assignment: Assignment) -> dict[TopicId, tuple[int, ...]]:
    """Return an assignment as in the protocol: sorted partitions under each topic."""
    numbers: dict[TopicId, list[int]] = {}
    # By identity: equal topic ids are nearly always the same object, and hashing them is slow.
    partitions_by_topic: dict[int, list[int]] = {}
    for topic_id, partition in assignment:
        key = id(topic_id)
        if key not in partitions_by_topic:
            partitions_by_topic[key] = numbers.setdefault(topic_id, [])
        partitions_by_topic[key].append(partition)
    # Sort partitions and topic ids separately, because comparing topic ids is slow.
    return {topic_id: tuple(sorted(numbers[topic_id])) for topic_id in sorted(numbers)}


def initialized_topics(
    group_id: GroupId, topics: Iterable[InitializedTopic]
) -> ShareGroupStatePartitionMetadata:
    """Return the record that lists ``topics``, in the order of their ids."""
    ordered = sorted(topics, key=lambda topic: topic.topic_id)
    return ShareGroupStatePartitionMetadata(group_id, tuple(ordered))
