"""Encodes the records of transactional ids for ``__transaction_state``, and decodes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from sharegroup.broker.cluster.coordinator_log import KeyAndValue
from sharegroup.core.transactions.records import (
    TransactionMetadata,
    TransactionPartition,
    TransactionRecord,
    TransactionState,
    TransactionTombstone,
)
from sharegroup.ids import TopicName
from sharegroup.wire.internal_topics import transaction_records as wire
from sharegroup.wire.internal_topics.coordinator_records import (
    decode_record,
    encode_key,
    encode_value,
)

Schema = TypeVar("Schema", wire.PartitionsSchema, wire.OldPartitionsSchema)

FLEXIBLE_SINCE = 1
"""The ``transaction.version`` from which on records have version 1."""


def encode(record: TransactionRecord, *, version: int) -> KeyAndValue:
    """Return the stored key and value; ``version`` is the broker's ``transaction.version``."""
    key = encode_key(wire.TransactionLogKey(transactional_id=record.transactional_id))
    if isinstance(record, TransactionTombstone):
        return key, None
    return key, encode_value(_value(record) if version >= FLEXIBLE_SINCE else _old_value(record))


def decode(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """Return the stored record, or None for a record type that this version does not know."""
    decoded = decode_record(wire.TRANSACTION_RECORDS, key, value)
    if decoded is None:
        return None
    stored_key, stored = decoded
    transactional_id = stored_key.transactional_id
    if stored is None:
        return TransactionTombstone(transactional_id)
    is_new = isinstance(stored, wire.TransactionLogValue)
    return TransactionMetadata(
        transactional_id,
        stored.producer_id,
        stored.producer_epoch,
        stored.transaction_timeout_ms,
        TransactionState(stored.transaction_status),
        _partitions(stored.transaction_partitions or ()),
        stored.transaction_start_timestamp_ms,
        stored.transaction_last_update_timestamp_ms,
        stored.previous_producer_id if is_new else -1,
        stored.next_producer_id if is_new else -1,
        client_version=stored.client_transaction_version if is_new else 0,
    )


def _value(record: TransactionMetadata) -> wire.TransactionLogValue:
    return wire.TransactionLogValue(
        producer_id=record.producer_id,
        previous_producer_id=record.previous_producer_id,
        next_producer_id=record.next_producer_id,
        producer_epoch=record.producer_epoch,
        transaction_timeout_ms=record.timeout_ms,
        transaction_status=record.state,
        transaction_partitions=_stored(record, wire.PartitionsSchema),
        transaction_last_update_timestamp_ms=record.updated_ms,
        transaction_start_timestamp_ms=record.started_ms,
        client_transaction_version=record.client_version,
    )


def _old_value(record: TransactionMetadata) -> wire.OldTransactionLogValue:
    return wire.OldTransactionLogValue(
        producer_id=record.producer_id,
        producer_epoch=record.producer_epoch,
        transaction_timeout_ms=record.timeout_ms,
        transaction_status=record.state,
        transaction_partitions=_stored(record, wire.OldPartitionsSchema),
        transaction_last_update_timestamp_ms=record.updated_ms,
        transaction_start_timestamp_ms=record.started_ms,
    )


def _stored(record: TransactionMetadata, schema: type[Schema]) -> tuple[Schema, ...] | None:
    if record.state is TransactionState.EMPTY:
        return None  # As Kafka writes it.
    by_topic: dict[TopicName, list[int]] = {}
    for topic, partition in sorted(record.partitions):
        by_topic.setdefault(topic, []).append(partition)
    return tuple(
        schema(topic=topic, partition_ids=tuple(indexes)) for topic, indexes in by_topic.items()
    )


def _partitions(
    stored: Iterable[wire.PartitionsSchema | wire.OldPartitionsSchema],
) -> frozenset[TransactionPartition]:
    return frozenset(
        TransactionPartition(TopicName(schema.topic), index)
        for schema in stored
        for index in schema.partition_ids
    )
