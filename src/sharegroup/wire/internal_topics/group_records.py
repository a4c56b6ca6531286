"""What the stored records of share groups and of groups of KIP-848 have in common.

Kafka has a schema for each of the two types of groups, with the same fields under other names.

No ``from __future__ import annotations`` here: the decoder reads the types of the fields.
"""

from dataclasses import dataclass, field
from uuid import UUID

from sharegroup.wire.codec.schema import StoredKey, StoredStruct, StoredValue


@dataclass(slots=True, kw_only=True, repr=False)
class GroupKey(StoredKey):
    """The fields of keys that name a group."""

    group_id: str = field(metadata={"kafka_type": "string"})


@dataclass(slots=True, kw_only=True, repr=False)
class MemberKey(GroupKey):
    """The fields of keys that name a member of a group."""

    member_id: str = field(metadata={"kafka_type": "string"})


@dataclass(slots=True, kw_only=True, repr=False)
class TargetAssignmentMetadataValue(StoredValue):
    """The epoch and the time of the target assignment (KIP-1263)."""

    assignment_epoch: int = field(metadata={"kafka_type": "int32"})
    assignment_timestamp: int = field(metadata={"kafka_type": "int64", "tag": 0}, default=0)


@dataclass(slots=True, kw_only=True, repr=False)
class TopicPartitions(StoredStruct):
    """Partitions of one topic."""

    topic_id: UUID = field(metadata={"kafka_type": "uuid"})
    partitions: tuple[int, ...] = field(metadata={"kafka_type": "int32"})


@dataclass(slots=True, kw_only=True, repr=False)
class TargetAssignmentMemberValue(StoredValue):
    """A member's part of the target assignment."""

    topic_partitions: tuple[TopicPartitions, ...]
