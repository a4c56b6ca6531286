"""From single acknowledgements to the batches that a request carries.

The wire has ranges of offsets, each with one type for all or a type for each.  Types are one
byte and a range costs about twenty, so short runs share a range with a type for each, and a
long run has a range to itself with one type:

    offsets  10 11 12 13 14 15 .................. 90        10..13  accept release accept accept
    types     A  R  A  A  A  A ..................  A   ->   (had the run 12..90 been short)

A run is long above `LONG_RUN`, the length at which Kafka's own client cuts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, overload

LONG_RUN = 10

GAP = 0
"""The type for offsets that hold no record; only on the wire, nobody chooses it."""

RENEW = 4
"""The type that settles nothing and makes a lock begin anew."""


class AckRun(NamedTuple):
    """Offsets ``first`` to ``end`` (excluded) that are acknowledged alike."""

    first: int
    end: int
    ack_type: int


class Offsets(Sequence[int]):
    """The offsets of runs as a sequence, without a number kept for each; gaps left out.

    >>> list(Offsets([AckRun(7, 9, 1), AckRun(20, 21, 2)]))
    [7, 8, 20]
    """

    __slots__ = ("_ranges",)

    def __init__(self, runs: Iterable[AckRun]) -> None:
        self._ranges = sorted((run.first, run.end) for run in runs if run.ack_type != GAP)

    def __len__(self) -> int:
        return sum(end - first for first, end in self._ranges)

    def __iter__(self) -> Iterator[int]:
        for first, end in self._ranges:
            yield from range(first, end)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...
    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        left = index if index >= 0 else index + len(self)
        for first, end in self._ranges:
            if 0 <= left < end - first:
                return first + left
            left -= end - first
        raise IndexError(f"{index} of {len(self)} offsets")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self._ranges))

    def __repr__(self) -> str:
        return f"Offsets({self._ranges})"


class AckBatch(NamedTuple):
    """As on the wire, but half-open: ``types`` has one element, or one for each offset."""

    first: int
    end: int
    types: tuple[int, ...]


def runs_of(offsets: Sequence[int], types: Sequence[int]) -> Iterator[AckRun]:
    """Ascending ``offsets`` with the type of each, as runs of neighbours of one type."""
    if not offsets:
        return
    if offsets[-1] - offsets[0] + 1 == len(offsets) and types.count(types[0]) == len(types):
        # One type and no hole: nearly every call; two passes in C instead of one in Python.
        yield AckRun(offsets[0], offsets[-1] + 1, types[0])
        return
    first = previous = offsets[0]
    run_type = types[0]
    for offset, ack_type in zip(offsets, types, strict=True):
        if ack_type != run_type or offset > previous + 1:
            yield AckRun(first, previous + 1, run_type)
            first, run_type = offset, ack_type
        previous = offset
    yield AckRun(first, previous + 1, run_type)


def batches_of(runs: Iterable[AckRun]) -> tuple[AckBatch, ...]:
    """Runs that do not overlap, in any order, as the fewest bytes on the wire."""
    batches: list[AckBatch] = []
    shared: list[AckRun] = []
    for run in sorted(runs):
        is_long = run.end - run.first > LONG_RUN
        if shared and (is_long or run.first != shared[-1].end):
            batches.append(_together(shared))
            shared = []
        if is_long:
            batches.append(AckBatch(run.first, run.end, (run.ack_type,)))
        else:
            shared.append(run)
    if shared:
        batches.append(_together(shared))
    return tuple(batches)


def _together(runs: Sequence[AckRun]) -> AckBatch:
    """Short runs without a hole between them as one batch."""
    first, end = runs[0].first, runs[-1].end
    kinds = {run.ack_type for run in runs}
    if len(kinds) == 1:
        return AckBatch(first, end, (runs[0].ack_type,))
    types = (run.ack_type for run in runs for _ in range(run.end - run.first))
    return AckBatch(first, end, tuple(types))
