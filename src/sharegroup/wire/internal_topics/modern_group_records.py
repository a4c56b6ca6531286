"""The records of consumer groups of KIP-848 in ``__consumer_offsets``, types 3 to 8 and 16.

Declared in kio's style like `share_group_records`, with the names, order, types and tags of Kafka's
``ConsumerGroupMetadataKey.json`` and the thirteen schemas that belong to it. The value of type 4
is never written, and a group only deletes it.

No ``from __future__ import annotations`` here: the decoder reads the types of the fields.
"""

from dataclasses import dataclass, field
from typing import ClassVar
from uuid import UUID

from kio.static.constants import EntityType

from sharegroup.wire.codec.schema import StoredRecord
from sharegroup.wire.internal_topics.coordinator_records import record_classes


@dataclass(slots=True, kw_only=True, repr=False)
class ConsumerGroupMetadataKey(StoredRecord):
    """The key of a group (type 3); a null value deletes the group."""

    __type__: ClassVar[EntityType] = EntityType.data
    __record_type__: ClassVar[int] = 3
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = False
    group_id: str = field(metadata={"kafka_type": "string"})


@dataclass(slots=True, kw_only=True, repr=False)
class ConsumerGroupMetadataValue(StoredRecord):
    """The group's epoch, and a hash of the topics at that epoch."""

    __type__: ClassVar[EntityType] = EntityType.data
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    epoch: int = field(metadata={"kafka_type": "int32"})
    metadata_hash: int = field(metadata={"kafka_type": "int64", "tag": 0}, default=0)


@dataclass(slots=True, kw_only=True, repr=False)
class ConsumerGroupPartitionMetadataKey(StoredRecord):
    """The key of a group's topics before Kafka 4.1 (type 4)."""

    __type__: ClassVar[EntityType] = EntityType.data
    __record_type__: ClassVar[int] = 4
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = False
    group_id: str = field(metadata={"kafka_type": "string"})


@dataclass(slots=True, kw_only=True, repr=False)
class PartitionRacks(StoredRecord):
    """A partition and its racks; unused since Kafka 4.0."""

    __type__: ClassVar[EntityType] = EntityType.nested
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    partition: int = field(metadata={"kafka_type": "int32"})
    racks: tuple[str, ...] = field(metadata={"kafka_type": "string"})


@dataclass(slots=True, kw_only=True, repr=False)
class TopicMetadata(StoredRecord):
    """A topic and its number of partitions."""

    __type__: ClassVar[EntityType] = EntityType.nested
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    topic_id: UUID = field(metadata={"kafka_type": "uuid"})
    topic_name: str = field(metadata={"kafka_type": "string"})
    num_partitions: int = field(metadata={"kafka_type": "int32"})
    partition_metadata: tuple[PartitionRacks, ...]


@dataclass(slots=True, kw_only=True, repr=False)
class ConsumerGroupPartitionMetadataValue(StoredRecord):
    """The topics that a group subscribed to."""

    __type__: ClassVar[EntityType] = EntityType.data
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    topics: tuple[TopicMetadata, ...]


@dataclass(slots=True, kw_only=True, repr=False)
class ConsumerGroupMemberMetadataKey(StoredRecord):
    """The key of a member (type 5)."""

    __type__: ClassVar[EntityType] = EntityType.data
    __record_type__: ClassVar[int] = 5
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = False
    group_id: str = field(metadata={"kafka_type": "string"})
    member_id: str = field(metadata={"kafka_type": "string"})


@dataclass(slots=True, kw_only=True, repr=False)
class ClassicProtocol(StoredRecord):
    """A protocol that a classic member supports."""

    __type__: ClassVar[EntityType] = EntityType.nested
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    name: str = field(metadata={"kafka_type": "string"})
    metadata: bytes = field(metadata={"kafka_type": "bytes"})


@dataclass(slots=True, kw_only=True, repr=False)
class ClassicMemberMetadata(StoredRecord):
    """The properties of a member that uses the classic protocol.

    Kafka writes the byte 1 before a struct that may be null, also in a tagged field, which is
    absent if it is null. ``presence`` is that byte.
    """

    __type__: ClassVar[EntityType] = EntityType.nested
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    presence: int = field(metadata={"kafka_type": "int8"}, default=1)
    session_timeout_ms: int = field(metadata={"kafka_type": "int32"})
    supported_protocols: tuple[ClassicProtocol, ...]


@dataclass(slots=True, kw_only=True, repr=False)
class ConsumerGroupMemberMetadataValue(StoredRecord):
    """A member's identity and subscription."""

    __type__: ClassVar[EntityType] = EntityType.data
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    instance_id: str | None = field(metadata={"kafka_type": "string"})
    rack_id: str | None = field(metadata={"kafka_type": "string"})
    client_id: str = field(metadata={"kafka_type": "string"})
    client_host: str = field(metadata={"kafka_type": "string"})
    subscribed_topic_names: tuple[str, ...] = field(metadata={"kafka_type": "string"})
    subscribed_topic_regex: str | None = field(metadata={"kafka_type": "string"})
    rebalance_timeout_ms: int = field(metadata={"kafka_type": "int32"}, default=-1)
    server_assignor: str | None = field(metadata={"kafka_type": "string"})
    classic_member_metadata: ClassicMemberMetadata | None = field(metadata={"tag": 0}, default=None)


@dataclass(slots=True, kw_only=True, repr=False)
class ConsumerGroupTargetAssignmentMetadataKey(StoredRecord):
    """The key of the target assignment (type 6)."""

    __type__: ClassVar[EntityType] = EntityType.data
    __record_type__: ClassVar[int] = 6
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = False
    group_id: str = field(metadata={"kafka_type": "string"})


@dataclass(slots=True, kw_only=True, repr=False)
class ConsumerGroupTargetAssignmentMetadataValue(StoredRecord):
    """The epoch and the time of the target assignment."""

    __type__: ClassVar[EntityType] = EntityType.data
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    assignment_epoch: int = field(metadata={"kafka_type": "int32"})
    assignment_timestamp: int = field(metadata={"kafka_type": "int64", "tag": 0}, default=0)


@dataclass(slots=True, kw_only=True, repr=False)
class ConsumerGroupTargetAssignmentMemberKey(StoredRecord):
    """The key of a member's part of the target assignment (type 7)."""

    __type__: ClassVar[EntityType] = EntityType.data
    __record_type__: ClassVar[int] = 7
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = False
    group_id: str = field(metadata={"kafka_type": "string"})
    member_id: str = field(metadata={"kafka_type": "string"})


@dataclass(slots=True, kw_only=True, repr=False)
class TopicPartitions(StoredRecord):
    """Partitions of one topic."""

    __type__: ClassVar[EntityType] = EntityType.nested
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    topic_id: UUID = field(metadata={"kafka_type": "uuid"})
    partitions: tuple[int, ...] = field(metadata={"kafka_type": "int32"})


@dataclass(slots=True, kw_only=True, repr=False)
class ConsumerGroupTargetAssignmentMemberValue(StoredRecord):
    """A member's part of the target assignment."""

    __type__: ClassVar[EntityType] = EntityType.data
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    topic_partitions: tuple[TopicPartitions, ...]


@dataclass(slots=True, kw_only=True, repr=False)
class ConsumerGroupCurrentMemberAssignmentKey(StoredRecord):
    """The key of a member's current assignment (type 8)."""

    __type__: ClassVar[EntityType] = EntityType.data
    __record_type__: ClassVar[int] = 8
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = False
    group_id: str = field(metadata={"kafka_type": "string"})
    member_id: str = field(metadata={"kafka_type": "string"})


@dataclass(slots=True, kw_only=True, repr=False)
class AssignedTopicPartitions(StoredRecord):
    """Partitions of one topic, each with the epoch at which the member got it."""

    __type__: ClassVar[EntityType] = EntityType.nested
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    topic_id: UUID = field(metadata={"kafka_type": "uuid"})
    partitions: tuple[int, ...] = field(metadata={"kafka_type": "int32"})
    assignment_epochs: tuple[int, ...] | None = field(
        metadata={"kafka_type": "int32", "tag": 0}, default=None
    )


@dataclass(slots=True, kw_only=True, repr=False)
class ConsumerGroupCurrentMemberAssignmentValue(StoredRecord):
    """The epochs, the state and the partitions of a member."""

    __type__: ClassVar[EntityType] = EntityType.data
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    member_epoch: int = field(metadata={"kafka_type": "int32"})
    previous_member_epoch: int = field(metadata={"kafka_type": "int32"})
    state: int = field(metadata={"kafka_type": "int8"})
    assigned_partitions: tuple[AssignedTopicPartitions, ...]
    partitions_pending_revocation: tuple[AssignedTopicPartitions, ...]


@dataclass(slots=True, kw_only=True, repr=False)
class ConsumerGroupRegularExpressionKey(StoredRecord):
    """The key of a regular expression (type 16)."""

    __type__: ClassVar[EntityType] = EntityType.data
    __record_type__: ClassVar[int] = 16
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = False
    group_id: str = field(metadata={"kafka_type": "string"})
    regular_expression: str = field(metadata={"kafka_type": "string"})


@dataclass(slots=True, kw_only=True, repr=False)
class ConsumerGroupRegularExpressionValue(StoredRecord):
    """The topics that a regular expression matched."""

    __type__: ClassVar[EntityType] = EntityType.data
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    topics: tuple[str, ...] = field(metadata={"kafka_type": "string"})
    version: int = field(metadata={"kafka_type": "int64"})
    timestamp: int = field(metadata={"kafka_type": "int64"})


MODERN_GROUP_RECORDS = record_classes(
    (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
)
"""The classes of key and value by record type; see `coordinator_records.RecordClasses`."""
