"""What one task reads: ranges of offsets, of one topic partition or of several.

This is all that passes from the driver to an executor, and a task's rows are a pure function of
it: the same partition read twice, by two actions or after a crash, gives the same rows, whether
the records are where the driver kept them or come from the broker.  No
leader is named, because by the time the task runs, or runs again after a restart, it may be
another; an executor asks once and remembers for as long as its process lives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

from sharegroup.ids import TopicId
from sharegroup.spark.kept_records import KeptRecords

NOT_DELIVERED = 0
"""The delivery count of what a batch read reads: no share group delivered it."""


class Run(NamedTuple):
    """The offsets [first, end), all of them acquired with the same delivery count."""

    first: int
    end: int
    delivery_count: int


class PartitionRuns(NamedTuple):
    """What a task reads of one topic partition; the runs ascend and don't overlap."""

    topic: str
    topic_id: TopicId
    partition: int
    runs: tuple[Run, ...]
    kept: KeptRecords | None = None
    """Where an executor on the driver's machine finds all records of the runs."""

    @property
    def offset_count(self) -> int:
        """How many records these are, if every offset holds one."""
        return sum(run.end - run.first for run in self.runs)


class RunsPartition(InputPartition):
    """The unit of Spark's planning: what one task reads."""

    def __init__(self, parts: Sequence[PartitionRuns]) -> None:
        super().__init__(None)
        self.parts = tuple(parts)

    def __repr__(self) -> str:
        named = ", ".join(
            f"{part.topic}-{part.partition}[{part.runs[0].first}, {part.runs[-1].end})"
            for part in self.parts
        )
        return f"RunsPartition({named})"
