"""Deserializes keys and values, and handles records that cannot be deserialized.

A deserializer is code of the application and may raise any exception.  A record that it cannot
read is never accepted silently; ``on_deserialization_error`` decides:

    raise     the poll raises a DeserializationError; the record is released (the default)
    reject    the record is rejected, and a warning is logged
    raw       the record is handed out as an `UnreadableRecord`, with its bytes
"""

from __future__ import annotations

from sharegroup.client.fetch.record_content import Field, deserialize
from sharegroup.client.settings.consumer_config import ShareConsumerConfig
from sharegroup.client.settings.option_values import OnDeserializationError
from sharegroup.client.share.consumer.record import DeserializationError, Record, UnreadableRecord


class Deserialization:
    """Applies the configured deserializers to records."""

    __slots__ = ("_config",)

    def __init__(self, config: ShareConsumerConfig) -> None:
        self._config = config

    def read(self, record: Record) -> Record:
        """Return the record with deserialized key and value.

        If that fails, return an UnreadableRecord (with "raw"), or raise DeserializationError.
        """
        config = self._config
        try:
            deserialize(
                record,
                key_deserializer=config.key_deserializer,
                value_deserializer=config.value_deserializer,
                failure=_failure,
            )
        except DeserializationError as error:
            if config.on_deserialization_error is OnDeserializationError.RAW:
                return _unreadable(record, error)
            raise
        return record


def _failure(record: Record, field: Field, error: Exception) -> DeserializationError:
    text = (
        f"topic {record.topic!r} partition {record.partition} offset {record.offset}: "
        f"the {field} can't be deserialized: {error}"
    )
    return DeserializationError(text, record, field)


def _unreadable(record: Record, error: DeserializationError) -> UnreadableRecord:
    unreadable = UnreadableRecord(
        record._lock,
        record.offset,
        record.timestamp_ms,
        record.key,
        record.value,
        record.headers,
    )
    unreadable.error = error
    return unreadable
