"""The records of share groups in ``__consumer_offsets``, types 10 to 15.

Declared in kio's style like `share_state_records`, with the names, order, types and tags of Kafka's
``ShareGroupMetadataKey.json`` and the eleven schemas that belong to it.

No ``from __future__ import annotations`` here: the decoder reads the types of the fields.
"""

from dataclasses import dataclass, field
from typing import ClassVar
from uuid import UUID

from kio.static.constants import EntityType

from sharegroup.wire.codec.schema import StoredRecord
from sharegroup.wire.internal_topics.coordinator_records import record_classes


@dataclass(slots=True, kw_only=True, repr=False)
class ShareGroupMemberMetadataKey(StoredRecord):
    """The key of a member (type 10)."""

    __type__: ClassVar[EntityType] = EntityType.data
    __record_type__: ClassVar[int] = 10
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = False
    group_id: str = field(metadata={"kafka_type": "string"})
    member_id: str = field(metadata={"kafka_type": "string"})


@dataclass(slots=True, kw_only=True, repr=False)
class ShareGroupMemberMetadataValue(StoredRecord):
    """A member's identity and subscription."""

    __type__: ClassVar[EntityType] = EntityType.data
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    rack_id: str | None = field(metadata={"kafka_type": "string"})
    client_id: str = field(metadata={"kafka_type": "string"})
    client_host: str = field(metadata={"kafka_type": "string"})
    subscribed_topic_names: tuple[str, ...] = field(metadata={"kafka_type": "string"})


@dataclass(slots=True, kw_only=True, repr=False)
class ShareGroupMetadataKey(StoredRecord):
    """The key of a group (type 11); a null value deletes the group."""

    __type__: ClassVar[EntityType] = EntityType.data
    __record_type__: ClassVar[int] = 11
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = False
    group_id: str = field(metadata={"kafka_type": "string"})


@dataclass(slots=True, kw_only=True, repr=False)
class ShareGroupMetadataValue(StoredRecord):
    """The group's epoch, and a hash of the topics at that epoch."""

    __type__: ClassVar[EntityType] = EntityType.data
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    epoch: int = field(metadata={"kafka_type": "int32"})
    metadata_hash: int = field(metadata={"kafka_type": "int64"})


@dataclass(slots=True, kw_only=True, repr=False)
class ShareGroupTargetAssignmentMetadataKey(StoredRecord):
    """The key of a target assignment's epoch (type 12)."""

    __type__: ClassVar[EntityType] = EntityType.data
    __record_type__: ClassVar[int] = 12
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = False
    group_id: str = field(metadata={"kafka_type": "string"})


@dataclass(slots=True, kw_only=True, repr=False)
class ShareGroupTargetAssignmentMetadataValue(StoredRecord):
    """The epoch and the time of the target assignment (KIP-1263)."""

    __type__: ClassVar[EntityType] = EntityType.data
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    assignment_epoch: int = field(metadata={"kafka_type": "int32"})
    assignment_timestamp: int = field(metadata={"kafka_type": "int64", "tag": 0}, default=0)


@dataclass(slots=True, kw_only=True, repr=False)
class TopicPartitions(StoredRecord):
    """Partitions of one topic."""

    __type__: ClassVar[EntityType] = EntityType.nested
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    topic_id: UUID = field(metadata={"kafka_type": "uuid"})
    partitions: tuple[int, ...] = field(metadata={"kafka_type": "int32"})


@dataclass(slots=True, kw_only=True, repr=False)
class ShareGroupTargetAssignmentMemberKey(StoredRecord):
    """The key of a member's target assignment (type 13)."""

    __type__: ClassVar[EntityType] = EntityType.data
    __record_type__: ClassVar[int] = 13
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = False
    group_id: str = field(metadata={"kafka_type": "string"})
    member_id: str = field(metadata={"kafka_type": "string"})


@dataclass(slots=True, kw_only=True, repr=False)
class ShareGroupTargetAssignmentMemberValue(StoredRecord):
    """A member's part of the target assignment."""

    __type__: ClassVar[EntityType] = EntityType.data
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    topic_partitions: tuple[TopicPartitions, ...]


@dataclass(slots=True, kw_only=True, repr=False)
class ShareGroupCurrentMemberAssignmentKey(StoredRecord):
    """The key of a member's current assignment (type 14)."""

    __type__: ClassVar[EntityType] = EntityType.data
    __record_type__: ClassVar[int] = 14
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = False
    group_id: str = field(metadata={"kafka_type": "string"})
    member_id: str = field(metadata={"kafka_type": "string"})


@dataclass(slots=True, kw_only=True, repr=False)
class ShareGroupCurrentMemberAssignmentValue(StoredRecord):
    """The assignment that was sent to a member; its state is always 0 (stable) in share groups."""

    __type__: ClassVar[EntityType] = EntityType.data
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    member_epoch: int = field(metadata={"kafka_type": "int32"})
    previous_member_epoch: int = field(metadata={"kafka_type": "int32"})
    state: int = field(metadata={"kafka_type": "int8"})
    assigned_partitions: tuple[TopicPartitions, ...]


@dataclass(slots=True, kw_only=True, repr=False)
class TopicPartitionsInfo(StoredRecord):
    """Partitions of one topic, with its name."""

    __type__: ClassVar[EntityType] = EntityType.nested
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    topic_id: UUID = field(metadata={"kafka_type": "uuid"})
    topic_name: str = field(metadata={"kafka_type": "string"})
    partitions: tuple[int, ...] = field(metadata={"kafka_type": "int32"})


@dataclass(slots=True, kw_only=True, repr=False)
class TopicInfo(StoredRecord):
    """A topic with its name."""

    __type__: ClassVar[EntityType] = EntityType.nested
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    topic_id: UUID = field(metadata={"kafka_type": "uuid"})
    topic_name: str = field(metadata={"kafka_type": "string"})


@dataclass(slots=True, kw_only=True, repr=False)
class ShareGroupStatePartitionMetadataKey(StoredRecord):
    """The key of the topics with a share state (type 15)."""

    __type__: ClassVar[EntityType] = EntityType.data
    __record_type__: ClassVar[int] = 15
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = False
    group_id: str = field(metadata={"kafka_type": "string"})


@dataclass(slots=True, kw_only=True, repr=False)
class ShareGroupStatePartitionMetadataValue(StoredRecord):
    """The topics whose share state exists, is being initialized, or is being deleted."""

    __type__: ClassVar[EntityType] = EntityType.data
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    initializing_topics: tuple[TopicPartitionsInfo, ...]
    initialized_topics: tuple[TopicPartitionsInfo, ...]
    deleting_topics: tuple[TopicInfo, ...]


SHARE_GROUP_RECORDS = record_classes(
    (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
    (ShareGroupMetadataKey, ShareGroupMetadataValue),
    (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
    (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
    (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
    (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
)
"""The classes of key and value by record type; see `coordinator_records.RecordClasses`."""
