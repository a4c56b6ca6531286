"""The records of consumer groups in ``__consumer_offsets``, types 1 and 2.

Declared in kio's style like `share_group_records`, with the names, order, types and tags of Kafka's
``OffsetCommitKey.json``, ``GroupMetadataKey.json`` and their values, in the versions that Kafka
writes: offsets in version 4, or in version 1 if the client set their retention; groups in version
3.

No ``from __future__ import annotations`` here: the decoder reads the types of the fields.
"""

from dataclasses import dataclass, field
from typing import ClassVar
from uuid import UUID

from sharegroup.wire.codec.schema import StoredKey, StoredStruct, StoredValue
from sharegroup.wire.internal_topics.coordinator_records import record_classes


@dataclass(slots=True, kw_only=True, repr=False)
class OffsetCommitKey(StoredKey):
    """The key of a committed offset (type 1); a null value deletes the offset."""

    __record_type__: ClassVar[int] = 1
    group: str = field(metadata={"kafka_type": "string"})
    topic: str = field(metadata={"kafka_type": "string"})
    partition: int = field(metadata={"kafka_type": "int32"})


@dataclass(slots=True, kw_only=True, repr=False)
class OffsetCommitValue(StoredValue):
    """A committed offset, with the topic id that distinguishes topics of the same name."""

    __version__: ClassVar[int] = 4
    offset: int = field(metadata={"kafka_type": "int64"})
    leader_epoch: int = field(metadata={"kafka_type": "int32"}, default=-1)
    metadata: str = field(metadata={"kafka_type": "string"})
    commit_timestamp: int = field(metadata={"kafka_type": "int64"})
    topic_id: UUID = field(metadata={"kafka_type": "uuid", "tag": 0}, default=UUID(int=0))


@dataclass(slots=True, kw_only=True, repr=False)
class ExpiringOffsetCommitValue(StoredValue):
    """A committed offset whose retention the client set (OffsetCommit up to version 4)."""

    __version__: ClassVar[int] = 1
    __flexible__: ClassVar[bool] = False
    offset: int = field(metadata={"kafka_type": "int64"})
    metadata: str = field(metadata={"kafka_type": "string"})
    commit_timestamp: int = field(metadata={"kafka_type": "int64"})
    expire_timestamp: int = field(metadata={"kafka_type": "int64"}, default=-1)


@dataclass(slots=True, kw_only=True, repr=False)
class GroupMetadataKey(StoredKey):
    """The key of a group (type 2); a null value deletes the group."""

    __record_type__: ClassVar[int] = 2
    group: str = field(metadata={"kafka_type": "string"})


@dataclass(slots=True, kw_only=True, repr=False)
class MemberMetadata(StoredStruct):
    """A member of the group."""

    __version__: ClassVar[int] = 3
    __flexible__: ClassVar[bool] = False
    member_id: str = field(metadata={"kafka_type": "string"})
    group_instance_id: str | None = field(metadata={"kafka_type": "string"}, default=None)
    client_id: str = field(metadata={"kafka_type": "string"})
    client_host: str = field(metadata={"kafka_type": "string"})
    rebalance_timeout: int = field(metadata={"kafka_type": "int32"}, default=-1)
    session_timeout: int = field(metadata={"kafka_type": "int32"})
    subscription: bytes = field(metadata={"kafka_type": "bytes"})
    assignment: bytes = field(metadata={"kafka_type": "bytes"})


@dataclass(slots=True, kw_only=True, repr=False)
class GroupMetadataValue(StoredValue):
    """A group's last generation."""

    __version__: ClassVar[int] = 3
    __flexible__: ClassVar[bool] = False
    protocol_type: str = field(metadata={"kafka_type": "string"})
    generation: int = field(metadata={"kafka_type": "int32"})
    protocol: str | None = field(metadata={"kafka_type": "string"})
    leader: str | None = field(metadata={"kafka_type": "string"})
    current_state_timestamp: int = field(metadata={"kafka_type": "int64"}, default=-1)
    members: tuple[MemberMetadata, ...]


CLASSIC_GROUP_RECORDS = record_classes(
    (OffsetCommitKey, OffsetCommitValue, ExpiringOffsetCommitValue),
    (GroupMetadataKey, GroupMetadataValue),
)
"""The classes of key and values by record type; see `coordinator_records.RecordClasses`."""
