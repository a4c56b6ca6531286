"""Writes a batch of `foreachBatch` to a topic exactly once, in a transaction with its number.

The transaction contains the records and a committed offset of the consumer group
``<transactional id>.batches``: the number of the next batch, with the id of the query as text.
So both are visible together or not at all::

    init_transactions        ends the transaction of a killed driver, and fences that driver
    read the committed offset
      same query, offset > batch id?   the batch is written already: nothing to do
    transaction              records, and offset = batch id + 1

All rows pass the driver, because Kafka has no transaction of several producers: the executors'
producers could only commit one after the other.

A query that begins with a new checkpoint counts its batches from 0 again, but has another id, so
none of its batches is taken for an old one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from sharegroup.client import (
    Consumer,
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from sharegroup.client.loop_thread import LoopThread
from sharegroup.client.settings.client_config import ClientOptions
from sharegroup.errors import InvalidConfig
from sharegroup.spark.options import SinkOptions, sink_options
from sharegroup.spark.sink import check_schema, record_rows, send_rows

QUERY_ID = "sql.streaming.queryId"
"""Spark's local property with the id of the query, which its checkpoint stores."""


def write_in_transaction(
    rows: DataFrame,
    batch_id: int,
    *,
    transactional_id: str,
    options: Mapping[str, str],
    query_id: str | None = None,
) -> int:
    """Write the rows of a batch exactly once; returns the number of records written now.

    That is 0 if an earlier run of the batch has written them.  ``options`` are those of a write,
    with a ``topic``.  At a time, one query may use a transactional id.  ``query_id`` is that of the
    running query; only Spark Connect needs it, which does not tell it to `foreachBatch`.
    Readers have to read committed records only.
    """
    sink = sink_options(options)
    check_schema(sink, rows.schema)
    if sink.topic is None:
        raise InvalidConfig(
            "write_in_transaction needs the option topic: the number of the batch is committed as "
            "an offset of its partition 0"
        )
    # Before the transaction is opened: its time limit must not include the query's own work.
    table = rows.toArrow()
    if table.num_rows == 0:
        return 0  # A batch that is run again has the same rows.
    batch = _Batch(sink, transactional_id, sink.topic, query_id or _query_id(rows), batch_id)
    thread = LoopThread("kafka-share-transaction")
    thread.enter()
    try:
        return thread.run(batch.write(table))
    finally:
        thread.leave()


class _Batch:
    """One batch of a query, and the place where its number is committed."""

    def __init__(
        self, options: SinkOptions, transactional_id: str, topic: str, query_id: str, batch_id: int
    ) -> None:
        self._options = options
        self._transactional_id = transactional_id
        self._group = f"{transactional_id}.batches"
        self._place = TopicPartition(topic, 0)
        self._query_id = query_id
        self._batch_id = batch_id

    async def write(self, table: pa.Table) -> int:
        """Write the records and commit, unless the batch has been committed before."""
        client = {**self._options.client, "transactional_id": self._transactional_id}
        async with Producer(**client) as producer:
            # Before the look at the number, so that no older driver changes it any more.
            await producer.init_transactions()
            if await self._is_written():
                return 0
            async with producer.transaction() as transaction:
                for part in table.to_batches():
                    # An error of one of the records fails the commit.
                    await send_rows(producer, record_rows(part, self._options, first_row=0))
                # The next batch, as a consumer commits the next offset; `_is_written` compares with
                # `>`.
                number = OffsetAndMetadata(self._batch_id + 1, self._query_id)
                await transaction.send_offsets(
                    {self._place: number}, ConsumerGroupMetadata(self._group)
                )
        return int(table.num_rows)

    async def _is_written(self) -> bool:
        async with Consumer(group_id=self._group, **_reading(self._options.client)) as consumer:
            committed = (await consumer.committed([self._place]))[self._place]
        return (
            committed is not None
            and committed.metadata == self._query_id
            and committed.offset > self._batch_id
        )


def _query_id(rows: DataFrame) -> str:
    """Return the id of the query that runs this `foreachBatch`."""
    context = getattr(rows.sparkSession, "sparkContext", None)
    query_id = None if context is None else context.getLocalProperty(QUERY_ID)
    if query_id is None:
        raise ValueError(
            "the rows do not show which query they belong to: expected a call in foreachBatch, "
            f"where Spark sets {QUERY_ID}; elsewhere pass query_id="
        )
    return str(query_id)


def _reading(client: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the connections, without those of a producer alone."""
    return {name: value for name, value in client.items() if name in ClientOptions.__annotations__}
