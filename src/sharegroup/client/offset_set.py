"""A set of offsets, kept as ranges: what is held, what is carried, what was decided.

Ascending half-open ranges that neither overlap nor touch, so equal sets are equal values and
the cost follows the number of ranges, never the number of offsets:

    {3, 4, 5, 9, 10}  ->  ((3, 6), (9, 11))

`core.offset_runs` is the sibling for maps that give every offset a value; here most offsets are
simply not in the set.  Operations on two sets are one linear pass over both.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

Range: TypeAlias = tuple[int, int]
"""Offsets ``first`` (included) to ``end`` (excluded)."""


@dataclass(frozen=True, slots=True)
class OffsetSet:
    """See the module's text.  Make one with `of`, which takes ranges in any order."""

    ranges: tuple[Range, ...] = ()

    @staticmethod
    def of(ranges: Iterable[Range]) -> OffsetSet:
        """The offsets of all ``ranges``, which may overlap and come in any order."""
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

    def __bool__(self) -> bool:
        """Whether there is any offset in it."""
        return bool(self.ranges)

    def __iter__(self) -> Iterator[Range]:
        """The ranges, ascending."""
        return iter(self.ranges)

    @property
    def count(self) -> int:
        """The number of offsets."""
        return sum(end - first for first, end in self.ranges)

    def __or__(self, other: OffsetSet) -> OffsetSet:
        """Offsets that are in either."""
        return OffsetSet.of((*self.ranges, *other.ranges)) if self and other else self or other

    def __and__(self, other: OffsetSet) -> OffsetSet:
        """Offsets that are in both."""
        return OffsetSet(tuple(_common(self.ranges, other.ranges)))

    def __sub__(self, other: OffsetSet) -> OffsetSet:
        """Offsets that are here and not there."""
        return OffsetSet(tuple(_left(self.ranges, other.ranges))) if other else self

    def between(self, first: int, end: int) -> OffsetSet:
        """The part within ``[first, end)``; costs what it touches, not what there is."""
        low = bisect_right(self.ranges, first, key=_end_of)
        high = bisect_left(self.ranges, end, low, key=_first_of)
        part = self.ranges[low:high]
        if part and (part[0][0] < first or part[-1][1] > end):
            part = tuple((max(one[0], first), min(one[1], end)) for one in part)
        return OffsetSet(part)

    def from_offset(self, offset: int) -> OffsetSet:
        """Without everything below ``offset``."""
        return OffsetSet(tuple((max(first, offset), end) for first, end in self if end > offset))

    def check(self) -> None:
        """Assert what must always hold."""
        assert all(first < end for first, end in self)
        assert all(before[1] < after[0] for before, after in pairwise(self))


EMPTY = OffsetSet()


def _first_of(one: Range) -> int:
    return one[0]


def _end_of(one: Range) -> int:
    return one[1]


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
        # What follows may cut several pieces out of this range and reach into the next one.
        cut = other
        while cut < len(theirs) and theirs[cut][0] < end:
            if first < theirs[cut][0]:
                yield first, theirs[cut][0]
            first = max(first, theirs[cut][1])
            cut += 1
        if first < end:
            yield first, end
