"""How far one acquire goes: log batches, the budget of a request, and how the answer is cut.

A share fetch asks for ``records_max`` records.  That limit is soft: the log batch in which it
is reached is finished, because the reply carries whole log batches anyway and the member can
then settle one as a unit (KIP-1206 «batch_optimized»).  The room for locks is hard, and so is
the number of records for a member that says so («record_limit»).

    log batches   |  0 ... 9  |  10 ... 19  |  20 ... 29  |
    records_max 12, room 100   ------------->               0 to 19 are locked
    records_max 12, room 15    -------->                    0 to 14 are locked
    records_max 12, strict     ----->                       0 to 11 are locked

One bad record can fail everything that is delivered with it, each time, until all of it is
archived.  So records that came back too often are *isolated*: from half of the permitted
deliveries on, ever smaller portions of a log batch go out, each in a reply of its own, and the
last delivery of a record is of that record alone.  With a limit of 10 and a batch of 512:

    delivery     1 to 5    6     7     8    9    10
    records        512    256   128   64   32    1

Not so what a member released while it settled others: it has told those to try again from the
good ones.  They go along with the rest until the limit, or until a lock of theirs runs out.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from sharegroup.core.delivery import Acquired, AcquireMode, LogBatches, Wanted

Range = tuple[int, int]

ISOLATED_FROM_MIN = 2
"""A record that came back once is not suspicious yet, whatever the limit."""


def stretches(log: LogBatches) -> list[Range]:
    """The ranges that hold records, joined where one log batch follows right on another."""
    firsts, ends = log.firsts, log.ends
    if firsts and firsts[1:] == ends[:-1]:  # No holes here: one comparison in C.
        return [(firsts[0], ends[-1])]
    found: list[Range] = []
    for first, end in zip(firsts, ends, strict=True):
        if found and found[-1][1] == first:
            found[-1] = (found[-1][0], end)
        else:
            found.append((first, end))
    return found


def holes(log: LogBatches, found: list[Range]) -> list[Range]:
    """The ranges from the log's position on, below its end, in none of the stretches."""
    reached, log_end = log.position, log.end
    between: list[Range] = []
    for first, end in found:
        if reached < first:
            between.append((reached, first))
        reached = max(reached, end)
    if reached < log_end:
        between.append((reached, log_end))
    return between


class Budget:
    """What one acquire may still take; see the module's text."""

    __slots__ = (
        "_delivery_count_max",
        "_isolated_from",
        "_log",
        "_records_left",
        "_wanted",
        "isolating",
        "locks_left",
        "stop",
    )

    def __init__(
        self, log: LogBatches, wanted: Wanted, *, locks_left: int, delivery_count_max: int
    ) -> None:
        self._log = log
        self._wanted = wanted
        self._records_left = wanted.records_max
        self._delivery_count_max = delivery_count_max
        self._isolated_from = max(ISOLATED_FROM_MIN, (delivery_count_max + 1) // 2)
        self.locks_left = locks_left
        self.stop = log.ends[-1]  # No offset from here on is taken.
        self.isolating = False  # What is taken now must not be joined by anything else.

    def take(self, first: int, end: int, suspicion: int = 0) -> int:
        """Spend on ``[first, end)``, which came back so often and nobody knows why.

        Returns the end of what is granted, ``first`` for nothing.
        """
        if suspicion >= self._isolated_from and first < end:
            self._isolate(first, suspicion)
        end = min(end, self.stop, first + self.locks_left)
        if end <= first:
            return first
        if 0 < self._records_left <= end - first:
            self.stop = self._border(first + self._records_left)
            end = min(end, self.stop)
        self._records_left -= end - first
        self.locks_left -= end - first
        return end

    def _border(self, reached: int) -> int:
        """Where an acquire ends that has all the records it asked for at ``reached``."""
        if self._wanted.mode is AcquireMode.RECORD_LIMIT:
            return reached
        return self._log.ends[bisect_right(self._log.firsts, reached - 1) - 1]

    def _isolate(self, first: int, suspicion: int) -> None:
        """Let suspicious records go out by themselves: a portion now, the rest another time."""
        alone = suspicion + 1 >= self._delivery_count_max
        taken_before = self._records_left < self._wanted.records_max
        if taken_before and (alone or not self.isolating):
            self.stop = min(self.stop, first)
        elif not self.isolating:
            unit_first, unit_end = self._unit(first)
            halvings = suspicion - self._isolated_from + 1
            portion = 1 if alone else max(1, (unit_end - unit_first) >> halvings)
            self.locks_left = min(self.locks_left, portion)
            self.stop = min(self.stop, unit_end)
        self.isolating = True

    def _unit(self, offset: int) -> Range:
        """The log batches from that of ``offset`` on that the member would settle together."""
        firsts, ends = self._log.firsts, self._log.ends
        index = bisect_right(firsts, offset) - 1
        first = firsts[index]
        last = bisect_left(ends, first + self._wanted.batch_records, index)
        return first, ends[min(last, len(ends) - 1)]


def entries(taken: Iterable[Acquired], log: LogBatches, wanted: Wanted) -> tuple[Acquired, ...]:
    """The ranges to answer: neighbours of equal count joined, then cut to the size asked for.

    Who wants an exact number of records does not want them by the log batch: nothing is cut.
    """
    joined = _joined(taken)
    if wanted.mode is AcquireMode.RECORD_LIMIT:
        return tuple(joined)
    batch_records = max(1, wanted.batch_records)
    return tuple(
        piece for acquired in joined for piece in _cut(acquired, log, batch_records=batch_records)
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
