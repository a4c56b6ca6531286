"""Takes fetched records out of the states of the partitions, for one poll.

A record that cannot be read or deserialized ends a poll: the records before it are returned, and
the next poll raises the error.  The position stays at that record, so a seek can go on behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sharegroup.client.consume.consumer_record import (
    ConsumerRecord,
    RecordDeserializationError,
    UnreadableConsumerRecord,
)
from sharegroup.client.consume.partition_states import PartitionStates
from sharegroup.client.fetch.record_content import Field, deserialize
from sharegroup.client.settings.option_values import OnUnreadableRecord
from sharegroup.client.settings.plain_consumer_config import ConsumerConfig
from sharegroup.wire.batches.batches import UNREADABLE

if TYPE_CHECKING:
    import pyarrow as pa


def take_records(
    states: PartitionStates, config: ConsumerConfig, limit: int
) -> list[ConsumerRecord]:
    """Take up to ``limit`` records; the positions move behind them."""
    deserializes = config.key_deserializer is not None or config.value_deserializer is not None
    taken: list[ConsumerRecord] = []
    while len(taken) < limit and (state := states.next_to_take()) is not None:
        fetched = state.fetched[0]
        try:
            records = fetched.take(limit - len(taken))
        except UNREADABLE:
            state.refetch()
            if taken:
                return taken
            raise
        failure = None
        if deserializes:
            records, failure = _deserialized(records, config)
            if failure is not None:
                fetched.back_to(failure.record)
        states.taken(state)
        taken = taken + records if taken else records
        if failure is not None:
            if taken:
                return taken
            raise failure
    return taken


def take_columns(states: PartitionStates, limit: int) -> list[pa.RecordBatch]:
    """Take up to ``limit`` records as Arrow batches, one or more of each partition."""
    taken: list[pa.RecordBatch] = []
    count = 0
    while count < limit and (state := states.next_to_take()) is not None:
        try:
            batch = state.fetched[0].take_columns(limit - count)
        except UNREADABLE:
            state.refetch()
            if taken:
                return taken
            raise
        states.taken(state)
        if batch is not None:
            taken.append(batch)
            count += batch.num_rows
    return taken


def _deserialized(
    records: list[ConsumerRecord], config: ConsumerConfig
) -> tuple[list[ConsumerRecord], RecordDeserializationError | None]:
    """Deserialize the records up to the first one that fails, and return its error or None."""
    is_raw = config.on_deserialization_error is OnUnreadableRecord.RAW
    done: list[ConsumerRecord] = []
    for record in records:
        try:
            deserialize(
                record,
                key_deserializer=config.key_deserializer,
                value_deserializer=config.value_deserializer,
                failure=_failure,
            )
        except RecordDeserializationError as error:
            if not is_raw:
                return done, error
            unreadable = UnreadableConsumerRecord(
                record._origin,
                record.offset,
                record.timestamp_ms,
                record.key,
                record.value,
                record.headers,
            )
            unreadable.error = error
            record = unreadable
        done.append(record)
    return done, None


def _failure(record: ConsumerRecord, field: Field, error: Exception) -> RecordDeserializationError:
    text = (
        f"topic {record.topic!r} partition {record.partition} offset {record.offset}: "
        f"the {field} can't be deserialized: {error}; seek to {record.offset + 1} to go on "
        "behind the record, or use on_deserialization_error='raw'"
    )
    return RecordDeserializationError(text, record, field)
