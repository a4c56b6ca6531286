"""``df.write`` and ``df.writeStream``: rows become records, through the idempotent producer.

The columns are those of Spark's Kafka sink: ``value``, and if there are any ``key``, ``topic``,
``headers`` and ``partition``; ``timestamp`` besides.  What the source adds to them (offset,
timestampType, deliveryCount) is passed over, so that a stream can be copied as it is.

A task has written when every record is acknowledged by all in-sync replicas.  A task that Spark
runs again, or a batch that it replays after a crash, writes its records again: at-least-once,
as with Spark's own Kafka sink.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sharegroup.client.producer import Delivery, Producer
from sharegroup.errors import InvalidConfig, InvalidRecord
from sharegroup.spark.background import LoopThread
from sharegroup.spark.options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

_BYTES = (BinaryType(), StringType())
_COLUMNS: dict[str, tuple[DataType, ...]] = {
    "value": _BYTES,
    "key": _BYTES,
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "timestamp": (TimestampType(),),
    "headers": (
        ArrayType(
            StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        ),
    ),
}
_PASSED_OVER = {"offset", "timestampType", "deliveryCount"}


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What a task reports."""

    records: int


class _Writing:
    """What batch and streaming writes have in common; pickled to the tasks."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_schema(options, schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """On an executor: all rows of one task."""
        return Written(write_rows(self._options, iterator))


class KafkaShareWriter(_Writing, DataSourceArrowWriter):
    """A batch write."""


class KafkaShareStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """A streaming write.  The records are durable when the tasks end: there is no commit."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing is left to do."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What was written stays: Kafka's records can't be taken back."""


def check_schema(options: SinkOptions, schema: StructType) -> None:
    """InvalidConfig for a DataFrame that can't become records."""
    columns = {one.name: one.dataType for one in schema.fields}
    for name, found in columns.items():
        if name in _PASSED_OVER:
            continue
        if name not in _COLUMNS:
            raise InvalidConfig(
                f"column {name!r} has no place in a record; expected only {', '.join(_COLUMNS)}"
            )
        if _bare(found) not in [_bare(one) for one in _COLUMNS[name]]:
            expected = " or ".join(one.simpleString() for one in _COLUMNS[name])
            raise InvalidConfig(
                f"column {name!r}: expected {expected}, found {found.simpleString()}"
            )
    if "value" not in columns:
        raise InvalidConfig("the DataFrame has no column 'value'")
    if options.topic is None and "topic" not in columns:
        raise InvalidConfig(
            "no topic: set the option topic, or give the DataFrame a column 'topic'"
        )


def _bare(kind: DataType) -> str:
    """The type without what is said about nulls."""
    return kind.simpleString()


def write_rows(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> int:
    """Write all rows and wait until they are acknowledged; how many they were."""
    sending = _Sending(options)
    try:
        for batch in batches:
            sending.send(batch)
        return sending.finish()
    finally:
        sending.close()


class _Sending:
    """The producer of one task, and the outcomes that it still waits for."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._unsettled: list[Delivery] = []
        self._count = 0
        self._thread = LoopThread("kafka-share-write")
        self._producer = self._thread.call(_new_producer(options))

    def send(self, batch: pa.RecordBatch) -> None:
        """Queue the rows, then see to it that those of the batch before are acknowledged."""
        before, self._unsettled = self._unsettled, []
        rows = _rows(batch, self._options, first_row=self._count)
        self._thread.call(self._send(rows))
        self._thread.call(_settled(before))

    def finish(self) -> int:
        """Wait for all outcomes, for as long as the producer tries."""
        self._thread.call(self._finish())
        return self._count

    def close(self) -> None:
        """Give up what has no outcome yet."""
        self._thread.call(self._producer.close(timeout=0))
        self._thread.close()

    async def _send(self, rows: list[tuple[Any, ...]]) -> None:
        for topic, value, key, headers, partition, timestamp in rows:
            self._unsettled.append(
                await self._producer.send(
                    topic,
                    value,
                    key=key,
                    headers=headers,
                    partition=partition,
                    timestamp_ms=timestamp,
                )
            )
        self._count += len(rows)

    async def _finish(self) -> None:
        await self._producer.flush()
        await _settled(self._unsettled)


async def _new_producer(options: SinkOptions) -> Producer:
    return Producer(**options.client)


async def _settled(deliveries: Sequence[Delivery]) -> None:
    """Raises the first failure, which names topic and partition."""
    for delivery in deliveries:
        if not delivery.done():
            await delivery
        delivery.result()


def _rows(batch: pa.RecordBatch, options: SinkOptions, *, first_row: int) -> list[tuple[Any, ...]]:
    """The rows as arguments of `Producer.send`."""
    import pyarrow as pa

    columns = {name: batch.column(name) for name in batch.schema.names if name in _COLUMNS}
    count = batch.num_rows
    nothing = [None] * count

    def values(name: str, kind: pa.DataType) -> list[Any]:
        return columns[name].cast(kind).to_pylist() if name in columns else nothing

    if options.topic is not None:
        topics: list[str | None] = [options.topic] * count
    else:
        topics = values("topic", pa.string())
    if None in topics:
        row = topics.index(None)
        raise InvalidRecord(
            f"row {first_row + row} of this task has no topic: the column 'topic' is null and "
            f"the option topic is not set"
        )
    headers = [
        [(one["key"], one["value"]) for one in some or ()]
        for some in (columns["headers"].to_pylist() if "headers" in columns else nothing)
    ]
    times = [None if one is None else one // 1000 for one in values("timestamp", pa.int64())]
    return list(
        zip(
            topics,
            values("value", pa.binary()),
            values("key", pa.binary()),
            headers,
            values("partition", pa.int32()),
            times,
            strict=True,
        )
    )
