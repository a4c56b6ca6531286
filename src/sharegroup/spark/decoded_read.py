"""Reads the records of a task one by one, for formats whose rows are not the records themselves."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import TypeVar

from pyspark.sql.datasource import InputPartition

from sharegroup.client.fetch.record_reading import PartitionRange, Unreadable, read_records
from sharegroup.client.loop_thread import LoopThread
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.errors import KafkaError
from sharegroup.spark.executor_fetch import this_process
from sharegroup.spark.options import ReadOptions
from sharegroup.spark.plan import PartitionRuns, RunsPartition
from sharegroup.wire.batches.records import DecodedRecord

log = logging.getLogger(__name__)

T = TypeVar("T")


def ranges_of(parts: Iterable[PartitionRuns]) -> list[PartitionRange]:
    """Return the offset ranges of a task; one that was made again since the plan is an error."""
    return [
        PartitionRange(
            TopicPartition(part.topic, part.partition),
            run.first_offset,
            run.end_offset,
            part.topic_id,
        )
        for part in parts
        for run in part.runs
    ]


def decoded_records(
    options: ReadOptions, partition: InputPartition
) -> Iterator[tuple[TopicPartition, Sequence[DecodedRecord]]]:
    """Yield the records of one task, a few hundred at a time, in the order of their offsets."""
    if not isinstance(partition, RunsPartition):
        return  # For a batch read without partitions Spark passes an empty one of its own.
    process = this_process()
    with process.cluster(options) as cluster:
        records = _records(cluster, partition.parts, choice_of(options))
        yield from from_async(process.thread, records)


async def _records(
    cluster: Cluster, parts: Iterable[PartitionRuns], unreadable: Unreadable | None
) -> AsyncIterator[tuple[TopicPartition, Sequence[DecodedRecord]]]:
    for wanted in ranges_of(parts):
        async for records in read_records(cluster, wanted, unreadable=unreadable):
            yield wanted.where, records


def from_async(thread: LoopThread, elements: AsyncIterator[T]) -> Iterator[T]:
    """Yield the elements of an asynchronous generator, which runs in a thread with a loop.

    If the caller stops early, the generator is closed.
    """
    try:
        while (element := thread.run(_next(elements))) is not None:
            yield element
    finally:
        thread.run(_closed(elements))


async def _next(elements: AsyncIterator[T]) -> T | None:
    return await anext(elements, None)


async def _closed(elements: AsyncIterator[T]) -> None:
    aclose = getattr(elements, "aclose", None)
    assert aclose is not None, "the elements come from an asynchronous generator"
    await aclose()


def choice_of(options: ReadOptions) -> Unreadable | None:
    """Return what to do with a batch that cannot be decoded; None raises its error."""
    return None if options.fail_on_unreadable else leave_out


def leave_out(batch: PartitionRange, error: KafkaError) -> None:
    """Log that a batch cannot be decoded, so it has no rows."""
    log.warning(
        "event=batch_unreadable topic=%s partition=%d first=%d end=%d error=%r "
        "action='its rows are omitted'",
        *(batch.where.topic, batch.where.partition, batch.first, batch.end, error),
    )
