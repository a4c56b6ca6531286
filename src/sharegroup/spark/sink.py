"""The sink: writes the rows of ``df.write`` and ``df.writeStream`` with the idempotent producer.

The columns are those of Spark's Kafka sink: ``value`` and, optionally, ``key``, ``topic``,
``headers`` and ``partition``, and in addition ``timestamp``.  The other columns of the source
(offset, timestampType, deliveryCount) are ignored, so that a stream can be copied unchanged.

A task ends when all in-sync replicas have acknowledged every record.  A task that Spark runs again,
or a batch that it replays after a crash, writes its records again: at-least-once, as with Spark's
own Kafka sink.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
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

from sharegroup.client.loop_thread import LoopThread
from sharegroup.client.produce.producer import Producer, SendFuture
from sharegroup.errors import InvalidConfig, InvalidRecord
from sharegroup.spark.options import SinkOptions
from sharegroup.wire.batches.header_columns import headers_of

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
    """The report of a task: the number of records that it wrote."""

    records: int


class _Writing:
    """The common base of batch and streaming writes, which is pickled to the tasks."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_schema(options, schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write all rows of one task, on an executor."""
        return Written(write_rows(self._options, iterator))


class KafkaShareWriter(_Writing, DataSourceArrowWriter):
    """The writer of ``df.write``."""


class KafkaShareStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """The writer of ``df.writeStream``.  Records are durable when the tasks end, without commit."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: the records are already durable."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: records that were written to Kafka cannot be removed."""


def check_schema(options: SinkOptions, schema: StructType) -> None:
    """Raise InvalidConfig if rows with this schema cannot be written as records."""
    columns = {field.name: field.dataType for field in schema.fields}
    for name, kind in columns.items():
        if name in _PASSED_OVER:
            continue
        if name not in _COLUMNS:
            raise InvalidConfig(
                f"column {name!r} has no place in a record; expected only {', '.join(_COLUMNS)}"
            )
        # Spark allows it, for example after a join.
        if schema.names.count(name) > 1:
            raise InvalidConfig(f"column {name!r} occurs twice; select one of them")
        if _bare(kind) not in [_bare(expected_kind) for expected_kind in _COLUMNS[name]]:
            expected = " or ".join(expected_kind.simpleString() for expected_kind in _COLUMNS[name])
            raise InvalidConfig(
                f"column {name!r}: expected {expected}, found {kind.simpleString()}"
            )
    if "value" not in columns:
        raise InvalidConfig("the DataFrame has no column 'value'")
    if options.topic is None and "topic" not in columns:
        raise InvalidConfig(
            "no topic: set the option topic, or give the DataFrame a column 'topic'"
        )


def _bare(kind: DataType) -> str:
    """Return the text of a type without its nullability."""
    return kind.simpleString()


def write_rows(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> int:
    """Write all rows, wait until they are acknowledged, and return their number."""
    sending = _Sending(options)
    try:
        for batch in batches:
            sending.send(batch)
        return sending.finish()
    finally:
        sending.close()


class _Sending:
    """The producer of one task and its records that are not acknowledged yet."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._unsettled: list[SendFuture] = []
        self._count = 0
        self._thread = LoopThread("kafka-share-write")
        self._thread.enter()
        self._producer = self._thread.run(_new_producer(options))

    def send(self, batch: pa.RecordBatch) -> None:
        """Queue the rows, then wait until those of the previous batch are acknowledged."""
        previous, self._unsettled = self._unsettled, []
        rows = record_rows(batch, self._options, first_row=self._count)
        self._thread.run(self._send(rows))
        self._thread.run(_settled(previous))

    def finish(self) -> int:
        """Wait until all records are acknowledged and return their number.

        Raises the first failure after the producer has given up.
        """
        self._thread.run(self._finish())
        return self._count

    def close(self) -> None:
        """Close the producer and drop records that are not acknowledged yet."""
        # Nothing is pending after `finish`.  After an error Spark runs the task again with all
        # rows.
        self._thread.run(self._producer.close(timeout=0))
        self._thread.leave()

    async def _send(self, rows: list[tuple[Any, ...]]) -> None:
        self._unsettled += await send_rows(self._producer, rows)
        self._count += len(rows)

    async def _finish(self) -> None:
        await self._producer.flush()
        await _settled(self._unsettled)


async def send_rows(producer: Producer, rows: Iterable[tuple[Any, ...]]) -> list[SendFuture]:
    """Queue the rows of `record_rows`; return the futures of their records."""
    return [
        await producer.send(
            topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp
        )
        for topic, value, key, headers, partition, timestamp in rows
    ]


async def _new_producer(options: SinkOptions) -> Producer:
    return Producer(**options.client)


async def _settled(futures: Sequence[SendFuture]) -> None:
    """Wait for all futures; raise the first failure, which names topic and partition."""
    for future in futures:
        if not future.done():
            await future
        future.result()


def record_rows(
    batch: pa.RecordBatch, options: SinkOptions, *, first_row: int
) -> list[tuple[Any, ...]]:
    """Return the rows as arguments of `Producer.send`."""
    columns = {name: batch.column(name) for name in batch.schema.names if name in _COLUMNS}
    count = batch.num_rows
    nothing = [None] * count

    def values(name: str, kind: pa.DataType) -> list[Any]:
        return columns[name].cast(kind).to_pylist() if name in columns else nothing

    if options.topic is not None:
        topics: list[str | None] = [options.topic] * count
    else:
        topics = values("topic", pa.string())
    # Here and not in the producer, which does not know the row.
    if None in topics:
        row = topics.index(None)
        raise InvalidRecord(
            f"row {first_row + row} of this task has no topic: the column 'topic' is null and "
            f"the option topic is not set"
        )
    headers = [
        headers_of(_named(row_headers, first_row + row))
        for row, row_headers in enumerate(
            columns["headers"].to_pylist() if "headers" in columns else nothing
        )
    ]
    # Spark's times are microseconds, Kafka's milliseconds.
    times = [None if value is None else value // 1000 for value in values("timestamp", pa.int64())]
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


def _named(headers: Sequence[Any] | None, row: int) -> Sequence[Any] | None:
    """Return the headers of a row. InvalidRecord if one has no name, which Kafka does not allow."""
    if any(header is None or header["key"] is None for header in headers or ()):
        raise InvalidRecord(
            f"row {row} of this task has a header without a name: expected a struct with a key for "
            "each element of the column 'headers'"
        )
    return headers
