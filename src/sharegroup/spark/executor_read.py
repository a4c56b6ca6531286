"""A task's rows: take or fetch what the driver acquired, decode it, hand it on as Arrow batches.

Spark starts a worker process for each core and uses it for task after task, so connections,
metadata and an event loop live in the module and are found again by the next task.  While
Spark takes the rows of one answer, the next is on its way.

    rows    --------[ decode 1 ][ decode 2 ][ decode 3 ]
    network [ round 1 ][ round 2 ]  [ round 3 ]

What the driver has kept on this machine (`kept_records`) is not fetched and comes first; of each
topic partition that is the lower offsets.

Reading is a pure function of options and partition.  Whoever stops in the middle (``take``,
``isEmpty``, a failure elsewhere) closes the iterator, and what is on its way is given up.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from sharegroup import freed_memory
from sharegroup.client.cluster import Cluster
from sharegroup.client.config import ClientConfig, config_from
from sharegroup.client.share_session import OFFSET_MAX
from sharegroup.errors import CorruptMessage
from sharegroup.ids import TopicId
from sharegroup.spark.background import LoopThread
from sharegroup.spark.kept_records import Reader, opened
from sharegroup.spark.options import ReadOptions
from sharegroup.spark.partition import PartitionRuns, RunsPartition
from sharegroup.spark.record_fetch import RecordFetch
from sharegroup.spark.schema import arrow_batches
from sharegroup.wire.batches import Buffer
from sharegroup.wire.columns import Ranges, record_columns


class _Process:
    """What tasks of one process share."""

    def __init__(self) -> None:
        freed_memory.keep_for_answers()
        self.pid = os.getpid()
        self.thread = LoopThread("kafka-share-read")
        self.record_bytes: dict[tuple[TopicId, int], float] = {}
        self._clusters: dict[str, Cluster] = {}

    def cluster(self, options: ReadOptions) -> Cluster:
        """The cluster of these options, connected when first used."""
        key = repr(sorted(options.client.items()))
        if key not in self._clusters:
            self._clusters[key] = Cluster(config_from(ClientConfig, options.client))
        return self._clusters[key]

    def close(self) -> None:
        self.thread.call(self._close_clusters())
        self.thread.close()

    async def _close_clusters(self) -> None:
        for cluster in self._clusters.values():
            cluster.close()


_process: _Process | None = None


def _this_process() -> _Process:
    """A fork inherits the module, but neither the thread nor the use of the connections."""
    global _process  # noqa: PLW0603  Living as long as the process is what this is for.
    if _process is None or _process.pid != os.getpid():
        _process = _Process()
    return _process


def close() -> None:
    """End this process's connections; the next read opens new ones."""
    global _process  # noqa: PLW0603
    if _process is not None and _process.pid == os.getpid():
        _process.close()
    _process = None


def read(options: ReadOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of one task, in the order of offsets within each topic partition."""
    if not isinstance(partition, RunsPartition):
        return  # A batch read without partitions: Spark makes up an empty one.
    process = _this_process()
    cluster = process.cluster(options)
    near, far = near_and_far(partition.parts)
    fetch = RecordFetch(
        cluster,
        far,
        record_bytes=process.record_bytes,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    coming = process.thread.submit(fetch.next_round())
    try:
        for part, reader in near:
            for one, records in reader.between(part.runs[0].first, part.runs[-1].end):
                yield from _rows(part, one.first, one.end, records, options)
        while fetched := coming.result():
            coming = process.thread.submit(fetch.next_round())
            for each in fetched:
                yield from _rows(each.part, each.first, OFFSET_MAX, each.records, options)
    finally:
        coming.cancel()
        for _, reader in near:
            reader.close()


def near_and_far(
    parts: Iterable[PartitionRuns],
) -> tuple[list[tuple[PartitionRuns, Reader]], list[PartitionRuns]]:
    """What the driver has kept within reach, and what to fetch: a partition once in each."""
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


def _rows(
    part: PartitionRuns, first: int, end: int, records: Buffer, options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """What of the runs lies in these batches, and within [first, end)."""
    runs: Any = np.array(part.runs, dtype=np.int64)
    runs = runs[(runs[:, 1] > first) & (runs[:, 0] < end)]
    ranges = Ranges(np.maximum(runs[:, 0], first), np.minimum(runs[:, 1], end))
    groups = record_columns(records, ranges, headers=options.include_headers)
    try:
        for columns in groups:
            yield from arrow_batches(
                columns,
                options,
                topic=part.topic,
                partition=part.partition,
                delivery_counts=runs[:, 2],
            )
    except CorruptMessage as error:
        raise CorruptMessage(f"topic {part.topic!r} partition {part.partition}: {error}") from error
