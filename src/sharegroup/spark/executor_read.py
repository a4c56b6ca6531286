"""Reads the rows of a task: gets the acquired records, decodes them and yields Arrow batches.

Spark starts a worker process for each core and runs many tasks in it.  So connections, metadata and
an event loop are kept in this module for the next task.  While Spark processes the rows of one
response, the next response is being fetched.

    rows    --------[ decode 1 ][ decode 2 ][ decode 3 ]
    network [ round 1 ][ round 2 ]  [ round 3 ]

Records that the driver has kept on this machine (`kept_records`) are not fetched.  They are read
first; in each topic partition they have the lower offsets.

An unreadable batch is skipped with one warning; the others are read.

Reading is a pure function of options and partition.  If Spark stops early (``take``, ``isEmpty``, a
failure elsewhere), it closes the iterator, and the pending fetch is cancelled.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from sharegroup import freed_memory
from sharegroup.client.fetch.range_fetch import (
    MissingOffsets,
    RangeFetch,
    RecordSizes,
    WantedRanges,
)
from sharegroup.client.loop_thread import LoopThread
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.client.settings.client_config import ReadingConfig, config_from
from sharegroup.client.share_sessions.acquired_records import acquired_offsets
from sharegroup.client.share_sessions.offset_set import OffsetSet
from sharegroup.client.share_sessions.share_session import OFFSET_MAX
from sharegroup.errors import OffsetOutOfRange
from sharegroup.ids import TopicId
from sharegroup.spark.kept_records import Reader, opened
from sharegroup.spark.options import ReadOptions
from sharegroup.spark.partition import PartitionRuns, RunsPartition
from sharegroup.spark.schema import arrow_batches
from sharegroup.wire.batches import Buffer
from sharegroup.wire.columns import OffsetRanges, record_columns

log = logging.getLogger(__name__)

Unreadable = Callable[[PartitionRuns, OffsetSet], None]
"""Callback for the requested offsets of a partition that cannot be read."""


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


def read(
    options: ReadOptions, partition: InputPartition, *, unreadable: Unreadable | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task, in the order of offsets within each topic partition."""
    if not isinstance(partition, RunsPartition):
        return  # For a batch read without partitions Spark passes an empty one of its own.
    process = this_process()
    cluster = process.cluster(options)
    near, far = near_and_far(partition.parts)
    fetch = range_fetch(cluster, far, options, record_sizes=process.record_sizes)
    parts = {_partition_of(part): part for part in far}
    coming = process.thread.submit(fetch.next_round())
    try:
        for part, reader in near:
            for kept_slice, records in reader.between(
                part.runs[0].first_offset, part.runs[-1].end_offset
            ):
                yield from _rows(
                    part, kept_slice.first, kept_slice.end, records, options, unreadable
                )
        while fetched := coming.result():
            coming = process.thread.submit(fetch.next_round())
            for fetched_batches in fetched:
                yield from _rows(
                    parts[fetched_batches.wanted[:2]],
                    fetched_batches.first,
                    OFFSET_MAX,
                    fetched_batches.records,
                    options,
                    unreadable,
                )
    finally:
        coming.cancel()
        for _, reader in near:
            reader.close()


def near_and_far(
    parts: Iterable[PartitionRuns],
) -> tuple[list[tuple[PartitionRuns, Reader]], list[PartitionRuns]]:
    """Divide the parts into those in the driver's memory on this machine and those to fetch.

    Each topic partition occurs at most once in the parts to fetch.
    """
    near: list[tuple[PartitionRuns, Reader]] = []
    far: list[PartitionRuns] = []
    for part in parts:
        if part.kept is not None and (reader := opened(part.kept)) is not None:
            near.append((part, reader))
        elif far and far[-1][:3] == part[:3]:
            far[-1] = part._replace(runs=far[-1].runs + part.runs)
        else:
            far.append(part)
    return near, far


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
        deleted_topics_are_missing=True,
        record_sizes=record_sizes,
    )


def _partition_of(part: PartitionRuns) -> tuple[TopicPartition, TopicId | None]:
    return TopicPartition(part.topic, part.partition), part.topic_id


def _rows(
    part: PartitionRuns,
    first: int,
    end: int,
    records: Buffer,
    options: ReadOptions,
    unreadable: Unreadable | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the runs that are in these batches and within [first, end)."""
    runs: Any = np.array(part.runs, dtype=np.int64)
    runs = runs[(runs[:, 1] >= first) & (runs[:, 0] < end)]
    ranges = OffsetRanges(np.maximum(runs[:, 0], first), np.minimum(runs[:, 1] + 1, end))

    def left_out(batch_first: int, batch_end: int, error: Exception) -> None:
        requested = OffsetSet.of(zip(ranges.first.tolist(), ranges.end.tolist(), strict=True))
        offsets = requested.between(batch_first, batch_end)
        log.warning(
            "event=batch_unreadable topic=%s partition=%d first=%d end=%d offsets=%d error=%r "
            "action='its rows are omitted'",
            part.topic,
            part.partition,
            batch_first,
            batch_end,
            offsets.count,
            error,
        )
        if unreadable is not None and offsets:
            unreadable(part, offsets)

    for columns in record_columns(
        records, ranges, headers=options.include_headers, unreadable=left_out
    ):
        yield from arrow_batches(
            columns,
            options,
            topic=part.topic,
            partition=part.partition,
            delivery_counts=runs[:, 2],
        )
