"""Deserializes keys and values, and handles records that cannot be deserialized.

A deserializer is code of the application and may raise any exception.  A record that it cannot
read is never accepted silently; ``on_deserialization_error`` decides:

    raise     the poll raises a DeserializationError; the record is released (the default)
    reject    the record is rejected, and a warning is logged
    raw       the record is handed out as an `UnreadableRecord`, with its bytes
"""

from __future__ import annotations

from typing import Any, Literal

from sharegroup.client.settings.consumer_config import Deserializer, ShareConsumerConfig
from sharegroup.client.settings.option_values import OnDeserializationError
from sharegroup.client.share.record import DeserializationError, Record, UnreadableRecord


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
        sizes = _size(record.key), _size(record.value)
        try:
            key = _read(record, "key", record.key, config.key_deserializer)
            record.value = _read(record, "value", record.value, config.value_deserializer)
            # The key is set last, because after an error both key and value must be bytes.
            record.key = key
            record._sizes = sizes
        except DeserializationError as error:
            if config.on_deserialization_error is OnDeserializationError.RAW:
                return _unreadable(record, error)
            raise
        return record


def _size(content: bytes | None) -> int | None:
    return None if content is None else len(content)


def _read(
    record: Record, name: Literal["key", "value"], raw: bytes | None, read: Deserializer | None
) -> Any:
    if read is None or raw is None:
        return raw
    try:
        return read(raw)
    except Exception as error:
        text = (
            f"topic {record.topic!r} partition {record.partition} offset {record.offset}: "
            f"the {name} can't be deserialized: {error}"
        )
        raise DeserializationError(text, record, name) from error


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
