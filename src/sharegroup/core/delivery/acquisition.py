"""The extent of one acquire: the budget of a request over log batches, and the ranges returned.

A share fetch asks for ``records_max`` records. That limit is soft: the log batch in which it is
reached is acquired whole, because the response carries whole log batches anyway and the member can
then settle one as a unit (KIP-1206 «batch_optimized»). For the same reason unseen records may
exceed the number of locks, to complete the log batch in which it is reached: a batch that is cut in
three is sent three times. Larger batches than ``completion_records_max`` and
``completion_bytes_max`` are cut. Both limits are hard if the member asks for that («record_limit»).

    log batches   |  0 ... 9  |  10 ... 19  |  20 ... 29  |
    records_max 12, locks 100  ------------->               0 to 19 are acquired
    records_max 20, locks 15   ------------->               0 to 19 are acquired, 5 above the limit
    the same, completion 9     -------->                    0 to 14 are acquired
    records_max 12, strict     ----->                       0 to 11 are acquired

One bad record can fail everything that is delivered with it, each time, until all of it is
archived. So records that were returned too often are *isolated*. From half of the delivery count
limit on, ever smaller portions of a log batch are delivered, each in a response of its own. The
last delivery of a record is of that record alone. With a limit of 10 and a batch of 512:

    delivery     1 to 5    6     7     8    9    10
    records        512    256   128   64   32    1

Records that a member released in a request that settled others are not isolated, because the member
has told the records to retry from the good ones. They are delivered with others until they reach
the limit or a lock of theirs ends.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from sharegroup.core.delivery.delivery import (
    Acquired,
    AcquireRequest,
    LogBatches,
    SharePartitionLimits,
)
from sharegroup.protocol_enums import AcquireMode

Range = tuple[int, int]

ISOLATED_FROM_MIN = 2
"""The lowest delivery count from which records are isolated, even if the limit is very low."""


def stretches(log: LogBatches) -> list[Range]:
    """Return the ranges that hold records; log batches without a gap between them are one range."""
    firsts, ends = log.firsts, log.ends
    if firsts and firsts[1:] == ends[:-1]:  # The usual case, without holes: one comparison in C.
        return [(firsts[0], ends[-1])]
    ranges: list[Range] = []
    for first, end in zip(firsts, ends, strict=True):
        if ranges and ranges[-1][1] == first:
            ranges[-1] = (ranges[-1][0], end)
        else:
            ranges.append((first, end))
    return ranges


def holes(log: LogBatches, found: list[Range]) -> list[Range]:
    """Return the ranges between the log's position and its end that no stretch covers."""
    reached, log_end = log.position, log.end
    between: list[Range] = []
    for first, end in found:
        if reached < first:
            between.append((reached, first))
        reached = max(reached, end)
    if reached < log_end:
        between.append((reached, log_end))
    return between


class AcquireBudget:
    """The number of records and locks that one acquire may still take, and where it must stop."""

    __slots__ = (
        "_isolated_from",
        "_limits",
        "_log",
        "_records_left",
        "_request",
        "isolating",
        "locks_left",
        "stop",
    )

    def __init__(
        self,
        log: LogBatches,
        request: AcquireRequest,
        *,
        locks_left: int,
        limits: SharePartitionLimits,
    ) -> None:
        self._log = log
        self._request = request
        self._records_left = request.records_max
        self._limits = limits
        # Kafka's rule: half of the limit, rounded up, and at least two.
        self._isolated_from = max(ISOLATED_FROM_MIN, (limits.delivery_count_max + 1) // 2)
        self.locks_left = locks_left
        self.stop = log.ends[-1]  # No offset from here on is taken.
        self.isolating = False  # Whether the records taken must be delivered alone.

    def take(self, first: int, end: int, suspicion: int = 0, *, unseen: bool = False) -> int:
        """Spend the budget on ``[first, end)`` and return the end of the granted range.

        It is ``first`` if nothing is granted. ``suspicion`` is how often the records were returned
        for an unknown reason. Only ``unseen`` records may exceed the locks.
        """
        if suspicion >= self._isolated_from and first < end:
            # A granted range can still be shortened here: the portion lowers `locks_left` and
            # `stop`.
            self._isolate(first, suspicion)
        end, reached = min(end, self.stop), first + self.locks_left
        if reached < end:
            # Without a lock left, no batch was begun that could be completed.
            end = self._completed(reached) if unseen and first < reached else reached
        if end <= first:
            return first
        # At 0 or below, the last log batch is being finished: `stop` limits it (KIP-1206).
        if 0 < self._records_left <= end - first:
            self.stop = self._border(first + self._records_left)
            end = min(end, self.stop)
        self._records_left -= end - first
        self.locks_left -= end - first
        return end

    def _completed(self, reached: int) -> int:
        """Return the offset at which an acquire ends that has no lock left at ``reached``."""
        end = self._border(reached)
        if end == reached:
            return end
        first = self._log.firsts[bisect_right(self._log.firsts, reached - 1) - 1]
        is_larger = (
            end - first > self._limits.completion_records_max
            or self._log.size_of(first) > self._limits.completion_bytes_max
        )
        return reached if is_larger else end

    def _border(self, reached: int) -> int:
        """Return the offset at which an acquire ends that has all its records at ``reached``."""
        if self._request.mode is AcquireMode.RECORD_LIMIT:
            return reached
        # The batch of the last record that was asked for: `reached` itself may be the first of the
        # next batch.
        return self._log.ends[bisect_right(self._log.firsts, reached - 1) - 1]

    def _isolate(self, first: int, suspicion: int) -> None:
        """Limit the acquire to a portion of suspicious records; a later acquire takes the rest."""
        is_last_delivery = suspicion + 1 >= self._limits.delivery_count_max
        taken_before = self._records_left < self._request.records_max
        # Records taken before would fail with the suspicious ones, so the acquire ends in front of
        # them.
        if taken_before and (is_last_delivery or not self.isolating):
            self.stop = min(self.stop, first)
        # A further suspect needs no portion of its own: it fits into that of the first or is left
        # for a later acquire.
        elif not self.isolating:
            unit_first, unit_end = self._unit(first)
            # Each further delivery halves the portion, as in Kafka, until one record is left.
            halvings = suspicion - self._isolated_from + 1
            portion = 1 if is_last_delivery else max(1, (unit_end - unit_first) >> halvings)
            self.locks_left = min(self.locks_left, portion)
            self.stop = min(self.stop, unit_end)
        self.isolating = True

    def _unit(self, offset: int) -> Range:
        """Return the log batches from ``offset`` on that the member would settle together."""
        firsts, ends = self._log.firsts, self._log.ends
        index = bisect_right(firsts, offset) - 1
        first = firsts[index]
        last = bisect_left(ends, first + self._request.batch_records, index)
        return first, ends[min(last, len(ends) - 1)]


def entries(
    taken: Iterable[Acquired], log: LogBatches, request: AcquireRequest
) -> tuple[Acquired, ...]:
    """Return the ranges for the response: joined if delivery counts are equal, then cut into units.

    With the mode RECORD_LIMIT nothing is cut, because such a member does not work by the log batch.
    """
    joined = _joined(taken)
    if request.mode is AcquireMode.RECORD_LIMIT:
        return tuple(joined)
    # BatchSize is the client's number. With 0, `_cut` would yield empty pieces without end.
    batch_records = max(1, request.batch_records)
    return tuple(
        piece for acquired in joined for piece in _cut(acquired, log, batch_records=batch_records)
    )


def _joined(taken: Iterable[Acquired]) -> list[Acquired]:
    joined: list[Acquired] = []
    for acquired in taken:
        if joined:
            last = joined[-1]
            # Released and expired runs lie apart in the map; a member gets neighbours with one
            # count as one range (spec fetch-31).
            if last.end == acquired.first and last.delivery_count == acquired.delivery_count:
                joined[-1] = last._replace(end=acquired.end)
                continue
        joined.append(acquired)
    return joined


def _cut(acquired: Acquired, log: LogBatches, *, batch_records: int) -> Iterator[Acquired]:
    """Cut at the next log batch as soon as the piece has at least ``batch_records`` records."""
    first, end, delivery_count = acquired
    while end - first > batch_records:
        index = bisect_left(log.firsts, first + batch_records)
        if index == len(log.firsts) or log.firsts[index] >= end:
            break
        border = log.firsts[index]
        yield Acquired(first, border, delivery_count)
        first = border
    yield Acquired(first, end, delivery_count)
