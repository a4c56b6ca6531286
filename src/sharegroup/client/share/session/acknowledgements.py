"""Packs single acknowledgements into the acknowledgement batches of a request.

A batch is a range of offsets, with one type for all offsets or one for each.  A type is one byte
and a range costs about twenty.  So short runs share a range with a type for each offset, and a
long run has its own range with one type:

    offsets  10 11 12 13 14 15 .................. 90        10..13  accept release accept accept
    types     A  R  A  A  A  A ..................  A   ->   (had the run 12..90 been short)

A run longer than `LONG_RUN` offsets is long; Kafka's own client uses the same length.

A release with a delay of its own is a type, too: `released_after`.  A batch has one delay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, overload

from sharegroup.durations import Duration, release_seconds
from sharegroup.protocol_enums import GROUPS_DELAY, AcknowledgeType

LONG_RUN = 10

TYPE_BITS = 8
TYPE_MASK = (1 << TYPE_BITS) - 1


def delay_ms_of(delay: Duration) -> int:
    """Return the delay of a released record; ValueError unless it is 0 to 24 hours."""
    return round(release_seconds(delay) * 1000)


def released_after(delay_ms: int) -> int:
    """Return the type of a release with this delay; 0 means that the group's does not apply."""
    return AcknowledgeType.RELEASE | (delay_ms + 1) << TYPE_BITS


UNSTARTED = released_after(0)
"""The type of records that are given back unseen: no delay of the group applies to them."""


def delay_of(ack_type: int) -> int:
    """Return the delay in a type, in milliseconds; `GROUPS_DELAY` if it has none of its own."""
    return (ack_type >> TYPE_BITS) - 1


class AckRun(NamedTuple):
    """Offsets from ``first`` to ``end`` (excluded) that have one acknowledgement type."""

    first: int
    end: int
    ack_type: int


class Offsets(Sequence[int]):
    """The offsets of runs as a sequence that stores ranges only; gaps are left out.

    >>> list(Offsets([AckRun(7, 9, 1), AckRun(20, 21, 2)]))
    [7, 8, 20]
    """

    __slots__ = ("_ranges",)

    def __init__(self, runs: Iterable[AckRun]) -> None:
        self._ranges = sorted(
            (run.first, run.end) for run in runs if run.ack_type != AcknowledgeType.GAP
        )

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
        remaining = index if index >= 0 else index + len(self)
        for first, end in self._ranges:
            if 0 <= remaining < end - first:
                return first + remaining
            remaining -= end - first
        raise IndexError(f"{index} of {len(self)} offsets")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self._ranges))

    def __repr__(self) -> str:
        return f"Offsets({self._ranges})"


class AcknowledgementBatch(NamedTuple):
    """An acknowledgement batch as a request has it: both offsets are included.

    ``acknowledge_types`` has one element, or one for each offset.  ``delay_ms`` is the delay of the
    records that it releases; `GROUPS_DELAY` means that of the group.
    """

    first_offset: int
    last_offset: int
    acknowledge_types: tuple[int, ...]
    delay_ms: int = GROUPS_DELAY


def runs_of(offsets: Sequence[int], types: Sequence[int]) -> Iterator[AckRun]:
    """Join neighbouring offsets of one type to runs; ``offsets`` ascend."""
    if not offsets:
        return
    if offsets[-1] - offsets[0] + 1 == len(offsets) and types.count(types[0]) == len(types):
        # Nearly every call has one type and no hole: two passes in C are faster than one in
        # Python.
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


def batches_of(runs: Iterable[AckRun]) -> tuple[AcknowledgementBatch, ...]:
    """Pack runs, in any order but not overlapping, into batches of the fewest bytes."""
    batches: list[AcknowledgementBatch] = []
    shared: list[AckRun] = []
    for run in sorted(runs):
        is_long = run.end - run.first > LONG_RUN
        if shared and (is_long or not _joins(shared[-1], run)):
            batches.append(_together(shared))
            shared = []
        if is_long:
            batches.append(_together([run]))
        else:
            shared.append(run)
    if shared:
        batches.append(_together(shared))
    return tuple(batches)


def _joins(run: AckRun, after: AckRun) -> bool:
    """Whether two runs can be in one batch: without a hole between them, and with one delay."""
    return run.end == after.first and run.ack_type >> TYPE_BITS == after.ack_type >> TYPE_BITS


def _together(runs: Sequence[AckRun]) -> AcknowledgementBatch:
    """Join runs that are in one batch."""
    first, last = runs[0].first, runs[-1].end - 1
    delay_ms = delay_of(runs[0].ack_type)
    ack_types = {run.ack_type & TYPE_MASK for run in runs}
    if len(ack_types) == 1:
        return AcknowledgementBatch(first, last, tuple(ack_types), delay_ms)
    types = (run.ack_type & TYPE_MASK for run in runs for _ in range(run.end - run.first))
    return AcknowledgementBatch(first, last, tuple(types), delay_ms)
