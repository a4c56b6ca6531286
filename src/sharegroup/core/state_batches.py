"""Statements about offsets, combined: of two about one offset the greater holds.

A statement is a delivery count and a state, compared in this order, so that a count only grows
and nothing leaves a terminal state within one count.  Statements that come late, twice or in
another order change nothing: that is what makes a repeated write harmless (Kafka's
PersisterStateBatchCombiner).

    said    [100,106) available x1      with    [102,104) acknowledged x1,  [105,108) archived x2
    holds   [100,102) available x1, [102,104) acknowledged x1, [104,105) available x1,
            [105,108) archived x2

The map is total, as every `OffsetRuns` is: an offset that nobody spoke of holds `UNKNOWN`, the
least pair there is, and is not written out.
"""

from __future__ import annotations

from collections.abc import Iterable

from sharegroup.core.delivery import AVAILABLE, RecordState, StateBatch
from sharegroup.core.offset_runs import OffsetRuns, Run

Known = tuple[int, RecordState]
"""Delivery count and state, in the order in which they are compared."""

UNKNOWN: Known = (-1, AVAILABLE)
"""Less than anything that can be said of an offset."""


def lay_over(runs: OffsetRuns[Known], batches: Iterable[StateBatch]) -> None:
    """Say ``batches`` too: the greater pair holds, and what lies below the start is settled."""
    for first, end, state, delivery_count in batches:
        first = max(first, runs.start)
        if first >= end:
            continue
        known = (delivery_count, state)
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
    """What lies below a start offset needs no statement, even where none was made yet."""
    if start_offset > runs.end:
        runs.append(start_offset, UNKNOWN)
    runs.drop_before(start_offset)


def batches_of(runs: OffsetRuns[Known]) -> tuple[StateBatch, ...]:
    """What was said: in order, without overlap, equal neighbours joined, holes left out."""
    return tuple(
        StateBatch(first, end, value[1], value[0]) for first, end, value in runs if value != UNKNOWN
    )


def combined(*said: tuple[StateBatch, ...], start_offset: int) -> tuple[StateBatch, ...]:
    """All of ``said`` as one sequence from the start offset on; -1 cuts nothing."""
    if sum(map(len, said)) <= 1:
        # Nearly every write of an acknowledgement: one batch, and nothing to combine it with.
        alone = next((batches[0] for batches in said if batches), None)
        if alone is None or alone.first >= start_offset:
            return () if alone is None else (alone,)
    runs: OffsetRuns[Known] = OffsetRuns(max(start_offset, 0))
    for batches in said:
        lay_over(runs, batches)
    return batches_of(runs)
