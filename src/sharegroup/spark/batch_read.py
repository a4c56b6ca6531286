"""The batch reader for ``spark.read``: all records between two offsets, without a share group.

A batch read uses plain fetches and acquires no records.  Spark plans it once for each DataFrame and
never tells that the rows are processed, so acquired records could never be accepted.  To process
the records of a share group in a batch job, use a streaming read with the trigger ``availableNow``.
A batch read is for inspection: of dead letters, archived records, or history.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from sharegroup.client.fetch.offsets import offsets_of
from sharegroup.client.loop_thread import LoopThread
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.client.settings.client_config import ReadingConfig, config_from
from sharegroup.client.share_sessions.acquired_records import AcquiredRecords
from sharegroup.errors import InvalidConfig, OffsetOutOfRange
from sharegroup.ids import TopicId, TopicIdPartition, TopicName
from sharegroup.spark import executor_read
from sharegroup.spark.options import EARLIEST, LATEST, BatchOptions, OffsetsOption
from sharegroup.spark.partition import NOT_DELIVERED
from sharegroup.spark.plan import plan

if TYPE_CHECKING:
    import pyarrow as pa

Known = Mapping[TopicPartition, int]


class KafkaShareBatchReader(DataSourceReader):
    """Reads all records between two offsets, for ``spark.read``."""

    def __init__(self, options: BatchOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Determine the offsets now, so that every action on the DataFrame reads the same records.

        Returns the tasks.
        """
        thread = LoopThread("kafka-share-plan")
        thread.enter()
        try:
            topics, runs = thread.run(_runs(self._options))
        finally:
            thread.leave()
        return [
            *plan(
                runs,
                topics,
                tasks_min=self._options.partitions_min,
                rows_per_task_max=self._options.records_per_partition_max,
            )
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task, on an executor."""
        return executor_read.read(self._options, partition)


async def _runs(
    options: BatchOptions,
) -> tuple[dict[TopicId, TopicName], dict[TopicIdPartition, tuple[AcquiredRecords, ...]]]:
    """Return the names of the topics, and the offsets to read of each partition."""
    cluster = Cluster(config_from(ReadingConfig, options.client))
    try:
        topics = [await cluster.topic(name) for name in options.topics]
        all_partitions = [
            TopicPartition(topic.name, partition)
            for topic in topics
            for partition in range(len(topic.leaders))
        ]
        earliest = await offsets_of(cluster, all_partitions, EARLIEST)
        latest = await offsets_of(cluster, all_partitions, LATEST)
    finally:
        cluster.close()
    ids = {topic.name: topic.topic_id for topic in topics}
    starts = _offsets("startingOffsets", options.starting_offsets, earliest, latest)
    ends = _offsets("endingOffsets", options.ending_offsets, earliest, latest)
    runs: dict[TopicIdPartition, tuple[AcquiredRecords, ...]] = {}
    for topic_partition in all_partitions:
        topic_id = ids[TopicName(topic_partition.topic)]
        if topic_id is None:
            raise InvalidConfig(
                f"topic {topic_partition.topic!r}: this broker does not support topic ids"
            )
        first, end = starts[topic_partition], ends[topic_partition]
        _check(
            topic_partition,
            first,
            end,
            earliest[topic_partition],
            latest[topic_partition],
            options.fail_on_data_loss,
        )
        first, end = max(first, earliest[topic_partition]), min(end, latest[topic_partition])
        if first < end:
            runs[TopicIdPartition(topic_id, topic_partition.partition)] = (
                AcquiredRecords.of_range(first, end, NOT_DELIVERED),
            )
    names = {topic.topic_id: topic.name for topic in topics if topic.topic_id is not None}
    return names, runs


def _offsets(option: str, wanted: OffsetsOption, earliest: Known, latest: Known) -> Known:
    """Return the offset of every partition that an option specifies."""
    if isinstance(wanted, int):
        return earliest if wanted == EARLIEST else latest
    named = {
        TopicPartition(topic, partition): offset
        for topic, partitions in wanted.items()
        for partition, offset in partitions.items()
    }
    if set(named) != set(earliest):
        missing = ", ".join(
            sorted(f"{mismatch[0]}-{mismatch[1]}" for mismatch in set(earliest) - set(named))
        )
        unknown = ", ".join(
            sorted(f"{mismatch[0]}-{mismatch[1]}" for mismatch in set(named) - set(earliest))
        )
        raise InvalidConfig(
            f"option {option} has to name all partitions of the topics and no others; "
            f"missing: {missing or 'none'}; unknown: {unknown or 'none'}"
        )
    special = {EARLIEST: earliest, LATEST: latest}
    return {
        topic_partition: special[offset][topic_partition] if offset in special else offset
        for topic_partition, offset in named.items()
    }


def _check(
    where: TopicPartition, first: int, end: int, earliest: int, latest: int, fail: bool
) -> None:
    text = f"topic {where.topic!r} partition {where.partition}"
    if first > end:
        raise InvalidConfig(
            f"{text}: startingOffsets is {first}, which is after endingOffsets, {end}"
        )
    if fail and (first < earliest or end > latest):
        raise OffsetOutOfRange(
            f"{text}: offsets {first} to {end} were requested, but the log holds {earliest} to "
            f"{latest}; to read only the available records, set the option failOnDataLoss=false"
        )
