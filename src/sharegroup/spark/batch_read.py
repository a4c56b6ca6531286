"""``spark.read``: all records between two offsets, with plain fetches and no share group.

A batch read never acquires.  Spark plans it once for each DataFrame and has no word for "these
rows are done", so what it acquired could never be accepted.  To work off a share group in a
batch job, use a streaming read with the trigger ``availableNow``; this is for looking: at dead
letters, at what was archived, at history.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from sharegroup.client import admin_topics
from sharegroup.client.cluster import Cluster
from sharegroup.client.config import ClientConfig, config_from
from sharegroup.client.records import TopicPartition
from sharegroup.errors import InvalidConfig, KafkaError, OffsetOutOfRange
from sharegroup.ids import TopicId, TopicName
from sharegroup.ids import TopicPartition as TopicIdPartition
from sharegroup.spark import executor_read
from sharegroup.spark.background import LoopThread
from sharegroup.spark.options import EARLIEST, LATEST, BatchOptions, Offsets
from sharegroup.spark.partition import NOT_DELIVERED, Run
from sharegroup.spark.plan import plan

if TYPE_CHECKING:
    import pyarrow as pa

Known = Mapping[TopicPartition, int]


class KafkaShareBatchReader(DataSourceReader):
    """See the module's text."""

    def __init__(self, options: BatchOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Settles the offsets now; every action on the DataFrame reads the same."""
        thread = LoopThread("kafka-share-plan")
        try:
            topics, runs = thread.call(_runs(self._options))
        finally:
            thread.close()
        return [
            *plan(
                runs,
                topics,
                tasks_min=self._options.partitions_min,
                rows_per_task_max=self._options.records_per_partition_max,
            )
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor."""
        return executor_read.read(self._options, partition)


async def _runs(
    options: BatchOptions,
) -> tuple[dict[TopicId, TopicName], dict[TopicIdPartition, tuple[Run, ...]]]:
    """Names of the topics, and the offsets to read of each of their partitions."""
    cluster = Cluster(config_from(ClientConfig, options.client))
    try:
        topics = [await cluster.topic(name) for name in options.topics]
        all_partitions = [
            TopicPartition(topic.name, partition)
            for topic in topics
            for partition in range(len(topic.leaders))
        ]
        earliest = await _listed(cluster, all_partitions, EARLIEST)
        latest = await _listed(cluster, all_partitions, LATEST)
    finally:
        cluster.close()
    ids = {topic.name: topic.topic_id for topic in topics}
    starts = _offsets("startingOffsets", options.starting_offsets, earliest, latest)
    ends = _offsets("endingOffsets", options.ending_offsets, earliest, latest)
    runs: dict[TopicIdPartition, tuple[Run, ...]] = {}
    for where in all_partitions:
        topic_id = ids[TopicName(where.topic)]
        if topic_id is None:
            raise InvalidConfig(f"topic {where.topic!r}: this broker is too old to have topic ids")
        first, end = starts[where], ends[where]
        _check(where, first, end, earliest[where], latest[where], options.fail_on_data_loss)
        first, end = max(first, earliest[where]), min(end, latest[where])
        if first < end:
            runs[TopicIdPartition(topic_id, where.partition)] = (Run(first, end, NOT_DELIVERED),)
    names = {topic.topic_id: topic.name for topic in topics if topic.topic_id is not None}
    return names, runs


async def _listed(cluster: Cluster, partitions: list[TopicPartition], spec: int) -> Known:
    listed = await admin_topics.list_offsets(cluster, dict.fromkeys(partitions, spec))
    known = {}
    for where, found in listed.items():
        if isinstance(found, KafkaError):
            raise found
        known[where] = found.offset
    return known


def _offsets(option: str, wanted: Offsets, earliest: Known, latest: Known) -> Known:
    """What the option says of every partition, in numbers."""
    if isinstance(wanted, int):
        return earliest if wanted == EARLIEST else latest
    named = {
        TopicPartition(topic, partition): offset
        for topic, partitions in wanted.items()
        for partition, offset in partitions.items()
    }
    if set(named) != set(earliest):
        missing = ", ".join(sorted(f"{one[0]}-{one[1]}" for one in set(earliest) - set(named)))
        unknown = ", ".join(sorted(f"{one[0]}-{one[1]}" for one in set(named) - set(earliest)))
        raise InvalidConfig(
            f"option {option} has to name all partitions of the topics and no others; "
            f"missing: {missing or 'none'}; unknown: {unknown or 'none'}"
        )
    special = {EARLIEST: earliest, LATEST: latest}
    return {
        where: special[offset][where] if offset in special else offset
        for where, offset in named.items()
    }


def _check(
    where: TopicPartition, first: int, end: int, earliest: int, latest: int, fail: bool
) -> None:
    text = f"topic {where.topic!r} partition {where.partition}"
    if first > end:
        raise InvalidConfig(f"{text}: startingOffsets is {first}, behind endingOffsets, {end}")
    if fail and (first < earliest or end > latest):
        raise OffsetOutOfRange(
            f"{text}: offsets {first} to {end} are asked for, the log holds {earliest} to "
            f"{latest}; the option failOnDataLoss=false reads what is there"
        )
