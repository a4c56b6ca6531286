"""The records of a consumer group of KIP-848 in ``__consumer_offsets`` (types 3 to 8 and 16).

Each class has the fields of the key and the value of Kafka's record; three are those of share
groups. A `ModernGroupTombstone` is a key without a value. Type 4 is only deleted: Kafka has not
written it since version 4.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from sharegroup.core.groups.share.records import GroupEpoch, TargetAssignment, TargetAssignmentEpoch
from sharegroup.ids import GroupId, MemberId, TopicIdPartition, TopicName

AssignmentEpochs = Mapping[TopicIdPartition, int]
"""Partitions of a member, and the epoch at which each was assigned to it."""


class ModernGroupRecordType(IntEnum):
    """The first two bytes of a record's key."""

    METADATA = 3
    PARTITION_METADATA = 4
    MEMBER_METADATA = 5
    TARGET_ASSIGNMENT_METADATA = 6
    TARGET_ASSIGNMENT_MEMBER = 7
    CURRENT_MEMBER_ASSIGNMENT = 8
    REGULAR_EXPRESSION = 16


class MemberState(IntEnum):
    """How far a member has come on its way to the target assignment; values as in the record."""

    STABLE = 0
    """The member has the whole target assignment of its epoch."""
    UNREVOKED_PARTITIONS = 1
    """The member still has to give up partitions, so it stays in its epoch."""
    UNRELEASED_PARTITIONS = 2
    """The member waits for partitions that other members have not given up yet."""
    UNKNOWN = 127
    """A state that a newer version wrote; the member has to join again without partitions."""


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """The topics of the group as Kafka stored them before version 4.1 (type 4); not decoded."""

    group_id: GroupId


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """The additional properties of a member that uses the classic protocol.

    ``protocols`` are names with metadata, in the member's order of preference.
    """

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ModernGroupMemberMetadata:
    """A member's identity and subscription (type 5); the names are sorted and unique.

    An empty regular expression means none.
    """

    group_id: GroupId
    member_id: MemberId
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[TopicName, ...]
    subscribed_topic_regex: str
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicMember | None


@dataclass(frozen=True, slots=True)
class ModernGroupCurrentMemberAssignment:
    """The epochs, the state and the partitions of a member (type 8)."""

    group_id: GroupId
    member_id: MemberId
    member_epoch: int
    previous_member_epoch: int
    state: MemberState
    assigned: AssignmentEpochs
    pending_revocation: AssignmentEpochs


@dataclass(frozen=True, slots=True)
class ModernGroupRegularExpression:
    """The topics that a regular expression matched at ``resolved_wall_ms`` (type 16)."""

    group_id: GroupId
    pattern: str
    topic_names: frozenset[TopicName]
    version: int
    resolved_wall_ms: int


@dataclass(frozen=True, slots=True)
class ModernGroupTombstone:
    """A record that deletes the record of its key.

    Types 5, 7 and 8 have a member in the key, and type 16 has a pattern.
    """

    record_type: ModernGroupRecordType
    group_id: GroupId
    member_id: MemberId | None = None
    pattern: str | None = None


ModernGroupRecord = (
    GroupEpoch
    | PartitionMetadata
    | ModernGroupMemberMetadata
    | TargetAssignmentEpoch
    | TargetAssignment
    | ModernGroupCurrentMemberAssignment
    | ModernGroupRegularExpression
    | ModernGroupTombstone
)
Records = tuple[ModernGroupRecord, ...]


def member_tombstones(group_id: GroupId, member_id: MemberId) -> Records:
    """Return the records that remove a member, in Kafka's order."""
    return tuple(
        ModernGroupTombstone(record_type, group_id, member_id)
        for record_type in (
            ModernGroupRecordType.CURRENT_MEMBER_ASSIGNMENT,
            ModernGroupRecordType.TARGET_ASSIGNMENT_MEMBER,
            ModernGroupRecordType.MEMBER_METADATA,
        )
    )
