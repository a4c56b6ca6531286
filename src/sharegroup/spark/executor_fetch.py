"""Fetches the records of a task that the driver has not kept on this machine.

Spark starts a worker process for each core and runs many tasks in it.  So connections, metadata and
an event loop are kept in this module for the next task.  While Spark processes the rows of one
response, the next response is being fetched.

    rows    --------[ decode 1 ][ decode 2 ][ decode 3 ]
    network [ round 1 ][ round 2 ]  [ round 3 ]

The module is apart from `executor_read` because it imports the client, which takes longer than
many a task.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence

from sharegroup import freed_memory
from sharegroup.client.fetch.range_fetch import (
    FetchedBatches,
    MissingOffsets,
    RangeFetch,
    RecordSizes,
    WantedRanges,
)
from sharegroup.client.loop_thread import LoopThread
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.client.settings.client_config import ReadingConfig, config_from
from sharegroup.client.share.session.acquired_records import acquired_offsets
from sharegroup.errors import OffsetOutOfRange
from sharegroup.ids import TopicId
from sharegroup.spark.options import ReadOptions
from sharegroup.spark.partition import PartitionRuns

log = logging.getLogger(__name__)


class _Process:
    """The resources that all tasks of one process share."""

    def __init__(self) -> None:
        freed_memory.keep_for_answers()
        self.pid = os.getpid()
        self.thread = LoopThread("kafka-share-read")
        self.thread.enter()
        self.record_sizes: RecordSizes = {}
        self._clusters: dict[str, Cluster] = {}

    def cluster(self, options: ReadOptions) -> Cluster:
        """Return the cluster for these options, created on first use."""
        key = repr(sorted(options.client.items()))
        if key not in self._clusters:
            self._clusters[key] = Cluster(config_from(ReadingConfig, options.client))
        return self._clusters[key]

    def close(self) -> None:
        self.thread.run(self._close_clusters())
        self.thread.leave()

    async def _close_clusters(self) -> None:
        for cluster in self._clusters.values():
            cluster.close()


_process: _Process | None = None


def this_process() -> _Process:
    """Return the resources of this process.

    They are created again after a fork, because a fork has neither the thread nor usable
    connections.
    """
    global _process  # noqa: PLW0603  Living as long as the process is what this is for.
    if _process is None or _process.pid != os.getpid():
        _process = _Process()
    return _process


def close() -> None:
    """Close the connections of this process; the next read opens new ones."""
    global _process  # noqa: PLW0603
    if _process is not None and _process.pid == os.getpid():
        _process.close()
    _process = None


class TaskFetch:
    """The fetch of a task's records; the first round begins at once."""

    def __init__(self, options: ReadOptions, parts: Sequence[PartitionRuns]) -> None:
        process = this_process()
        self._submit = process.thread.submit
        self._numbers = {_partition_of(part): number for number, part in enumerate(parts)}
        self._fetch = range_fetch(
            process.cluster(options), parts, options, record_sizes=process.record_sizes
        )
        self._coming = self._submit(self._fetch.next_round())

    def batches(self) -> Iterator[tuple[int, FetchedBatches]]:
        """Yield the fetched record batches, each with the number of its part."""
        while fetched := self._coming.result():
            self._coming = self._submit(self._fetch.next_round())
            for batches in fetched:
                yield self._numbers[batches.wanted[:2]], batches

    def cancel(self) -> None:
        """End the pending round, because Spark needs no more rows."""
        self._coming.cancel()


def range_fetch(
    cluster: Cluster,
    parts: Iterable[PartitionRuns],
    options: ReadOptions,
    *,
    record_sizes: RecordSizes | None = None,
) -> RangeFetch:
    """Return the fetch of the runs of a task; ``failOnDataLoss`` decides about missing records."""

    def missing(offsets: MissingOffsets) -> None:
        topic, partition = offsets.where
        text = (
            f"topic {topic!r} partition {partition} offset {offsets.first}: records up to offset "
            f"{offsets.end} no longer exist: {offsets.error}"
        )
        if options.fail_on_data_loss:
            raise OffsetOutOfRange(text + "; to skip them, set the option failOnDataLoss=false")
        log.warning("%s", text)

    return RangeFetch(
        cluster,
        [WantedRanges(*_partition_of(part), acquired_offsets(part.runs).ranges) for part in parts],
        missing=missing,
        # So ``failOnDataLoss`` decides about the records of a deleted topic, too.
        deleted_topics_are_missing=True,
        record_sizes=record_sizes,
    )


def _partition_of(part: PartitionRuns) -> tuple[TopicPartition, TopicId | None]:
    return TopicPartition(part.topic, part.partition), part.topic_id
