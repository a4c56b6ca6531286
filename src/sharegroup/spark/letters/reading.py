"""Reads the dead letters of a task, on an executor.

The letters of a topic are read as `sharegroup dlq` reads them: with the ledger that says which of
them were redriven, and completed with their records if a broker's letter lacks them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from sharegroup.dead_letters.queue import Chunk, DeadLetterQueue
from sharegroup.spark.decoded_read import choice_of, from_async, ranges_of
from sharegroup.spark.executor_fetch import this_process
from sharegroup.spark.letters.rows import letter_rows
from sharegroup.spark.options import LettersOptions
from sharegroup.spark.plan import PartitionRuns, RunsPartition

if TYPE_CHECKING:
    import pyarrow as pa


def read(options: LettersOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task, in the order of offsets within each topic partition."""
    if not isinstance(partition, RunsPartition):
        return  # For a batch read without partitions Spark passes an empty one of its own.
    for chunk in from_async(this_process().thread, _chunks(options, partition.parts)):
        yield letter_rows(chunk)


async def _chunks(options: LettersOptions, parts: Iterable[PartitionRuns]) -> AsyncIterator[Chunk]:
    # `plan` orders the parts by topic, so each topic is one group.
    for topic, of_topic in groupby(parts, attrgetter("topic")):
        async with DeadLetterQueue(topic, **options.client) as queue:
            queue.ranges = ranges_of(of_topic)
            chunks = queue.chunks(complete=options.complete_records, unreadable=choice_of(options))
            async for chunk in chunks:
                yield chunk
