"""The batch reader for ``spark.read``: records between two offsets or times, without a share group.

A batch read uses plain fetches and acquires no records.  Spark plans it once for each DataFrame and
never tells that the rows are processed, so acquired records could never be accepted.  To process
the records of a share group in a batch job, use a streaming read with the trigger ``availableNow``.
A batch read is for inspection: of dead letters, archived records, or history.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import DataSourceReader, InputPartition

from sharegroup.client.fetch.offsets import all_listed, list_offsets, offsets_of
from sharegroup.client.loop_thread import LoopThread
from sharegroup.client.net.cluster import Cluster, Topic
from sharegroup.client.records import TopicPartition
from sharegroup.client.settings.client_config import ReadingConfig, config_from
from sharegroup.client.share.session.acquired_records import AcquiredRecords
from sharegroup.errors import InvalidConfig, OffsetOutOfRange, UnknownTopicOrPartition
from sharegroup.ids import TopicId, TopicIdPartition, TopicName
from sharegroup.spark import executor_read
from sharegroup.spark.options import (
    EARLIEST,
    LATEST,
    BatchOptions,
    OffsetsOption,
    PerPartition,
    Times,
)
from sharegroup.spark.plan import NOT_DELIVERED, plan

if TYPE_CHECKING:
    import pyarrow as pa


# The offset range of each partition for a batch read: from offsets, times or words of its options.
#
# A time stands for the first record with this timestamp or a later one, as the leader of the
# partition finds it. Timestamps of producers need not ascend, so the records behind that offset may
# be older, and those behind the offset of an ending time may be in time. Spark's own Kafka source
# reads the same records.
#
#     timestamps   10   12   30   11   40   41
#     offsets       0    1    2    3    4    5
#                       [start = 12    [end = 40: offsets 1, 2 and 3


NO_RECORD = -1
"""The offset that a leader answers if all records are older than a time."""

Offsets = Mapping[TopicPartition, int]


class OffsetBounds(NamedTuple):
    """The records to read of a partition: offsets [first, end), none if they are equal."""

    first: int
    end: int


async def offset_bounds(
    cluster: Cluster, partitions: Iterable[TopicPartition], options: BatchOptions
) -> dict[TopicPartition, OffsetBounds]:
    """Look up the offsets to read of every partition, within the log as it is now.

    Raises InvalidConfig if the options do not fit the partitions, and OffsetOutOfRange for records
    that the log does not have, unless ``failOnDataLoss`` is false.
    """
    wanted = list(partitions)
    # In this order, offsets by time are not below the first offset and not above the last one.
    earliest = await offsets_of(cluster, wanted, EARLIEST)
    starting = await _by_time(cluster, "starting", options.starting, wanted)
    ending = await _by_time(cluster, "ending", options.ending, wanted)
    latest = await offsets_of(cluster, wanted, LATEST)
    if isinstance(options.starting, Times):
        firsts = _starts(starting, latest, options)
    else:
        firsts = _offsets("startingOffsets", options.starting, earliest, latest)
    if isinstance(options.ending, Times):
        ends: Offsets = {
            where: latest[where] if offset == NO_RECORD else offset
            for where, offset in ending.items()
        }
    else:
        ends = _offsets("endingOffsets", options.ending, earliest, latest)
    return {
        where: _checked(
            where,
            OffsetBounds(firsts[where], ends[where]),
            OffsetBounds(earliest[where], latest[where]),
            fail=options.fail_on_data_loss,
        )
        for where in wanted
    }


async def offsets_since(
    cluster: Cluster, times: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Look up the first record of each partition with its time or a later one, or NO_RECORD."""
    listed = all_listed(await list_offsets(cluster, times))
    return {where: found.offset for where, found in listed.items()}


async def _by_time(
    cluster: Cluster, option: str, wanted: OffsetsOption | Times, partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """Look up the offsets of an option by time; empty for another option."""
    if not isinstance(wanted, Times):
        return {}
    if isinstance(wanted.milliseconds, int):
        return await offsets_since(cluster, dict.fromkeys(partitions, wanted.milliseconds))
    times = _named(f"{option}OffsetsByTimestamp", wanted.milliseconds, partitions)
    return await offsets_since(cluster, times)


def _starts(offsets: Offsets, latest: Offsets, options: BatchOptions) -> Offsets:
    """Return the start of every partition; InvalidConfig if a partition has no record in time."""
    late = sorted(where for where, offset in offsets.items() if offset == NO_RECORD)
    if late and not options.late_start_is_latest:
        named = ", ".join(f"{where.topic}-{where.partition}" for where in late[:10])
        raise InvalidConfig(
            f"all records of {named}{' ...' if len(late) > 10 else ''} are older than the starting "
            "time; expected a record of that time or later in every partition; to read no rows of "
            "such partitions, set the option startingOffsetsByTimestampStrategy=latest"
        )
    return {
        where: latest[where] if offset == NO_RECORD else offset for where, offset in offsets.items()
    }


def _offsets(option: str, wanted: OffsetsOption, earliest: Offsets, latest: Offsets) -> Offsets:
    """Return the offset of every partition that an option specifies."""
    if isinstance(wanted, int):
        return earliest if wanted == EARLIEST else latest
    special = {EARLIEST: earliest, LATEST: latest}
    return {
        where: special[offset][where] if offset in special else offset
        for where, offset in _named(option, wanted, earliest).items()
    }


def _named(option: str, wanted: PerPartition, partitions: Iterable[TopicPartition]) -> Offsets:
    """Return the numbers by partition; InvalidConfig unless all partitions are named."""
    named = {
        TopicPartition(topic, partition): number
        for topic, numbers in wanted.items()
        for partition, number in numbers.items()
    }
    missing, unknown = set(partitions) - set(named), set(named) - set(partitions)
    if missing or unknown:
        raise InvalidConfig(
            f"option {option} has to name all partitions to read and no others; "
            f"missing: {_listing(missing)}; unknown: {_listing(unknown)}"
        )
    return named


def _listing(partitions: Iterable[TopicPartition]) -> str:
    names = [f"{where.topic}-{where.partition}" for where in sorted(partitions)]
    return ", ".join(names) or "none"


def _checked(
    where: TopicPartition, wanted: OffsetBounds, log: OffsetBounds, *, fail: bool
) -> OffsetBounds:
    """Return the wanted offsets that the log has."""
    text = f"topic {where.topic!r} partition {where.partition}"
    if wanted.first > wanted.end:
        raise InvalidConfig(
            f"{text}: the start of the read is offset {wanted.first}, which is after its end, "
            f"offset {wanted.end}; expected a start that is not after the end: see the options "
            "startingOffsets, startingTimestamp, endingOffsets and endingTimestamp"
        )
    if fail and (wanted.first < log.first or wanted.end > log.end):
        raise OffsetOutOfRange(
            f"{text}: offsets {wanted.first} to {wanted.end} were requested, but the log holds "
            f"{log.first} to {log.end}; to read only the available records, set the option "
            "failOnDataLoss=false"
        )
    # Both ends within the log, and in order: a read may lie wholly below or above what is left.
    first = min(max(wanted.first, log.first), log.end)
    return OffsetBounds(first, max(first, min(wanted.end, log.end)))


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
