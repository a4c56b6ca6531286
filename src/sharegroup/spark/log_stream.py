"""The streaming reader of plain offsets: all records of topics, without a share group.

The offset that Spark logs is the end of each partition, with the id of its topic:

    {"v": 1, "topics": {"orders.dead": {"id": "6uO1jO3BTk2YwDkLwxhW8w", "ends": {"0": 12, "1": 7}}}}

A partition that has no end yet, because the topic got it later or ``assign`` did not name it, is
read from its first record, as Spark's Kafka source does.  A partition that is not read any more
keeps its end, so it goes on there when ``assign`` names it again.  If a topic was deleted and
created again, or records were deleted before they were read, the option ``failOnDataLoss`` applies.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)

from sharegroup.client.fetch.offsets import offsets_of
from sharegroup.client.loop_thread import LoopThread
from sharegroup.client.net.cluster import Cluster, Topic
from sharegroup.client.records import TopicPartition
from sharegroup.client.settings.client_config import ReadingConfig, config_from
from sharegroup.client.share.session.acquired_records import AcquiredRecords
from sharegroup.errors import InvalidConfig, KafkaError, OffsetOutOfRange
from sharegroup.ids import TopicId, TopicIdPartition, TopicName, topic_id_text
from sharegroup.spark.batch_read import Read, existing_topic, offset_bounds, partitions_of
from sharegroup.spark.lifecycle import exit_on_sigterm
from sharegroup.spark.offsets import PARTITION_MAX, CheckpointError, checked_number
from sharegroup.spark.options import EARLIEST, LATEST, BatchOptions
from sharegroup.spark.plan import NOT_DELIVERED, plan

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

VERSION = 1

Json = dict[str, Any]


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads all records of topics from plain offsets, for ``spark.readStream``."""

    def __init__(self, options: BatchOptions, read: Read) -> None:
        self._options = options
        self._read = read
        self._thread: LoopThread | None = None
        self._cluster: Cluster | None = None
        self._is_available_now = False
        self._target: Json | None = None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's names.
        """Let the run end at the end offsets of the first `latestOffset` call."""
        self._is_available_now = True

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return that a batch has all records that are available."""
        return ReadAllAvailable()

    def initialOffset(self) -> Json:  # noqa: N802
        """Return the offsets before the first batch, as the options for the start say."""
        return self._run(_first(self._started(), self._options))

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802, ARG002
        """Return the end offsets of all partitions now."""
        if self._target is not None:
            # The run ends when the offset stays the same, so records that come later must not move
            # it.
            return self._target
        try:
            end = self._run(_latest(self._started(), self._options, start))
        except KafkaError as error:
            if self._is_available_now or not error.retriable:
                raise
            # Spark makes no batch then, and asks again at the next trigger.
            log.warning("event=stream.waits topics=%s error=%r", self._options.topics, error)
            return start
        if self._is_available_now:
            self._target = end
        return end

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """Return the tasks that read the records from ``start`` to ``end``."""
        begins, names = parsed_ends(start), {}
        runs = {}
        # With the id in the key, a topic that was created again has no begin and is read from
        # offset 0.
        for (topic, topic_id, partition), last in parsed_ends(end).items():
            first = begins.get((topic, topic_id, partition), 0)
            names[topic_id] = TopicName(topic)
            if first < last:
                runs[TopicIdPartition(topic_id, partition)] = (
                    AcquiredRecords.of_range(first, last, NOT_DELIVERED),
                )
        return plan(
            runs,
            names,
            tasks_min=self._options.partitions_min,
            rows_per_task_max=self._options.records_per_partition_max,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task, on an executor."""
        return self._read(self._options, partition)

    def commit(self, end: Json) -> None:
        """Do nothing: the checkpoint has the position."""

    def stop(self) -> None:
        """Close the connections."""
        thread, cluster = self._thread, self._cluster
        self._thread = self._cluster = None
        if thread is not None and cluster is not None:
            thread.run(_close(cluster))
            thread.leave()

    def _started(self) -> Cluster:
        if self._cluster is None:
            exit_on_sigterm()
            self._thread = LoopThread("kafka-share-log")
            self._thread.enter()
            self._cluster = self._thread.run(_opened(self._options))
        return self._cluster

    def _run(self, work: Coroutine[Any, Any, Json]) -> Json:
        assert self._thread is not None, "the reader is started"
        return self._thread.run(work)


async def _opened(options: BatchOptions) -> Cluster:
    return Cluster(config_from(ReadingConfig, options.client))


async def _close(cluster: Cluster) -> None:
    cluster.close()


async def _first(cluster: Cluster, options: BatchOptions) -> Json:
    topics = [await existing_topic(cluster, name) for name in options.topics]
    partitions = [where for topic in topics for where in partitions_of(topic, options)]
    bounds = await offset_bounds(cluster, partitions, options)
    return _offsets(topics, {where: bound.first for where, bound in bounds.items()})


async def _latest(cluster: Cluster, options: BatchOptions, start: Json) -> Json:
    topics = [await cluster.topic(name) for name in options.topics]
    partitions = [where for topic in topics for where in partitions_of(topic, options)]
    # In this order: asked for later, the end of the log cannot be below its beginning.
    earliest = await offsets_of(cluster, partitions, EARLIEST)
    latest = await offsets_of(cluster, partitions, LATEST)
    ids = {str(topic.name): topic.topic_id for topic in topics}
    return _offsets(topics, next_ends(options, parsed_ends(start), ids, earliest, latest))


def next_ends(
    options: BatchOptions,
    begins: Mapping[tuple[str, TopicId, int], int],
    ids: Mapping[str, TopicId | None],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return the ends of the next batch, which begins at ``begins``.

    OffsetOutOfRange if records in between are lost and the options say that this is an error.
    """
    ends = dict(latest)
    for (name, topic_id, partition), read_to in begins.items():
        where = TopicPartition(name, partition)
        problem = None
        if name not in ids:
            raise CheckpointError(
                f"the checkpoint was written with topic {name!r}, which is not among the topics "
                f"now: {', '.join(options.topics)}; use a new checkpointLocation"
            )
        if ids[name] != topic_id:
            problem = "the topic was deleted and created again"
        # `assign` does not name it now; without this it would begin anew when it is named again.
        elif where not in latest:
            ends[where] = read_to
        elif earliest[where] > read_to:
            problem = f"offsets {read_to} to {earliest[where]} were deleted before they were read"
        elif latest[where] < read_to:
            problem = f"the log ends at {latest[where]}, but was read up to {read_to}"
        if problem is not None:
            text = f"topic {name!r} partition {partition}: {problem}"
            if options.fail_on_data_loss:
                raise OffsetOutOfRange(
                    f"{text}; to go on with the records that exist, set the option "
                    "failOnDataLoss=false"
                )
            log.warning("event=stream.data_loss %s", text)
    return ends


def _offsets(topics: Sequence[Topic], ends: Mapping[TopicPartition, int]) -> Json:
    return {
        "v": VERSION,
        "topics": {
            topic.name: {
                "id": topic_id_text(_id_of(topic)),
                "ends": {
                    str(where.partition): end
                    for where, end in sorted(ends.items())
                    if where.topic == topic.name
                },
            }
            for topic in topics
        },
    }


def _id_of(topic: Topic) -> TopicId:
    if topic.topic_id is None:
        raise InvalidConfig(f"topic {topic.name!r}: this broker does not support topic ids")
    return topic.topic_id


def parsed_ends(document: Json) -> dict[tuple[str, TopicId, int], int]:
    """Parse an offset that Spark logged: the end by topic name, topic id and partition.

    CheckpointError if it is not such an offset.
    """
    try:
        if (version := document["v"]) == VERSION:
            return {
                (
                    name,
                    _parsed_id(topic["id"]),
                    checked_number("partition", int(number), 0, PARTITION_MAX),
                ): checked_number("end", end)
                for name, topic in document["topics"].items()
                for number, end in topic["ends"].items()
            }
        error: Exception = ValueError(f"version {version!r}")
    except (AttributeError, KeyError, TypeError, ValueError) as failure:
        error = failure
    raise CheckpointError(
        f"the checkpoint's offset is not valid for a stream of plain offsets: expected version "
        f"{VERSION} with topics and ends, found {str(document)[:200]}: {error!r:.200}; use a new "
        "checkpointLocation"
    ) from error


def _parsed_id(text: str) -> TopicId:
    # The text has no padding, as Kafka prints ids (`Uuid.java`).
    return TopicId(UUID(bytes=base64.urlsafe_b64decode(text + "==")))
