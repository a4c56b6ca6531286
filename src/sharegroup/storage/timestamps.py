"""Finding a record by its timestamp.

Timestamps need not ascend.  The question is for the first record, by offset, that is not older
than a time.  A segment whose largest timestamp is older can't hold it; in the first one that
can, the time index says up to which batch all are older, and from there on batches are looked
at one after the other, by the largest timestamp in their headers.  Only the batch that must
hold the record is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sharegroup.storage.batch_scan import PlacedBatch
from sharegroup.storage.segment import Segment
from sharegroup.wire.records import decode_records


def first_not_older(
    segments: Sequence[Segment], timestamp_ms: int, *, start: int, end: int
) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record of ``[start, end)`` at or after that time."""
    for segment in segments:
        if segment.end_offset <= start or segment.max_timestamp < timestamp_ms:
            continue
        for batch in _batches_from(segment, timestamp_ms):
            if batch.base_offset >= end:
                return None
            if batch.max_timestamp >= timestamp_ms and batch.end_offset > start:
                found = _record(segment, batch, timestamp_ms, start=start)
                if found is not None:
                    return found
    return None


def _batches_from(segment: Segment, timestamp_ms: int) -> Iterator[PlacedBatch]:
    """The batches of the segment, without most of those that the index knows to be older."""
    seen = segment.time_index.floor(timestamp_ms)
    if seen is None:
        return segment.headers(0)
    position = segment.index.floor(seen.value)
    return segment.headers(0 if position is None else position.value)


def _record(
    segment: Segment, batch: PlacedBatch, timestamp_ms: int, *, start: int
) -> tuple[int, int] | None:
    for record in decode_records(segment.log.read(batch.size, batch.position)):
        timestamp = record.timestamp
        if timestamp is not None and timestamp >= timestamp_ms and record.offset >= start:
            return timestamp, record.offset
    return None
