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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

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
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.spark.options import ReadOptions
from sharegroup.spark.plan import Decide, PartitionRuns

log = logging.getLogger(__name__)

CLUSTERS_MAX = 8
"""Number of clusters, or of clients of one cluster with other options, whose connections are kept.

More are open only while tasks use them.
"""


@dataclass(slots=True)
class _Shared:
    """A client's cluster, and the number of tasks that use it at the moment."""

    cluster: Cluster
    uses: int = 0


class _Process:
    """The resources that all tasks of one process share."""

    def __init__(self) -> None:
        freed_memory.keep_for_answers()
        self.pid = os.getpid()
        self.thread = LoopThread("kafka-share-read")
        self.thread.enter()
        self.record_sizes: RecordSizes = {}
        self._clusters: dict[str, _Shared] = {}
        """By the client's options; the most recently used one is the last."""

    @contextmanager
    def cluster(self, options: ReadOptions) -> Iterator[Cluster]:
        """Return the cluster for these options, created on first use and open in the block."""
        # With the passwords: a connection of one user must not serve the reads of another.
        key = repr(sorted(options.client.items()))
        shared = self._clusters.pop(key, None)
        if shared is None:
            shared = _Shared(Cluster(config_from(ReadingConfig, options.client)))
        self._clusters[key] = shared
        shared.uses += 1
        try:
            self._close_surplus(CLUSTERS_MAX)
            yield shared.cluster
        finally:
            shared.uses -= 1

    def close(self) -> None:
        for shared in self._clusters.values():
            shared.uses = 0
        self._close_surplus(0)
        self.thread.leave()

    def _close_surplus(self, clusters_max: int) -> None:
        """Close the clusters above the maximum that are not used, the oldest ones first."""
        # A task that still reads keeps its cluster, also above the maximum.
        unused = [key for key, shared in self._clusters.items() if not shared.uses]
        for key in unused[: max(0, len(self._clusters) - clusters_max)]:
            self.thread.run(_close(self._clusters.pop(key).cluster))


async def _close(cluster: Cluster) -> None:
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

    def __init__(
        self, options: ReadOptions, parts: Sequence[PartitionRuns], decide: Decide | None = None
    ) -> None:
        process = this_process()
        self._submit = process.thread.submit
        self._numbers = {_partition_of(part): number for number, part in enumerate(parts)}
        self._use = ExitStack()
        cluster = self._use.enter_context(process.cluster(options))
        self._fetch = range_fetch(
            cluster, parts, options, record_sizes=process.record_sizes, decide=decide
        )
        self._coming = self._submit(self._fetch.next_round())

    def batches(self) -> Iterator[tuple[int, FetchedBatches]]:
        """Yield the fetched record batches, each with the number of its part."""
        while fetched := self._coming.result():
            self._coming = self._submit(self._fetch.next_round())
            for batches in fetched:
                yield self._numbers[batches.wanted[:2]], batches

    def cancel(self) -> None:
        """End the pending round, if any, because Spark needs no more rows."""
        self._coming.cancel()
        self._use.close()


def range_fetch(
    cluster: Cluster,
    parts: Iterable[PartitionRuns],
    options: ReadOptions,
    *,
    record_sizes: RecordSizes | None = None,
    decide: Decide | None = None,
) -> RangeFetch:
    """Return the fetch of the runs of a task; ``failOnDataLoss`` decides about missing records.

    If they are left out, ``decide`` gets their offsets, to be acknowledged as gaps.
    """
    parts = tuple(parts)

    def missing(offsets: MissingOffsets) -> None:
        topic, partition = where = offsets.where
        text = (
            f"topic {topic!r} partition {partition} offset {offsets.first}: records up to offset "
            f"{offsets.end} no longer exist: {offsets.error}"
        )
        if options.fail_on_data_loss:
            raise OffsetOutOfRange(text + "; to skip them, set the option failOnDataLoss=false")
        log.warning("%s", text)
        if decide is None:
            return
        for part in parts:
            if _partition_of(part) == (where, offsets.topic_id):
                gaps = acquired_offsets(part.runs).between(offsets.first, offsets.end)
                decide(part, AcknowledgeType.GAP, gaps)

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
