"""The records of share groups in ``__consumer_offsets``, types 10 to 15.

Declared in kio's style like `share_state_records`, with the names, order, types and tags of Kafka's
``ShareGroupMetadataKey.json`` and the eleven schemas that belong to it.

No ``from __future__ import annotations`` here: the decoder reads the types of the fields.
"""

from dataclasses import dataclass, field
from typing import ClassVar
from uuid import UUID

from sharegroup.wire.codec.schema import StoredStruct, StoredValue
from sharegroup.wire.internal_topics.coordinator_records import record_classes
from sharegroup.wire.internal_topics.group_records import (
    GroupKey,
    MemberKey,
    TargetAssignmentMemberValue,
    TargetAssignmentMetadataValue,
    TopicPartitions,
)


class ShareGroupMemberMetadataKey(MemberKey):
    """The key of a member (type 10)."""

    __slots__ = ()
    __record_type__: ClassVar[int] = 10


@dataclass(slots=True, kw_only=True, repr=False)
class ShareGroupMemberMetadataValue(StoredValue):
    """A member's identity and subscription."""

    rack_id: str | None = field(metadata={"kafka_type": "string"})
    client_id: str = field(metadata={"kafka_type": "string"})
    client_host: str = field(metadata={"kafka_type": "string"})
    subscribed_topic_names: tuple[str, ...] = field(metadata={"kafka_type": "string"})


class ShareGroupMetadataKey(GroupKey):
    """The key of a group (type 11); a null value deletes the group."""

    __slots__ = ()
    __record_type__: ClassVar[int] = 11


@dataclass(slots=True, kw_only=True, repr=False)
class ShareGroupMetadataValue(StoredValue):
    """The group's epoch, and a hash of the topics at that epoch."""

    epoch: int = field(metadata={"kafka_type": "int32"})
    metadata_hash: int = field(metadata={"kafka_type": "int64"})


class ShareGroupTargetAssignmentMetadataKey(GroupKey):
    """The key of a target assignment's epoch (type 12)."""

    __slots__ = ()
    __record_type__: ClassVar[int] = 12


class ShareGroupTargetAssignmentMemberKey(MemberKey):
    """The key of a member's target assignment (type 13)."""

    __slots__ = ()
    __record_type__: ClassVar[int] = 13


class ShareGroupCurrentMemberAssignmentKey(MemberKey):
    """The key of a member's current assignment (type 14)."""

    __slots__ = ()
    __record_type__: ClassVar[int] = 14


@dataclass(slots=True, kw_only=True, repr=False)
class ShareGroupCurrentMemberAssignmentValue(StoredValue):
    """The assignment that was sent to a member; its state is always 0 (stable) in share groups."""

    member_epoch: int = field(metadata={"kafka_type": "int32"})
    previous_member_epoch: int = field(metadata={"kafka_type": "int32"})
    state: int = field(metadata={"kafka_type": "int8"})
    assigned_partitions: tuple[TopicPartitions, ...]


@dataclass(slots=True, kw_only=True, repr=False)
class TopicPartitionsInfo(StoredStruct):
    """Partitions of one topic, with its name."""

    topic_id: UUID = field(metadata={"kafka_type": "uuid"})
    topic_name: str = field(metadata={"kafka_type": "string"})
    partitions: tuple[int, ...] = field(metadata={"kafka_type": "int32"})


@dataclass(slots=True, kw_only=True, repr=False)
class TopicInfo(StoredStruct):
    """A topic with its name."""

    topic_id: UUID = field(metadata={"kafka_type": "uuid"})
    topic_name: str = field(metadata={"kafka_type": "string"})


class ShareGroupStatePartitionMetadataKey(GroupKey):
    """The key of the topics with a share state (type 15)."""

    __slots__ = ()
    __record_type__: ClassVar[int] = 15


@dataclass(slots=True, kw_only=True, repr=False)
class ShareGroupStatePartitionMetadataValue(StoredValue):
    """The topics whose share state exists, is being initialized, or is being deleted."""

    initializing_topics: tuple[TopicPartitionsInfo, ...]
    initialized_topics: tuple[TopicPartitionsInfo, ...]
    deleting_topics: tuple[TopicInfo, ...]


SHARE_GROUP_RECORDS = record_classes(
    (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
    (ShareGroupMetadataKey, ShareGroupMetadataValue),
    (ShareGroupTargetAssignmentMetadataKey, TargetAssignmentMetadataValue),
    (ShareGroupTargetAssignmentMemberKey, TargetAssignmentMemberValue),
    (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
    (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
)
"""The classes of key and value by record type; see `coordinator_records.RecordClasses`."""
