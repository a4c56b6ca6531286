"""The records of transactional ids in ``__transaction_state``.

Declared in kio's style like `share_group_records`, with the names, order, types and tags of Kafka's
``TransactionLogKey.json`` and ``TransactionLogValue.json``.  Kafka writes version 1 of the value
from ``transaction.version`` 1 on, and version 0 before.

No ``from __future__ import annotations`` here: the decoder reads the types of the fields.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from sharegroup.wire.codec.schema import StoredKey, StoredStruct, StoredValue
from sharegroup.wire.internal_topics.coordinator_records import record_classes


@dataclass(slots=True, kw_only=True, repr=False)
class TransactionLogKey(StoredKey):
    """The key of a transactional id (type 0); a null value deletes the id."""

    __record_type__: ClassVar[int] = 0
    transactional_id: str = field(metadata={"kafka_type": "string"})


@dataclass(slots=True, kw_only=True, repr=False)
class PartitionsSchema(StoredStruct):
    """Partitions of a topic in a transaction."""

    __version__: ClassVar[int] = 1
    topic: str = field(metadata={"kafka_type": "string"})
    partition_ids: tuple[int, ...] = field(metadata={"kafka_type": "int32"})


class OldPartitionsSchema(PartitionsSchema):
    """Partitions of a topic in a transaction, in a value of version 0."""

    __slots__ = ()
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = False


@dataclass(slots=True, kw_only=True, repr=False)
class OldTransactionLogValue(StoredValue):
    """The producer of a transactional id and its transaction, in version 0."""

    __flexible__: ClassVar[bool] = False
    producer_id: int = field(metadata={"kafka_type": "int64"})
    producer_epoch: int = field(metadata={"kafka_type": "int16"})
    transaction_timeout_ms: int = field(metadata={"kafka_type": "int32"})
    transaction_status: int = field(metadata={"kafka_type": "int8"})
    transaction_partitions: tuple[OldPartitionsSchema, ...] | None
    transaction_last_update_timestamp_ms: int = field(metadata={"kafka_type": "int64"})
    transaction_start_timestamp_ms: int = field(metadata={"kafka_type": "int64"})


@dataclass(slots=True, kw_only=True, repr=False)
class TransactionLogValue(StoredValue):
    """The producer of a transactional id and its transaction."""

    __version__: ClassVar[int] = 1
    producer_id: int = field(metadata={"kafka_type": "int64"})
    previous_producer_id: int = field(metadata={"kafka_type": "int64", "tag": 0}, default=-1)
    next_producer_id: int = field(metadata={"kafka_type": "int64", "tag": 1}, default=-1)
    producer_epoch: int = field(metadata={"kafka_type": "int16"})
    next_producer_epoch: int = field(metadata={"kafka_type": "int16", "tag": 3}, default=-1)
    transaction_timeout_ms: int = field(metadata={"kafka_type": "int32"})
    transaction_status: int = field(metadata={"kafka_type": "int8"})
    transaction_partitions: tuple[PartitionsSchema, ...] | None
    transaction_last_update_timestamp_ms: int = field(metadata={"kafka_type": "int64"})
    transaction_start_timestamp_ms: int = field(metadata={"kafka_type": "int64"})
    client_transaction_version: int = field(metadata={"kafka_type": "int16", "tag": 2}, default=0)


TRANSACTION_RECORDS = record_classes(
    (TransactionLogKey, TransactionLogValue, OldTransactionLogValue),
)
"""The classes of key and values by record type; see `coordinator_records.RecordClasses`."""
