"""Which old segments of a log need not be kept.

A log keeps whole segments.  The oldest goes while it is *too old* (its newest record is older
than the time that records are kept) or *too much* (what lies behind it has the bytes that the
log keeps already); where neither holds, this one and all behind it stay.

    retention by size      [ goes ][ goes ][ kept  ][ kept  ][ active ]
                                           |------ at least this much |

The active segment may go too: a log that nobody writes to any more becomes empty.  Nothing at
or above the high watermark goes.

Where records carry no timestamp, the time of the last append counts, or after a restart the
time of the start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sharegroup.storage.segment import NO_TIMESTAMP, Segment


class Retention(NamedTuple):
    """How much of a log is kept; None: no such limit."""

    ms: int | None = None
    bytes: int | None = None


def retained_from(
    segments: Sequence[Segment], retention: Retention, *, now_ms: int, high_watermark: int
) -> int | None:
    """The offset from which on the log is kept; None where all of it is."""
    surplus = 0
    if retention.bytes is not None:
        surplus = sum(segment.size for segment in segments) - retention.bytes
    kept_from = None
    for segment in segments:
        too_much = retention.bytes is not None and segment.size <= surplus
        too_old = retention.ms is not None and now_ms - newest_ms(segment) > retention.ms
        if not (too_old or too_much) or segment.end_offset > high_watermark or not segment.size:
            break
        surplus -= segment.size
        kept_from = segment.end_offset
    return kept_from


def newest_ms(segment: Segment) -> int:
    """The time of the segment's newest record."""
    if segment.max_timestamp == NO_TIMESTAMP:
        return segment.touched_ms
    return segment.max_timestamp
