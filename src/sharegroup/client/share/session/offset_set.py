"""A set of offsets, stored as ranges; for example the offsets that a member holds.

The ranges are half-open, ascending, and neither overlap nor touch.  So equal sets are equal
values, and the cost depends on the number of ranges, not on the number of offsets:

    {3, 4, 5, 9, 10}  ->  ((3, 6), (9, 11))

`core.delivery.offset_runs` is the similar structure for maps from every offset to a value.
Operations on two sets are one linear pass over both.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, TypeAlias

Range: TypeAlias = tuple[int, int]
"""Offsets from ``first`` (included) to ``end`` (excluded)."""


class OffsetRun(Protocol):
    """An offset range with a value for all of its offsets."""

    @property
    def first(self) -> int: ...

    @property
    def end(self) -> int: ...


@dataclass(frozen=True, slots=True)
class OffsetSet:
    """An immutable set of offsets; `of` makes one from ranges in any order."""

    ranges: tuple[Range, ...] = ()

    @staticmethod
    def of(ranges: Iterable[Range]) -> OffsetSet:
        """Return the set of all offsets in ``ranges``, which may overlap and be in any order."""
        joined: list[Range] = []
        for first, end in sorted(ranges):
            assert first <= end, f"the range [{first}, {end}) ends before it begins"
            if first == end:
                continue
            if joined and first <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
            else:
                joined.append((first, end))
        return OffsetSet(tuple(joined))

    @staticmethod
    def of_offsets(offsets: Sequence[int]) -> OffsetSet:
        """Return the set of these offsets; it is made fastest of ascending ones."""
        if not offsets:
            return EMPTY
        ranges: list[Range] = []
        first = end = offsets[0]
        for offset in offsets:
            if offset != end:
                if offset < end:
                    return OffsetSet.of((unsorted, unsorted + 1) for unsorted in offsets)
                ranges.append((first, end))
                first = offset
            end = offset + 1
        ranges.append((first, end))
        return OffsetSet(tuple(ranges))

    def __bool__(self) -> bool:
        """Whether the set has any offset."""
        return bool(self.ranges)

    def __iter__(self) -> Iterator[Range]:
        """Iterate over the ranges, ascending."""
        return iter(self.ranges)

    @property
    def count(self) -> int:
        """The number of offsets."""
        return sum(end - first for first, end in self.ranges)

    def __or__(self, other: OffsetSet) -> OffsetSet:
        """Return the offsets that are in either set."""
        return OffsetSet.of((*self.ranges, *other.ranges)) if self and other else self or other

    def __and__(self, other: OffsetSet) -> OffsetSet:
        """Return the offsets that are in both sets."""
        return OffsetSet(tuple(_common(self.ranges, other.ranges)))

    def __sub__(self, other: OffsetSet) -> OffsetSet:
        """Return the offsets of this set that are not in ``other``."""
        return OffsetSet(tuple(_left(self.ranges, other.ranges))) if other else self

    def between(self, first: int, end: int) -> OffsetSet:
        """Return the part within ``[first, end)``; the cost depends on the size of that part."""
        if first >= end:
            return EMPTY
        low = bisect_right(self.ranges, first, key=_end_of)
        high = bisect_left(self.ranges, end, low, key=_first_of)
        part = self.ranges[low:high]
        if part and (part[0][0] < first or part[-1][1] > end):
            part = tuple(
                (max(offset_range[0], first), min(offset_range[1], end)) for offset_range in part
            )
        return OffsetSet(part)

    def from_offset(self, offset: int) -> OffsetSet:
        """Return the set without the offsets below ``offset``."""
        return OffsetSet(tuple((max(first, offset), end) for first, end in self if end > offset))

    def check(self) -> None:
        """Assert the invariants: ranges are not empty, ascend, and do not touch."""
        assert all(first < end for first, end in self)
        assert all(before[1] < after[0] for before, after in pairwise(self))


EMPTY = OffsetSet()


def offsets_of(runs: Iterable[OffsetRun]) -> OffsetSet:
    """Return the offsets of runs, without their values."""
    return OffsetSet.of((run.first, run.end) for run in runs)


def _first_of(offset_range: Range) -> int:
    return offset_range[0]


def _end_of(offset_range: Range) -> int:
    return offset_range[1]


def _common(ours: tuple[Range, ...], theirs: tuple[Range, ...]) -> Iterator[Range]:
    index = other = 0
    while index < len(ours) and other < len(theirs):
        first = max(ours[index][0], theirs[other][0])
        end = min(ours[index][1], theirs[other][1])
        if first < end:
            yield first, end
        if ours[index][1] <= theirs[other][1]:
            index += 1
        else:
            other += 1


def _left(ours: tuple[Range, ...], theirs: tuple[Range, ...]) -> Iterator[Range]:
    other = 0
    for first, end in ours:
        while other < len(theirs) and theirs[other][1] <= first:
            other += 1
        # Later ranges of ``theirs`` may cut several parts out of this range, and the last of
        # them may reach into the next one.
        cut = other
        while cut < len(theirs) and theirs[cut][0] < end:
            if first < theirs[cut][0]:
                yield first, theirs[cut][0]
            first = max(first, theirs[cut][1])
            cut += 1
        if first < end:
            yield first, end
