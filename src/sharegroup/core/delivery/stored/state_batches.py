"""Statements about offsets and how they combine: of two about one offset the greater one holds.

A statement is a delivery count and a state, compared in this order. So a count never decreases, and
a terminal state is final within one count. A statement that comes late, twice or in another order
changes nothing, so a repeated write is harmless (Kafka's PersisterStateBatchCombiner).

    first   [100,106) available x1
    second  [102,104) acknowledged x1, [105,108) archived x2
    result  [100,102) available x1, [102,104) acknowledged x1, [104,105) available x1,
            [105,108) archived x2

The map is total, like every `OffsetRuns`: an offset without a statement has `UNKNOWN`, the least
value, and is not written.
"""

from __future__ import annotations

from collections.abc import Iterable

from sharegroup.core.delivery.delivery import AVAILABLE, RecordState, StateBatch
from sharegroup.core.delivery.offset_runs import OffsetRuns, Run

Known = tuple[int, RecordState]
"""Delivery count and state, in the order in which they are compared."""

UNKNOWN: Known = (-1, AVAILABLE)
"""The value of an offset without a statement; less than any other."""


def lay_over(runs: OffsetRuns[Known], batches: Iterable[StateBatch]) -> None:
    """Add ``batches`` to the map: for each offset the greater value holds.

    Offsets below the start are settled and ignored.
    """
    for first, end, state, delivery_count in batches:
        first = max(first, runs.start)
        if first >= end:
            continue
        known = (delivery_count, state)
        # Before the map changes: offsets from here on are appended below.
        known_end = runs.end
        if first < known_end:
            runs.overlay(
                [
                    Run(run_first, run_end, max(value, known))
                    for run_first, run_end, value in runs.between(first, end)
                ]
            )
        else:
            runs.append(first, UNKNOWN)
        if known_end < end:
            runs.append(end, known)


def forget_before(runs: OffsetRuns[Known], start_offset: int) -> None:
    """Remove the values below a start offset, which may lie behind the end of the map."""
    if start_offset > runs.end:
        runs.append(start_offset, UNKNOWN)
    runs.drop_before(start_offset)


def batches_of(runs: OffsetRuns[Known]) -> tuple[StateBatch, ...]:
    """Return the statements in order: without overlap, equal neighbours joined, holes left out."""
    return tuple(
        StateBatch(first, end, value[1], value[0]) for first, end, value in runs if value != UNKNOWN
    )


def combined(*said: tuple[StateBatch, ...], start_offset: int) -> tuple[StateBatch, ...]:
    """Combine several sequences of batches into one from the start offset on; -1 cuts nothing."""
    if sum(map(len, said)) <= 1:
        # Nearly every acknowledgement writes one batch, which needs no combining.
        only_batch = next((batches[0] for batches in said if batches), None)
        if only_batch is None or only_batch.first >= start_offset:
            return () if only_batch is None else (only_batch,)
    runs: OffsetRuns[Known] = OffsetRuns(max(start_offset, 0))
    for batches in said:
        lay_over(runs, batches)
    return batches_of(runs)
