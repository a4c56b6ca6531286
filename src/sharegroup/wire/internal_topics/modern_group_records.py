"""The records of consumer groups of KIP-848 in ``__consumer_offsets``, types 3 to 8 and 16.

Declared in kio's style like `share_group_records`, with the names, order, types and tags of Kafka's
``ConsumerGroupMetadataKey.json`` and the thirteen schemas that belong to it. The value of type 4
is never written, and a group only deletes it.

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


class ConsumerGroupMetadataKey(GroupKey):
    """The key of a group (type 3); a null value deletes the group."""

    __slots__ = ()
    __record_type__: ClassVar[int] = 3


@dataclass(slots=True, kw_only=True, repr=False)
class ConsumerGroupMetadataValue(StoredValue):
    """The group's epoch, and a hash of the topics at that epoch."""

    epoch: int = field(metadata={"kafka_type": "int32"})
    metadata_hash: int = field(metadata={"kafka_type": "int64", "tag": 0}, default=0)


class ConsumerGroupPartitionMetadataKey(GroupKey):
    """The key of a group's topics before Kafka 4.1 (type 4)."""

    __slots__ = ()
    __record_type__: ClassVar[int] = 4


@dataclass(slots=True, kw_only=True, repr=False)
class PartitionRacks(StoredStruct):
    """A partition and its racks; unused since Kafka 4.0."""

    partition: int = field(metadata={"kafka_type": "int32"})
    racks: tuple[str, ...] = field(metadata={"kafka_type": "string"})


@dataclass(slots=True, kw_only=True, repr=False)
class TopicMetadata(StoredStruct):
    """A topic and its number of partitions."""

    topic_id: UUID = field(metadata={"kafka_type": "uuid"})
    topic_name: str = field(metadata={"kafka_type": "string"})
    num_partitions: int = field(metadata={"kafka_type": "int32"})
    partition_metadata: tuple[PartitionRacks, ...]


@dataclass(slots=True, kw_only=True, repr=False)
class ConsumerGroupPartitionMetadataValue(StoredValue):
    """The topics that a group subscribed to."""

    topics: tuple[TopicMetadata, ...]


class ConsumerGroupMemberMetadataKey(MemberKey):
    """The key of a member (type 5)."""

    __slots__ = ()
    __record_type__: ClassVar[int] = 5


@dataclass(slots=True, kw_only=True, repr=False)
class ClassicProtocol(StoredStruct):
    """A protocol that a classic member supports."""

    name: str = field(metadata={"kafka_type": "string"})
    metadata: bytes = field(metadata={"kafka_type": "bytes"})


@dataclass(slots=True, kw_only=True, repr=False)
class ClassicMemberMetadata(StoredStruct):
    """The properties of a member that uses the classic protocol.

    Kafka writes the byte 1 before a struct that may be null, also in a tagged field, which is
    absent if it is null. ``presence`` is that byte.
    """

    presence: int = field(metadata={"kafka_type": "int8"}, default=1)
    session_timeout_ms: int = field(metadata={"kafka_type": "int32"})
    supported_protocols: tuple[ClassicProtocol, ...]


@dataclass(slots=True, kw_only=True, repr=False)
class ConsumerGroupMemberMetadataValue(StoredValue):
    """A member's identity and subscription."""

    instance_id: str | None = field(metadata={"kafka_type": "string"})
    rack_id: str | None = field(metadata={"kafka_type": "string"})
    client_id: str = field(metadata={"kafka_type": "string"})
    client_host: str = field(metadata={"kafka_type": "string"})
    subscribed_topic_names: tuple[str, ...] = field(metadata={"kafka_type": "string"})
    subscribed_topic_regex: str | None = field(metadata={"kafka_type": "string"})
    rebalance_timeout_ms: int = field(metadata={"kafka_type": "int32"}, default=-1)
    server_assignor: str | None = field(metadata={"kafka_type": "string"})
    classic_member_metadata: ClassicMemberMetadata | None = field(metadata={"tag": 0}, default=None)


class ConsumerGroupTargetAssignmentMetadataKey(GroupKey):
    """The key of the target assignment (type 6)."""

    __slots__ = ()
    __record_type__: ClassVar[int] = 6


class ConsumerGroupTargetAssignmentMemberKey(MemberKey):
    """The key of a member's part of the target assignment (type 7)."""

    __slots__ = ()
    __record_type__: ClassVar[int] = 7


class ConsumerGroupCurrentMemberAssignmentKey(MemberKey):
    """The key of a member's current assignment (type 8)."""

    __slots__ = ()
    __record_type__: ClassVar[int] = 8


@dataclass(slots=True, kw_only=True, repr=False)
class AssignedTopicPartitions(TopicPartitions):
    """Partitions of one topic, each with the epoch at which the member got it."""

    assignment_epochs: tuple[int, ...] | None = field(
        metadata={"kafka_type": "int32", "tag": 0}, default=None
    )


@dataclass(slots=True, kw_only=True, repr=False)
class ConsumerGroupCurrentMemberAssignmentValue(StoredValue):
    """The epochs, the state and the partitions of a member."""

    member_epoch: int = field(metadata={"kafka_type": "int32"})
    previous_member_epoch: int = field(metadata={"kafka_type": "int32"})
    state: int = field(metadata={"kafka_type": "int8"})
    assigned_partitions: tuple[AssignedTopicPartitions, ...]
    partitions_pending_revocation: tuple[AssignedTopicPartitions, ...]


@dataclass(slots=True, kw_only=True, repr=False)
class ConsumerGroupRegularExpressionKey(GroupKey):
    """The key of a regular expression (type 16)."""

    __record_type__: ClassVar[int] = 16
    regular_expression: str = field(metadata={"kafka_type": "string"})


@dataclass(slots=True, kw_only=True, repr=False)
class ConsumerGroupRegularExpressionValue(StoredValue):
    """The topics that a regular expression matched."""

    topics: tuple[str, ...] = field(metadata={"kafka_type": "string"})
    version: int = field(metadata={"kafka_type": "int64"})
    timestamp: int = field(metadata={"kafka_type": "int64"})


MODERN_GROUP_RECORDS = record_classes(
    (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    (ConsumerGroupTargetAssignmentMetadataKey, TargetAssignmentMetadataValue),
    (ConsumerGroupTargetAssignmentMemberKey, TargetAssignmentMemberValue),
    (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
)
"""The classes of key and value by record type; see `coordinator_records.RecordClasses`."""
