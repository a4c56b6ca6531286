"""Reads the dead letters of a task, on an executor.

The letters of a topic are read as `sharegroup dlq` reads them: with the ledger that says which of
them were redriven, and completed with their records if a broker's letter lacks them.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from sharegroup.client.fetch.record_reading import PartitionRange
from sharegroup.client.records import TopicPartition
from sharegroup.dead_letters.queue import Chunk, DeadLetterQueue
from sharegroup.errors import KafkaError
from sharegroup.spark.executor_read import this_process
from sharegroup.spark.letters.rows import letter_rows
from sharegroup.spark.options import LettersOptions
from sharegroup.spark.partition import PartitionRuns, RunsPartition

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


def read(options: LettersOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task, in the order of offsets within each topic partition."""
    if not isinstance(partition, RunsPartition):
        return  # For a batch read without partitions Spark passes an empty one of its own.
    thread = this_process().thread
    chunks = _chunks(options, partition.parts)
    try:
        while (chunk := thread.run(_next(chunks))) is not None:
            yield letter_rows(chunk)
    finally:
        thread.run(_closed(chunks))


async def _next(chunks: AsyncIterator[Chunk]) -> Chunk | None:
    return await anext(chunks, None)


async def _closed(chunks: AsyncIterator[Chunk]) -> None:
    aclose = getattr(chunks, "aclose", None)
    assert aclose is not None, "the chunks are an asynchronous generator"
    await aclose()


async def _chunks(options: LettersOptions, parts: Iterable[PartitionRuns]) -> AsyncIterator[Chunk]:
    for topic, of_topic in groupby(parts, attrgetter("topic")):
        async with DeadLetterQueue(topic, **options.client) as queue:
            queue.ranges = [
                PartitionRange(
                    TopicPartition(topic, part.partition),
                    run.first_offset,
                    run.end_offset,
                    part.topic_id,
                )
                for part in of_topic
                for run in part.runs
            ]
            async for chunk in queue.chunks(
                complete=options.complete_records, unreadable=_leave_out
            ):
                yield chunk


def _leave_out(batch: PartitionRange, error: KafkaError) -> None:
    log.warning(
        "event=batch_unreadable topic=%s partition=%d first=%d end=%d error=%r "
        "action='its dead letters are omitted'",
        *(batch.where.topic, batch.where.partition, batch.first, batch.end, error),
    )
