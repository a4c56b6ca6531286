"""Reads the rows of a task: gets the acquired records, decodes them and yields Arrow batches.

Records that the driver has kept on this machine (`kept_records`), because its broker has sent
them, are not fetched.  They are read first; in each topic partition they have the lower offsets.
The others are fetched meanwhile (`executor_fetch`).

An unreadable batch ends the task, unless ``failOnUnreadable`` is false; then it is left out.

Reading is a pure function of options and partition.  If Spark stops early (``take``, ``isEmpty``, a
failure elsewhere), it closes the iterator, and the pending fetch is cancelled.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from sharegroup import freed_memory
from sharegroup.client.share.session.offset_set import OffsetSet
from sharegroup.errors import UnreadableBatch
from sharegroup.ids import OFFSET_MAX
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.spark.kept_records import Reader, opened
from sharegroup.spark.options import ReadOptions
from sharegroup.spark.plan import Decide, PartitionRuns, RunsPartition
from sharegroup.spark.schema import arrow_batches
from sharegroup.wire.batches.batches import BatchHeader, Buffer, parse_header
from sharegroup.wire.batches.columns import OffsetRanges, record_columns

if TYPE_CHECKING:
    from sharegroup.spark.executor_fetch import TaskFetch

log = logging.getLogger(__name__)

LEAVE_OUT = "to leave their rows out, set the option failOnUnreadable=false"


def read(
    options: ReadOptions, partition: InputPartition, *, decide: Decide | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task, in the order of offsets within each topic partition.

    ``decide`` gets the offsets without rows: of unreadable batches and of records that are gone.
    """
    if not isinstance(partition, RunsPartition):
        return  # For a batch read without partitions Spark passes an empty one of its own.
    freed_memory.keep_for_answers()
    # This opens the driver's memory: open, it outlives the end of its batch (`kept_records`).
    near, far = near_and_far(partition.parts)
    fetch: TaskFetch | None = None
    try:
        # Started before the kept records are read, so the network works meanwhile.
        fetch = _fetch(options, far, decide) if far else None
        for part, reader in near:
            rows = _Rows(part, options, decide)
            for kept, records in reader.between(
                part.runs[0].first_offset, part.runs[-1].end_offset
            ):
                yield from rows.of(records, kept.first, kept.end)
        if fetch is not None:
            all_rows = [_Rows(part, options, decide) for part in far]
            for number, fetched in fetch.batches():
                yield from all_rows[number].of(
                    fetched.records, fetched.first, positions=fetched.batch_positions
                )
    finally:
        if fetch is not None:
            fetch.cancel()
        for _, reader in near:
            reader.close()


def _fetch(
    options: ReadOptions, parts: Sequence[PartitionRuns], decide: Decide | None
) -> TaskFetch:
    # Imported here because a task whose records are all kept needs no client, and the import takes
    # more CPU time than a small task.
    from sharegroup.spark.executor_fetch import TaskFetch

    return TaskFetch(options, parts, decide)


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
        # The driver had cut the partition into kept and other records, and its memory is not here.
        elif far and far[-1][:3] == part[:3]:
            far[-1] = part._replace(runs=far[-1].runs + part.runs)
        else:
            far.append(part)
    return near, far


class _Rows:
    """Makes the rows of one partition from its record batches."""

    __slots__ = ("_decide", "_options", "_part", "_runs")

    def __init__(self, part: PartitionRuns, options: ReadOptions, decide: Decide | None) -> None:
        self._part = part
        self._options = options
        self._decide = decide
        self._runs: Any = np.array(part.runs, dtype=np.int64)
        self._runs[:, 1] += 1  # From here on a run is [first, end).

    def of(
        self,
        records: Buffer,
        first: int,
        end: int = OFFSET_MAX,
        *,
        positions: Sequence[int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the runs that are in these batches and within [first, end)."""
        runs, row_count = self._runs, 0
        runs = runs[np.searchsorted(runs[:, 1], first, "right") : np.searchsorted(runs[:, 0], end)]
        ranges = OffsetRanges(np.maximum(runs[:, 0], first), np.minimum(runs[:, 1], end))
        for columns in record_columns(
            records,
            ranges,
            positions=positions,
            headers=self._options.include_headers,
            unreadable=partial(self._leave_out, ranges),
        ):
            for rows in arrow_batches(
                columns,
                self._options,
                topic=self._part.topic,
                partition=self._part.partition,
                delivery_counts=runs[:, 2],
            ):
                row_count += rows.num_rows
                yield rows
        if positions and self._part.is_listed and self._decide is not None:
            end = parse_header(records, positions[-1]).end_offset
            offset_counts = np.maximum(np.minimum(ranges.end, end) - ranges.first, 0)
            if row_count < offset_counts.sum():
                headers = [parse_header(records, position) for position in positions]
                self._report_gone(_offsets(ranges).between(first, end), headers, self._decide)

    def _report_gone(
        self, requested: OffsetSet, headers: Iterable[BatchHeader], decide: Decide
    ) -> None:
        """Report requested offsets that no batch has any more, because the log was compacted.

        An offset within a batch may have had no record before the acquisition.
        """
        present = OffsetSet.of(
            (header.base_offset, header.end_offset)
            for header in headers
            if header.base_offset < header.end_offset
        )
        if gone := requested - present:
            decide(self._part, AcknowledgeType.GAP, gone)

    def _leave_out(
        self, ranges: OffsetRanges, batch_first: int, batch_end: int, error: Exception
    ) -> None:
        """Raise the error of an unreadable batch, or leave it out and report its offsets."""
        if self._options.fail_on_unreadable:
            raise UnreadableBatch(
                error,
                topic=self._part.topic,
                partition=self._part.partition,
                first=batch_first,
                end=batch_end,
                action=LEAVE_OUT,
            ) from error
        offsets = _offsets(ranges).between(batch_first, batch_end)
        log.warning(
            "event=batch_unreadable topic=%s partition=%d first=%d end=%d offsets=%d error=%r "
            "action='its rows are omitted'",
            self._part.topic,
            self._part.partition,
            batch_first,
            batch_end,
            offsets.count,
            error,
        )
        if self._decide is not None and offsets:
            self._decide(self._part, AcknowledgeType.REJECT, offsets)


def _offsets(ranges: OffsetRanges) -> OffsetSet:
    return OffsetSet.of(zip(ranges.first.tolist(), ranges.end.tolist(), strict=True))
