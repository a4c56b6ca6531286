"""The batch reader for ``spark.read``: records between two offsets or times, without a share group.

A batch read uses plain fetches and acquires no records.  Spark plans it once for each DataFrame and
never tells that the rows are processed, so acquired records could never be accepted.  To process
the records of a share group in a batch job, use a streaming read with the trigger ``availableNow``.
A batch read is for inspection: of dead letters, archived records, or history.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from sharegroup.client.loop_thread import LoopThread
from sharegroup.client.net.cluster import Cluster, Topic
from sharegroup.client.records import TopicPartition
from sharegroup.client.settings.client_config import ReadingConfig, config_from
from sharegroup.client.share.session.acquired_records import AcquiredRecords
from sharegroup.errors import InvalidConfig, UnknownTopicOrPartition
from sharegroup.ids import TopicId, TopicIdPartition, TopicName
from sharegroup.spark import executor_read
from sharegroup.spark.batch_offsets import offset_bounds
from sharegroup.spark.options import BatchOptions
from sharegroup.spark.partition import NOT_DELIVERED
from sharegroup.spark.plan import plan

if TYPE_CHECKING:
    import pyarrow as pa


Read = Callable[[Any, InputPartition], Iterator["pa.RecordBatch"]]
"""A function of a module that yields the rows of a task, from the options of the read."""


class KafkaShareBatchReader(DataSourceReader):
    """Reads all records between two offsets or times, for ``spark.read``."""

    def __init__(self, options: BatchOptions, read: Read = executor_read.read) -> None:
        self._options = options
        self._read = read

    def partitions(self) -> list[InputPartition]:
        """Determine the offsets now, so that every action on the DataFrame reads the same records.

        Returns the tasks.
        """
        thread = LoopThread("kafka-share-plan")
        thread.enter()
        try:
            topics, runs = thread.run(log_runs(self._options))
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
        return self._read(self._options, partition)


MISSING_MS = 5_000
"""How long a topic may be unknown: other brokers learn of a new topic a moment later."""


class NoSuchTopic(UnknownTopicOrPartition, retriable=False):
    """A topic that is to be read does not exist."""


async def log_runs(
    options: BatchOptions,
) -> tuple[dict[TopicId, TopicName], dict[TopicIdPartition, tuple[AcquiredRecords, ...]]]:
    """Return the names of the topics, and the offsets to read of each partition."""
    cluster = Cluster(config_from(ReadingConfig, options.client))
    try:
        topics = [await existing_topic(cluster, name) for name in options.topics]
        partitions = [where for topic in topics for where in partitions_of(topic, options)]
        bounds = await offset_bounds(cluster, partitions, options)
    finally:
        cluster.close()
    ids = {topic.name: topic.topic_id for topic in topics}
    runs: dict[TopicIdPartition, tuple[AcquiredRecords, ...]] = {}
    for where, (first, end) in bounds.items():
        topic_id = ids[TopicName(where.topic)]
        if topic_id is None:
            raise InvalidConfig(f"topic {where.topic!r}: this broker does not support topic ids")
        if first < end:
            runs[TopicIdPartition(topic_id, where.partition)] = (
                AcquiredRecords.of_range(first, end, NOT_DELIVERED),
            )
    names = {topic.topic_id: topic.name for topic in topics if topic.topic_id is not None}
    return names, runs


async def existing_topic(cluster: Cluster, name: str, *, missing_ms: int = MISSING_MS) -> Topic:
    """Return the metadata of a topic; NoSuchTopic if brokers do not know it for ``missing_ms``."""
    first_missing_at: float | None = None

    async def ask() -> Topic:
        nonlocal first_missing_at
        found = (await cluster.refresh([name])).get(name)
        if isinstance(found, Topic):
            return found
        now = time.monotonic()
        first_missing_at = now if first_missing_at is None else first_missing_at
        if found is not None and not isinstance(found, UnknownTopicOrPartition):
            raise found
        if (now - first_missing_at) * 1000 >= missing_ms:
            # Not retriable, so it ends `retrying`; the error below continues it.
            raise NoSuchTopic(
                f"topic {name!r} does not exist: check the option `subscribe` or `assign`; "
                "`sharegroup topics list` has the existing topics"
            )
        raise UnknownTopicOrPartition(f"topic {name!r} does not exist")

    return await cluster.retrying(ask, subject=f"metadata of topic {name!r}")


def partitions_of(topic: Topic, options: BatchOptions) -> list[TopicPartition]:
    """Return the partitions of a topic to read; InvalidConfig if the topic does not have one."""
    count = len(topic.leaders)
    wanted = options.assigned.get(topic.name, range(count))
    if max(wanted) >= count:
        raise InvalidConfig(
            f"option assign: topic {topic.name!r} has no partition {max(wanted)}; expected 0 to "
            f"{count - 1}"
        )
    return [TopicPartition(topic.name, partition) for partition in wanted]
