"""Decides which old segments of a log retention deletes.

Retention deletes whole segments, beginning with the oldest.  A segment is deleted if it is *too
old* (its newest record is older than the retention time) or *too much* (the segments behind it have
at least the bytes to keep).  The first segment that is neither ends the deletion.

    retention by size      [ old  ][ old  ][ kept  ][ kept  ][ active ]
                                           |------ at least this much |

The active segment may be deleted, too: a log without new records becomes empty.  Records at or
above the high watermark are never deleted.

If records have no timestamp, the time of the last append is used, or after a restart the time of
the start.  The same holds if the newest timestamp is further in the future than a producer may set
one.  Otherwise such records would be kept until that time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sharegroup.storage.segment.segment import NO_TIMESTAMP, Segment


class Retention(NamedTuple):
    """The retention limits of a log; None is no limit."""

    ms: int | None = None
    bytes: int | None = None
    ahead_ms_max: int | None = None
    """Timestamps further in the future than this are ignored."""


def retained_from(
    segments: Sequence[Segment], retention: Retention, *, now_ms: int, high_watermark: int
) -> int | None:
    """Return the offset from which on the log is kept, or None if all of it is kept."""
    surplus = 0
    if retention.bytes is not None:
        surplus = sum(segment.size for segment in segments) - retention.bytes
    kept_from = None
    for segment in segments:
        too_much = retention.bytes is not None and segment.size <= surplus
        too_old = retention.ms is not None and _age_ms(segment, retention, now_ms) > retention.ms
        # An empty segment is the active one, and there is nothing to delete.
        if not (too_old or too_much) or segment.end_offset > high_watermark or not segment.size:
            break
        surplus -= segment.size
        kept_from = segment.end_offset
    return kept_from


def _age_ms(segment: Segment, retention: Retention, now_ms: int) -> int:
    ahead_ms_max = retention.ahead_ms_max
    if ahead_ms_max is not None and segment.max_timestamp - now_ms > ahead_ms_max:
        return now_ms - segment.touched_ms
    return now_ms - newest_ms(segment)


def newest_ms(segment: Segment) -> int:
    """Return the largest timestamp of the segment, or the time of its last append without one."""
    if segment.max_timestamp == NO_TIMESTAMP:
        return segment.touched_ms
    return segment.max_timestamp
