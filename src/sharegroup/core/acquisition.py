"""How far one acquire goes: log batches, the budget of a request, and how the answer is cut.

A share fetch asks for ``records_max`` records.  That limit is soft: the log batch in which it
is reached is finished, because the reply carries whole log batches anyway and the member can
then settle one as a unit (KIP-1206 «batch_optimized»).  The room for locks is hard.

    log batches   |  0 ... 9  |  10 ... 19  |  20 ... 29  |
    records_max 12, room 100   ------------->               0 to 19 are locked
    records_max 12, room 15    -------->                    0 to 14 are locked
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from sharegroup.core.delivery import Acquired, LogBatches

Range = tuple[int, int]


def stretches(log: LogBatches) -> list[Range]:
    """The ranges that hold records, joined where one log batch follows right on another."""
    firsts, ends = log.firsts, log.ends
    if firsts[1:] == ends[:-1]:  # No compaction here: one comparison in C.
        return [(firsts[0], ends[-1])]
    found: list[Range] = []
    for first, end in zip(firsts, ends, strict=True):
        if found and found[-1][1] == first:
            found[-1] = (found[-1][0], end)
        else:
            found.append((first, end))
    return found


def holes(position: int, found: list[Range]) -> list[Range]:
    """The ranges at or above ``position``, below the last of the stretches, in none of them."""
    reached = position
    between: list[Range] = []
    for first, end in found:
        if reached < first:
            between.append((reached, first))
        reached = max(reached, end)
    return between


class Budget:
    """What one acquire may still take; see the module's text."""

    __slots__ = ("_log", "_records_left", "locks_left", "stop")

    def __init__(self, log: LogBatches, *, records_max: int, locks_left: int) -> None:
        self._log = log
        self._records_left = records_max
        self.locks_left = locks_left
        self.stop = log.ends[-1]  # No offset from here on is taken.

    def take(self, first: int, end: int) -> int:
        """Spend on ``[first, end)``; return the end of what is granted, ``first`` for nothing."""
        end = min(end, self.stop, first + self.locks_left)
        if end <= first:
            return first
        if 0 < self._records_left <= end - first:
            index = bisect_right(self._log.firsts, first + self._records_left - 1) - 1
            self.stop = self._log.ends[index]
            end = min(end, self.stop)
        self._records_left -= end - first
        self.locks_left -= end - first
        return end


def entries(
    taken: Iterable[Acquired], log: LogBatches, *, batch_records: int
) -> tuple[Acquired, ...]:
    """The ranges to answer: neighbours of equal count joined, then cut to the size asked for."""
    return tuple(
        piece
        for acquired in _joined(taken)
        for piece in _cut(acquired, log, batch_records=max(1, batch_records))
    )


def _joined(taken: Iterable[Acquired]) -> list[Acquired]:
    joined: list[Acquired] = []
    for acquired in taken:
        if joined:
            last = joined[-1]
            if last.end == acquired.first and last.delivery_count == acquired.delivery_count:
                joined[-1] = last._replace(end=acquired.end)
                continue
        joined.append(acquired)
    return joined


def _cut(acquired: Acquired, log: LogBatches, *, batch_records: int) -> Iterator[Acquired]:
    """Cut in front of a log batch, each time the piece is at least ``batch_records`` long."""
    first, end, delivery_count = acquired
    while end - first > batch_records:
        index = bisect_left(log.firsts, first + batch_records)
        if index == len(log.firsts) or log.firsts[index] >= end:
            break
        border = log.firsts[index]
        yield Acquired(first, border, delivery_count)
        first = border
    yield Acquired(first, end, delivery_count)
