"""Keys and values from bytes to what the application wants, and what if that can't be done.

A deserializer is the application's own code and may raise anything.  What it can't read is
never accepted in silence:

    raise     the poll ends with a DeserializationError; the record is released (the default)
    reject    the record is rejected, which a warning in the log says
    raw       the record is handed out as an `UnreadableRecord`, with its bytes
"""

from __future__ import annotations

from typing import Any

from sharegroup.client.consumer_config import Deserializer, ShareConsumerConfig
from sharegroup.client.records import DeserializationError, Record, UnreadableRecord


class Deserialization:
    """See the module's text."""

    __slots__ = ("_config",)

    def __init__(self, config: ShareConsumerConfig) -> None:
        self._config = config

    def read(self, record: Record) -> Record:
        """The record without its bytes; DeserializationError unless it is to go out as bytes."""
        config = self._config
        try:
            key = _read(record, "key", record.key, config.key_deserializer)
            record.value = _read(record, "value", record.value, config.value_deserializer)
            record.key = key  # Last: a record that comes with an error has both as bytes.
        except DeserializationError as error:
            if config.on_deserialization_error == "raw":
                return _unreadable(record, error)
            raise
        return record


def _read(record: Record, name: str, raw: bytes | None, read: Deserializer | None) -> Any:
    if read is None or raw is None:
        return raw
    try:
        return read(raw)
    except Exception as error:
        text = (
            f"topic {record.topic!r} partition {record.partition} offset {record.offset}: "
            f"the {name} can't be deserialized: {error}"
        )
        raise DeserializationError(text, record) from error


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
