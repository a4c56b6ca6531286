"""From what a batch holds to the tasks that read it.

A task costs 30 to 60 ms whatever it reads, and one that reads cheap rows handles millions of
them in a second; so the number of tasks follows the number of rows, never the number of runs.
Without `minPartitions` it is one task for each ``ROWS_PER_TASK`` rows, but no more than there
are topic partitions, as with Spark's own Kafka source.

All runs in the order of topic, partition and offset make one line, and each task gets a piece of
it.  Neighbours therefore stay together: executors fetch whole record batches, and a batch
whose records went to many tasks would be fetched by all of them.

    orders-0 ▆▆▆▆▆▆▆▆ ▆▆ ▆ ▆▆▆   orders-1 ▆▆▆▆▆ ▆▆▆▆▆▆▆
             └── task 0 ──┘ └─────── task 1 ──────┘ └─ task 2
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil

from sharegroup.client.offset_set import OffsetSet
from sharegroup.ids import TopicId, TopicName, TopicPartition
from sharegroup.spark.carry import Acquired
from sharegroup.spark.kept_records import Keeper
from sharegroup.spark.partition import PartitionRuns, Run, RunsPartition

ROWS_PER_TASK = 10_000
"""Fewer than this are not worth a task of their own, unless the user says so."""


def plan(
    acquired: Acquired,
    names: Mapping[TopicId, TopicName],
    *,
    tasks_min: int | None = None,
    rows_per_task_max: int | None = None,
    keeper: Keeper | None = None,
) -> list[RunsPartition]:
    """The tasks of a batch, none when it holds nothing; what ``keeper`` has they need not fetch."""
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
    if keeper is not None:
        line = [part for whole in line for part in _with_kept(whole, keeper)]
    return [RunsPartition(parts) for parts in _cut(line, ceil(rows / tasks))]


def _with_kept(part: PartitionRuns, keeper: Keeper) -> Iterator[PartitionRuns]:
    """The part as far as its records are kept without a hole, and the rest to be fetched."""
    key = TopicPartition(part.topic_id, part.partition)
    covered = keeper.covered(key)
    if not covered:
        yield part
        return
    missing = OffsetSet.of((run.first, run.end) for run in part.runs) - covered
    cut = missing.ranges[0][0] if missing else part.runs[-1].end
    near = tuple(run._replace(end=min(run.end, cut)) for run in part.runs if run.first < cut)
    far = tuple(run._replace(first=max(run.first, cut)) for run in part.runs if run.end > cut)
    if near:
        yield part._replace(runs=near, kept=keeper.records(key))
    if far:
        yield part._replace(runs=far)


def _cut(line: list[PartitionRuns], rows_each: int) -> Iterator[list[PartitionRuns]]:
    """The line in pieces of ``rows_each`` rows; only the last one may have fewer."""
    piece: list[PartitionRuns] = []
    room = rows_each
    for part in line:
        runs: list[Run] = []
        for run in part.runs:
            while run.end - run.first > room:
                runs.append(run._replace(end=run.first + room))
                run = run._replace(first=run.first + room)
                yield [*piece, part._replace(runs=tuple(runs))]
                piece, runs, room = [], [], rows_each
            runs.append(run)
            room -= run.end - run.first
            if not room:
                yield [*piece, part._replace(runs=tuple(runs))]
                piece, runs, room = [], [], rows_each
        if runs:
            piece.append(part._replace(runs=tuple(runs)))
    if piece:
        yield piece
