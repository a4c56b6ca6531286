"""The input of a task: offset ranges of one or more topic partitions.

The driver passes only this to an executor, and the rows of a task are a pure function of it.  The
same partition read twice, by two actions or after a crash, gives the same rows.  It does not matter
whether the records come from the driver's memory or from the broker.

A range of records has these types on its way; each has what its place needs::

    ShareFetch response      AcquiredRecords    both ends and the delivery count, as on the wire
      |   '--> member        OffsetSet          held, carried and refused offsets
      |   '--> driver        Slice              the place of its kept bytes
    offset of the batch      AcquiredRecords    in JSON: pairs of gap and length
      |
    input of a task          PartitionRuns      AcquiredRecords with topic and partition
      |   '--> fetch         WantedRanges       [first, end) without delivery counts
      |   '--> rows          an array           first, end and delivery count, searched as a whole
    ShareAcknowledge         AckRun             [first, end) and the acknowledgement type

The partition leader is not included, because it may change before the task runs or runs again.  An
executor asks for it once and remembers it while its process runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

from sharegroup.client.share.session.acquired_records import AcquiredRecords
from sharegroup.ids import TopicId
from sharegroup.spark.kept_records import KeptRecords

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

    @property
    def offset_count(self) -> int:
        """The number of offsets, which is the number of records if there are no gaps."""
        return sum(run.offset_count for run in self.runs)


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
