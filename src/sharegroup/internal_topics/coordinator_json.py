"""Converts records of coordinators to JSON, in the format of Kafka's formatters.

    {"key":{"type":0,"data":{"groupId":...}},"value":{"version":0,"data":{...}}}

Names are those of the schemas, in camel case. Ids are in Kafka's base64. A tagged field with its
default value is omitted. A null value deletes the key: the record is a tombstone.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import fields
from typing import Any
from uuid import UUID

from sharegroup.core.transactions.records import TransactionState
from sharegroup.ids import TopicId, topic_id_text
from sharegroup.wire.codec.decoder import DecodeError
from sharegroup.wire.internal_topics.classic_group_records import CLASSIC_GROUP_RECORDS
from sharegroup.wire.internal_topics.coordinator_records import (
    PREFIX_BYTES,
    RecordClasses,
    decode_record,
)
from sharegroup.wire.internal_topics.modern_group_records import MODERN_GROUP_RECORDS
from sharegroup.wire.internal_topics.share_group_records import SHARE_GROUP_RECORDS
from sharegroup.wire.internal_topics.share_state_records import SHARE_STATE_RECORDS
from sharegroup.wire.internal_topics.transaction_records import (
    TRANSACTION_RECORDS,
    OldTransactionLogValue,
    TransactionLogValue,
)

INTERNAL_TOPICS: Mapping[str, RecordClasses] = {
    "__consumer_offsets": {**CLASSIC_GROUP_RECORDS, **MODERN_GROUP_RECORDS, **SHARE_GROUP_RECORDS},
    "__share_group_state": SHARE_STATE_RECORDS,
    "__transaction_state": TRANSACTION_RECORDS,
}
"""The record classes of each internal topic."""


def coordinator_json(
    classes: RecordClasses, key: bytes | None, value: bytes | None
) -> dict[str, Any]:
    """Return ``key`` and ``value`` in the format of Kafka's formatters.

    For an unknown record (other types of groups, newer versions), ``data`` has the bytes in
    base64, so that another program can read them, and ``unknown`` says why.
    """
    if key is None or len(key) < PREFIX_BYTES:
        return {"unknown": "no key with a type", **_raw(None, key, value)}
    record_type = int.from_bytes(key[:PREFIX_BYTES], "big", signed=True)
    try:
        decoded = decode_record(classes, key, value)
    except DecodeError as error:
        return {"unknown": str(error), **_raw(record_type, key, value)}
    if decoded is None:
        return {"unknown": f"record type {record_type}", **_raw(record_type, key, value)}
    key_message, value_message = decoded
    return {
        "key": {"type": record_type, "data": message_json(key_message)},
        "value": None
        if value is None
        else {"version": _prefix(value), "data": _value_json(value_message)},
    }


def message_json(message: Any) -> Any:
    """Return a message of the schemas, or a field of a message, as a JSON document."""
    if isinstance(message, tuple):
        return [message_json(element) for element in message]
    if isinstance(message, UUID):
        return topic_id_text(TopicId(message))
    if message is None or isinstance(message, str | int):
        return message
    if isinstance(message, bytes):
        return base64.b64encode(message).decode()
    return {
        _camel(field.name): message_json(getattr(message, field.name))
        for field in fields(message)
        if "tag" not in field.metadata or getattr(message, field.name) != field.default
    }


def _value_json(message: Any) -> Any:
    """Return a value as JSON; the state of a transaction has its name, as Kafka's formatter has."""
    document = message_json(message)
    if isinstance(message, TransactionLogValue | OldTransactionLogValue):
        document["transactionStatus"] = _state_name(message.transaction_status)
    return document


def _state_name(status: int) -> str:
    """Return the name of a state of a transaction; a number of later releases stays a number."""
    try:
        return TransactionState(status).label
    except ValueError:
        return str(status)


def _raw(record_type: int | None, key: bytes | None, value: bytes | None) -> dict[str, Any]:
    return {
        "key": None if key is None else {"type": record_type, "data": _base64(key)},
        "value": None if value is None else {"version": _prefix(value), "data": _base64(value)},
    }


def _prefix(content: bytes) -> int:
    return int.from_bytes(content[:PREFIX_BYTES], "big", signed=True)


def _base64(content: bytes) -> str:
    """Return the bytes after the type or version, in base64."""
    return base64.b64encode(content[PREFIX_BYTES:]).decode()


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
