"""Finds acquired offsets without a record: compacted, of control batches, or of cut-off batches.

The broker answers a fetch with whole log batches and the offset ranges that it acquired.  The two
need not match:

    batches   | 0 ... 4 | 5: control | 6 ... 9 |  (compacted away)  | 15 .. 19 | 20 .. (cut off)
    acquired    0 ........................................................................ 27
                          5: gap                 10 .. 14: gap                 20 .. 27: unknown

Missing offsets below the end of the last whole batch are gaps.  A member acknowledges them with
type 0, so the start offset can advance.  Offsets beyond it may have records in the batch that was
cut off at the byte limit; a gap would lose these records.  A member that decodes records
(`share`) releases them, because it cannot hand them out.  A member that only holds offsets, whose
records other processes read (`share_ranges`), holds them like all acquired offsets.
"""

from __future__ import annotations

from typing import NamedTuple

from sharegroup.client.share.session.offset_set import OffsetSet


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
