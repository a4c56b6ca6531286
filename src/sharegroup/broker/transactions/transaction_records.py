"""The stored form of the records of transactional ids in ``__transaction_state``."""

from __future__ import annotations

from sharegroup.broker.cluster.coordinator_log import KeyAndValue
from sharegroup.broker.groups.stored_records import RecordCodec, StoredForm
from sharegroup.core.transactions.records import (
    TransactionMetadata,
    TransactionPartition,
    TransactionRecord,
    TransactionState,
    TransactionTombstone,
)
from sharegroup.ids import TopicName
from sharegroup.wire.internal_topics import transaction_records as wire

FLEXIBLE_SINCE = 1
"""The ``transaction.version`` from which on records have version 1."""


def _stored_partitions(
    record: TransactionMetadata,
) -> tuple[wire.OldPartitionsSchema, ...] | None:
    """Return the partitions of a transaction in the class that both versions take."""
    if record.state is TransactionState.EMPTY:
        return None  # As Kafka writes it.
    by_topic: dict[TopicName, list[int]] = {}
    for topic, partition in sorted(record.partitions):
        by_topic.setdefault(topic, []).append(partition)
    return tuple(
        wire.OldPartitionsSchema(topic=topic, partition_ids=tuple(indexes))
        for topic, indexes in by_topic.items()
    )


def _loaded_partitions(
    value: wire.TransactionLogValue | wire.OldTransactionLogValue,
) -> frozenset[TransactionPartition]:
    return frozenset(
        TransactionPartition(TopicName(schema.topic), index)
        for schema in value.transaction_partitions or ()
        for index in schema.partition_ids
    )


_NAMES = {
    "timeout_ms": "transaction_timeout_ms",
    "state": "transaction_status",
    "updated_ms": "transaction_last_update_timestamp_ms",
    "started_ms": "transaction_start_timestamp_ms",
    "client_version": "client_transaction_version",
}

_FORM = StoredForm(
    TransactionMetadata,
    {
        **{name: own for own, name in _NAMES.items()},
        "transaction_partitions": _stored_partitions,
    },
    {
        **_NAMES,
        "state": lambda value: TransactionState(value.transaction_status),
        "partitions": _loaded_partitions,
    },
    TransactionTombstone,
)

_CODEC = RecordCodec[TransactionRecord](wire.TRANSACTION_RECORDS, {0: _FORM})
decode = _CODEC.decode


def encode(record: TransactionRecord, *, version: int) -> KeyAndValue:
    """Return the stored key and value; ``version`` is the broker's ``transaction.version``."""
    is_new = version >= FLEXIBLE_SINCE
    return _CODEC.encode(
        record, wire.TransactionLogValue if is_new else wire.OldTransactionLogValue
    )
