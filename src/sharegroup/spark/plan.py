"""Divides the records of a batch into tasks.

A task costs 30 to 60 ms regardless of its rows, and may process millions of simple rows per second.
So the number of tasks depends on the number of rows, never on the number of runs.  Without
`minPartitions` there is one task for each ``ROWS_PER_TASK`` rows, but no more tasks than topic
partitions, as with Spark's own Kafka source.

All runs are put in a line, ordered by topic, partition and offset, and each task gets a piece of
it.  So neighbouring records stay together.  This matters because executors fetch whole record
batches: if the records of a batch went to many tasks, all of them would fetch it.

    orders-0 ▆▆▆▆▆▆▆▆ ▆▆ ▆ ▆▆▆   orders-1 ▆▆▆▆▆ ▆▆▆▆▆▆▆
             └── task 0 ──┘ └─────── task 1 ──────┘ └─ task 2
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

from sharegroup.client.share.session.acquired_records import AcquiredRecords, acquired_offsets
from sharegroup.client.share.session.offset_set import OffsetSet
from sharegroup.ids import TopicId, TopicIdPartition, TopicName
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.spark.carry import AcquiredByPartition
from sharegroup.spark.kept_records import Keeper, KeptRecords

# The input of a task: offset ranges of one or more topic partitions.
#
# The driver passes only this to an executor, and the rows of a task are a pure function of it. The
# same partition read twice, by two actions or after a crash, gives the same rows. It does not
# matter whether the records come from the driver's memory or from the broker.
#
# A range of records has these types on its way; each has what its place needs::
#
#     ShareFetch response      AcquiredRecords    both ends and the delivery count, as on the wire
#       |   '--> member        OffsetSet          held, carried and refused offsets
#       |   '--> driver        Slice              the place of its kept bytes
#     offset of the batch      AcquiredRecords    in JSON: pairs of gap and length
#       |
#     input of a task          PartitionRuns      AcquiredRecords with topic and partition
#       |   '--> fetch         WantedRanges       [first, end) without delivery counts
#       |   '--> rows          an array           first, end and delivery count, searched as a whole
#     ShareAcknowledge         AckRun             [first, end) and the acknowledgement type
#
# The partition leader is not included, because it may change before the task runs or runs again. An
# executor asks for it once and remembers it while its process runs.


NOT_DELIVERED = 0
"""The delivery count in a batch read, whose records no share group has delivered."""


class PartitionRuns(NamedTuple):
    """The runs that a task reads of one topic partition; they ascend and do not overlap."""

    topic: str
    topic_id: TopicId
    partition: int
    runs: tuple[AcquiredRecords, ...]
    kept: KeptRecords | None = None
    """The place of all records of the runs in the driver's memory; None if they are not kept."""
    is_listed: bool = False
    """Whether log batches had all offsets of the runs when these were acquired."""

    @property
    def offset_count(self) -> int:
        """The number of offsets, which is the number of records if there are no gaps."""
        return sum(run.offset_count for run in self.runs)


Decide = Callable[[PartitionRuns, AcknowledgeType, OffsetSet], None]
"""Called by a task with offsets of a partition that have no rows, and their acknowledgement."""


class RunsPartition(InputPartition):
    """The input of one task, as Spark's unit of planning."""

    def __init__(self, parts: Sequence[PartitionRuns]) -> None:
        super().__init__(None)
        self.parts = tuple(parts)

    def __repr__(self) -> str:
        named = ", ".join(
            f"{part.topic}-{part.partition}[{runs[0].first_offset}, {runs[-1].end_offset})"
            for part in self.parts
            for runs in (part.runs,)
        )
        return f"RunsPartition({named})"


ROWS_PER_TASK = 10_000
"""Number of rows that justify another task, unless the user sets the number of tasks."""


def plan(
    acquired: AcquiredByPartition,
    names: Mapping[TopicId, TopicName],
    *,
    tasks_min: int | None = None,
    rows_per_task_max: int | None = None,
    keeper: Keeper | None = None,
) -> list[RunsPartition]:
    """Return the tasks of a batch, none if it has no records.

    The tasks do not have to fetch the records that ``keeper`` has.
    """
    line = [
        PartitionRuns(names[key.topic_id], key.topic_id, key.partition, acquired[key])
        for key in sorted(acquired, key=lambda key: (names[key.topic_id], key))
        if acquired[key]
    ]
    rows = sum(part.offset_count for part in line)
    if not rows:
        return []
    tasks = min(len(line), ceil(rows / ROWS_PER_TASK)) if tasks_min is None else tasks_min
    if rows_per_task_max is not None:
        tasks = max(tasks, ceil(rows / rows_per_task_max))
    if keeper is not None and not keeper.receives_records:
        line = [part._replace(is_listed=True) for part in line]
    elif keeper is not None:
        line = [part for whole in line for part in _with_kept(whole, keeper)]
    return [RunsPartition(parts) for parts in _cut(line, ceil(rows / tasks))]


def _with_kept(part: PartitionRuns, keeper: Keeper) -> Iterator[PartitionRuns]:
    """Split the part into its first records, up to one that is not kept, and the rest to fetch."""
    key = TopicIdPartition(part.topic_id, part.partition)
    covered = keeper.covered(key)
    if not covered:
        yield part
        return
    missing = acquired_offsets(part.runs) - covered
    cut = missing.ranges[0][0] if missing else part.runs[-1].end_offset
    near = tuple(
        run._replace(last_offset=min(run.last_offset, cut - 1))
        for run in part.runs
        if run.first_offset < cut
    )
    far = tuple(
        run._replace(first_offset=max(run.first_offset, cut))
        for run in part.runs
        if run.end_offset > cut
    )
    if near:
        yield part._replace(runs=near, kept=keeper.records(key))
    if far:
        yield part._replace(runs=far)


def _cut(line: list[PartitionRuns], rows_each: int) -> Iterator[list[PartitionRuns]]:
    """Cut the line into pieces of ``rows_each`` rows; only the last may have fewer."""
    piece: list[PartitionRuns] = []
    room = rows_each
    for part in line:
        runs: list[AcquiredRecords] = []
        for run in part.runs:
            while run.offset_count > room:
                runs.append(run._replace(last_offset=run.first_offset + room - 1))
                run = run._replace(first_offset=run.first_offset + room)
                yield [*piece, part._replace(runs=tuple(runs))]
                piece, runs, room = [], [], rows_each
            runs.append(run)
            room -= run.offset_count
            if not room:
                yield [*piece, part._replace(runs=tuple(runs))]
                piece, runs, room = [], [], rows_each
        if runs:
            piece.append(part._replace(runs=tuple(runs)))
    if piece:
        yield piece
