"""Records of logs as rows, and those of internal topics as JSON documents with their positions."""

from __future__ import annotations

from typing import Any

from sharegroup.internal_topics.coordinator_json import coordinator_json
from sharegroup.record_documents import Row, as_json
from sharegroup.wire.batches.records import DecodedRecord
from sharegroup.wire.internal_topics.coordinator_records import RecordClasses


def log_row(topic: str, partition: int, record: DecodedRecord) -> Row:
    """Return a record of a log as a row."""
    time = record.timestamp
    return Row(
        topic=topic,
        partition=partition,
        offset=record.offset,
        timestamp_ms=-1 if time is None else time,
        key=record.key,
        value=record.value,
        headers=record.headers,
    )


def coordinator_document(classes: RecordClasses, row: Row) -> dict[str, Any]:
    """Return a record of an internal topic with its position, and key and value decoded."""
    document = as_json(row)
    for name in ("key", "value", "key_base64", "value_base64", "headers"):
        document.pop(name, None)
    return document | coordinator_json(classes, row.key, row.value)
