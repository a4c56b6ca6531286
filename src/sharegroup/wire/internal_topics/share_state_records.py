"""The records of ``__share_group_state``, in which the share coordinator stores share state.

kio has the schemas of requests, not of these, so they are declared here in its style and work with
the same decoder and encoder, and with kio's writer. Names, order, types and tags are those of
Kafka's ``ShareSnapshotKey.json`` and the three schemas that belong to it, because Kafka's formatter
must be able to read our files. `coordinator_records` adds type and version. Two tagged fields are
ours, from 10000 on: Kafka's decoder skips them (ADR 0061).

No ``from __future__ import annotations`` here: the decoder reads the types of the fields.
"""

from dataclasses import dataclass, field
from typing import ClassVar
from uuid import UUID

from sharegroup.wire.codec.schema import StoredKey, StoredStruct, StoredValue
from sharegroup.wire.internal_topics.coordinator_records import record_classes


@dataclass(slots=True, kw_only=True, repr=False)
class StoredStateBatch(StoredStruct):
    """A run of offsets in one state; both offsets are inclusive."""

    first_offset: int = field(metadata={"kafka_type": "int64"})
    last_offset: int = field(metadata={"kafka_type": "int64"})
    delivery_state: int = field(metadata={"kafka_type": "int8"})
    """0 available, 2 acknowledged, 3 archiving, 4 archived.

    Archiving records wait for their copy in a dead-letter queue.
    """
    delivery_count: int = field(metadata={"kafka_type": "int16"})
    redelivery_time_ms: int = field(metadata={"kafka_type": "int64", "tag": 10_000}, default=0)
    """Wall-clock time before which available records are not delivered again; 0: there is none."""
    archive_reason: int = field(metadata={"kafka_type": "int8", "tag": 10_001}, default=0)
    """Why archiving records failed: 1 rejected, 2 exhausted, 3 unreadable; 0: not known."""


@dataclass(slots=True, kw_only=True, repr=False)
class ShareSnapshotKey(StoredKey):
    """The key of a snapshot (type 0); a null value deletes the share partition's state."""

    __record_type__: ClassVar[int] = 0
    group_id: str = field(metadata={"kafka_type": "string"})
    topic_id: UUID = field(metadata={"kafka_type": "uuid"})
    partition: int = field(metadata={"kafka_type": "int32"})


@dataclass(slots=True, kw_only=True, repr=False)
class ShareSnapshotValue(StoredValue):
    """The whole state of a share partition."""

    snapshot_epoch: int = field(metadata={"kafka_type": "int32"})
    state_epoch: int = field(metadata={"kafka_type": "int32"})
    leader_epoch: int = field(metadata={"kafka_type": "int32"})
    start_offset: int = field(metadata={"kafka_type": "int64"})
    delivery_complete_count: int = field(metadata={"kafka_type": "int32", "tag": 0}, default=-1)
    """Number of terminal offsets from the start offset on; -1 if unknown (KIP-1226)."""
    create_timestamp: int = field(metadata={"kafka_type": "int64"})
    write_timestamp: int = field(metadata={"kafka_type": "int64"})
    state_batches: tuple[StoredStateBatch, ...]


class ShareUpdateKey(ShareSnapshotKey):
    """The key of an update (type 1); it has the fields of a snapshot's key."""

    __slots__ = ()
    __record_type__: ClassVar[int] = 1


@dataclass(slots=True, kw_only=True, repr=False)
class ShareUpdateValue(StoredValue):
    """The changes since the snapshot of the same epoch and the updates after it."""

    snapshot_epoch: int = field(metadata={"kafka_type": "int32"})
    leader_epoch: int = field(metadata={"kafka_type": "int32"})
    start_offset: int = field(metadata={"kafka_type": "int64"})
    """-1 keeps the start offset."""
    delivery_complete_count: int = field(metadata={"kafka_type": "int32", "tag": 0}, default=-1)
    state_batches: tuple[StoredStateBatch, ...]


SHARE_STATE_RECORDS = record_classes(
    (ShareSnapshotKey, ShareSnapshotValue),
    (ShareUpdateKey, ShareUpdateValue),
)
"""The classes of key and value by record type; see `coordinator_records.RecordClasses`."""
