"""A row for each record of the internal topics, decoded.

``key`` and ``value`` are JSON as Kafka's formatters print it.  The fields that queries need most
are columns, too: what a record does not have is null.  A record with a key and a null value is a
tombstone: it deletes the earlier records of its key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from sharegroup.client.records import TopicPartition
from sharegroup.core.delivery.delivery import RecordState
from sharegroup.internal_topics.coordinator_json import INTERNAL_TOPICS, coordinator_json
from sharegroup.spark.decoded_read import decoded_records
from sharegroup.spark.options import SHARE_STATE_TOPIC, StateOptions
from sharegroup.wire.batches.records import DecodedRecord

TIME = pa.timestamp("us", tz="UTC")
CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
OFFSET_COMMIT_TYPES = (0, 1)
MILLISECONDS_MAX = (2**63 - 1) // 1000

BATCH = pa.struct(
    [
        ("firstOffset", pa.int64()),
        ("lastOffset", pa.int64()),
        ("state", pa.string()),
        ("deliveryCount", pa.int32()),
    ]
)
SHARE = pa.struct(
    [
        ("topicId", pa.string()),
        ("partition", pa.int32()),
        ("snapshotEpoch", pa.int32()),
        ("stateEpoch", pa.int32()),
        ("leaderEpoch", pa.int32()),
        ("startOffset", pa.int64()),
        ("deliveryCompleteCount", pa.int32()),
        ("batches", pa.list_(BATCH)),
    ]
)
COMMITTED = pa.struct(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("metadata", pa.string()),
        ("time", TIME),
    ]
)
TRANSACTION = pa.struct(
    [
        ("producerId", pa.int64()),
        ("producerEpoch", pa.int32()),
        ("state", pa.string()),
        ("timeoutMs", pa.int32()),
        ("startTime", TIME),
        ("lastUpdateTime", TIME),
        (
            "partitions",
            pa.list_(pa.struct([("topic", pa.string()), ("partition", pa.int32())])),
        ),
    ]
)
ARROW_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIME),
        ("type", pa.string()),
        ("group", pa.string()),
        ("memberId", pa.string()),
        ("transactionalId", pa.string()),
        ("isTombstone", pa.bool_()),
        ("share", SHARE),
        ("committed", COMMITTED),
        ("transaction", TRANSACTION),
        ("key", pa.string()),
        ("value", pa.string()),
        ("unknown", pa.string()),
    ]
)

Fields = Mapping[str, Any]
"""The fields of a key or a value, by their names in Kafka's schemas."""


def read(options: StateOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task, in the order of offsets within each topic partition."""
    for where, records in decoded_records(options, partition):
        if records:
            rows = [record_row(where, record) for record in records]
            yield pa.RecordBatch.from_pylist(rows, schema=ARROW_SCHEMA)


def record_row(where: TopicPartition, record: DecodedRecord) -> dict[str, Any]:
    """Return the row of a record; ``unknown`` says why one could not be decoded."""
    classes = INTERNAL_TOPICS[where.topic]
    document = coordinator_json(classes, record.key, record.value)
    row = {
        "topic": where.topic,
        "partition": where.partition,
        "offset": record.offset,
        "timestamp": _micros(record.timestamp),
        "isTombstone": record.value is None,
        "key": _json(document["key"]),
        "value": _json(document["value"]),
        "unknown": document.get("unknown"),
    }
    if "unknown" in document:
        return row
    record_type, key = document["key"]["type"], document["key"]["data"]
    value = None if document["value"] is None else document["value"]["data"]
    row |= {
        "type": classes[record_type][0].__name__.removesuffix("Key"),
        "group": key.get("group", key.get("groupId")),
        "memberId": key.get("memberId"),
        "transactionalId": key.get("transactionalId"),
    }
    if where.topic == SHARE_STATE_TOPIC:
        # A tombstone has a key only, and still says whose state it deletes.
        row["share"] = _share(key, value or {})
    elif where.topic == CONSUMER_OFFSETS and record_type in OFFSET_COMMIT_TYPES:
        row["committed"] = _committed(key, value or {})
    elif where.topic == TRANSACTION_STATE and value is not None:
        row["transaction"] = _transaction(value)
    return row


def _share(key: Fields, value: Fields) -> dict[str, Any]:
    batches = value.get("stateBatches")
    return {
        "topicId": key["topicId"],
        "partition": key["partition"],
        "snapshotEpoch": value.get("snapshotEpoch"),
        "stateEpoch": value.get("stateEpoch"),
        "leaderEpoch": value.get("leaderEpoch"),
        "startOffset": value.get("startOffset"),
        "deliveryCompleteCount": value.get("deliveryCompleteCount"),
        "batches": None
        if batches is None
        else [
            {
                "firstOffset": batch["firstOffset"],
                "lastOffset": batch["lastOffset"],
                "state": state_name(batch["deliveryState"]),
                "deliveryCount": batch["deliveryCount"],
            }
            for batch in batches
        ],
    }


def state_name(code: int) -> str:
    """Return the name of a record state; the code of a later release stays a number."""
    try:
        return RecordState(code).name.lower()
    except ValueError:
        return str(code)


def _committed(key: Fields, value: Fields) -> dict[str, Any]:
    return {
        "topic": key["topic"],
        "partition": key["partition"],
        "offset": value.get("offset"),
        "metadata": value.get("metadata"),
        "time": _micros(value.get("commitTimestamp")),
    }


def _transaction(value: Fields) -> dict[str, Any]:
    return {
        "producerId": value["producerId"],
        "producerEpoch": value["producerEpoch"],
        "state": value["transactionStatus"],
        "timeoutMs": value["transactionTimeoutMs"],
        "startTime": _micros(value["transactionStartTimestampMs"]),
        "lastUpdateTime": _micros(value["transactionLastUpdateTimestampMs"]),
        "partitions": [
            {"topic": topic["topic"], "partition": partition}
            for topic in value["transactionPartitions"] or ()
            for partition in topic["partitionIds"]
        ],
    }


def _json(document: Any) -> str | None:
    return None if document is None else json.dumps(document["data"], separators=(",", ":"))


def _micros(milliseconds: int | None) -> int | None:
    """Convert a time to Spark's microseconds; None for a time that is not set."""
    if milliseconds is None or milliseconds < 0:
        return None
    return min(milliseconds, MILLISECONDS_MAX) * 1000
