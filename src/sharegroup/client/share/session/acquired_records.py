"""Acquired records: a range of offsets that the broker locked for a member, in Kafka's words.

The broker names both ends of a range, as in `AcquiredRecords` of ShareFetch.  Arithmetic uses
half-open ranges: `AcquiredRecords.end_offset` is the offset after the last, and
`AcquiredRecords.of_range` makes one from ``[first, end)``.  The broker's core computes with such
ranges all the time, so it has a half-open type of its own (`core.delivery.delivery`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from sharegroup.client.share.session.offset_set import EMPTY, OffsetSet, Range
from sharegroup.ids import TopicIdPartition
from sharegroup.wire.batches.batches import Buffer

RECORDS_MAX = 2**31 - 1
"""The largest number of records that a request can name, used as no limit."""


class AcquiredRecords(NamedTuple):
    """Acquired offsets, the first and the last included, that have one delivery count."""

    first_offset: int
    last_offset: int
    delivery_count: int

    @staticmethod
    def of_range(first: int, end: int, delivery_count: int) -> AcquiredRecords:
        """Return the acquired records from ``first`` on, below ``end``."""
        return AcquiredRecords(first, end - 1, delivery_count)

    @property
    def end_offset(self) -> int:
        """The offset after the last."""
        return self.last_offset + 1

    @property
    def offset_count(self) -> int:
        """The number of offsets."""
        return self.last_offset + 1 - self.first_offset


class AcquiredBatches(NamedTuple):
    """The acquired ranges of a partition, and the log batches that came with them."""

    key: TopicIdPartition
    acquired: tuple[AcquiredRecords, ...]
    """The acquired ranges, ascending and disjoint; they need not end with the batches."""
    records: Buffer
    """Whole log batches, which may have more offsets than were acquired; empty if damaged."""
    first_offset: int
    """The first offset of the first batch; -1 without batches."""
    end_offset: int
    """The offset after the last batch; -1 without batches."""


def acquired_offsets(ranges: Iterable[AcquiredRecords]) -> OffsetSet:
    """Return the offsets of acquired records, without their delivery counts."""
    return OffsetSet.of((acquired.first_offset, acquired.end_offset) for acquired in ranges)


def joined_ranges(ranges: Iterable[AcquiredRecords]) -> tuple[AcquiredRecords, ...]:
    """Return the ranges ascending and disjoint, with neighbours of one delivery count joined.

    An offset in two ranges was locked, lost and locked again within one acquisition; its delivery
    count is that of the last delivery, which is the highest.
    """
    by_count: dict[int, list[Range]] = defaultdict(list)
    for acquired in ranges:
        by_count[acquired.delivery_count].append((acquired.first_offset, acquired.end_offset))
    joined: list[AcquiredRecords] = []
    counted = EMPTY
    for count in sorted(by_count, reverse=True):
        offsets = OffsetSet.of(by_count[count]) - counted
        joined += (AcquiredRecords.of_range(first, end, count) for first, end in offsets)
        counted |= offsets
    return tuple(sorted(joined))


# Acquired offsets without a record: compacted, of control batches, or of cut-off batches.
#
# The broker answers a fetch with whole log batches and the offset ranges that it acquired. The two
# need not match:
#
#     batches   | 0 ... 4 | 5: control | 6 ... 9 |  (compacted away)  | 15 .. 19 | 20 .. (cut off)
#     acquired    0 ........................................................................ 27
#                           5: gap                 10 .. 14: gap                 20 .. 27: unknown
#
# Missing offsets below the end of the last whole batch are gaps. A member acknowledges them with
# type 0, so the start offset can advance. Offsets beyond it may have records in the batch that was
# cut off at the byte limit; a gap would lose these records. A member that decodes records (`share`)
# releases them, because it cannot hand them out. A member that only holds offsets, whose records
# other processes read (`share_ranges`), holds them like all acquired offsets.


class Missing(NamedTuple):
    """Acquired offsets for which the answer had no record."""

    gaps: OffsetSet
    """Offsets without a record."""
    unknown: OffsetSet
    """Offsets beyond the last whole batch, which may have a record."""


def find_missing(acquired: OffsetSet, present: OffsetSet, batches_end: int) -> Missing:
    """Return the acquired offsets that are not ``present``.

    ``batches_end`` is the offset after the last whole batch; -1 if there is none.
    """
    missing = acquired - present
    return Missing(missing.between(0, batches_end), missing.from_offset(batches_end))
