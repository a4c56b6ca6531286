"""Finds records of a log by timestamp.

Timestamps need not ascend.  A lookup finds the first record, by offset, with at least the given
timestamp.  It skips segments whose largest timestamp is smaller.  In the next segment the time
index gives the batch up to which all timestamps are smaller.  From there on the lookup compares the
largest timestamp in each batch header.  It decodes only the batch that must hold the record.

A header may have a timestamp that none of its records has, and unreadable batches are skipped, so
one lookup can take much work.  It is cut into pieces (`wire.batches.record_walk`), and an
`Allowance` bounds the bytes that the lookups of one request decode.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sharegroup.errors import CorruptMessage, KafkaStorageError, RequestTimedOut
from sharegroup.storage.segment.batch_scan import PlacedBatch
from sharegroup.storage.segment.segment import NO_TIMESTAMP, Segment
from sharegroup.wire.batches.batches import UNREADABLE, parse_header
from sharegroup.wire.batches.record_walk import (
    SMALL_BYTES,
    TimestampAndOffset,
    Walk,
    WalkStep,
    body_of,
    first_record_from,
    small_records,
)
from sharegroup.wire.batches.records import DecodedRecord

log = logging.getLogger(__name__)

SLICE_HEADERS = 500
"""Number of batch headers between two pauses, which take about a millisecond."""


class Allowance:
    """The bytes of records that the lookups of one request may decode.

    ``bytes_max`` also bounds one batch.  Once that many bytes were decoded, no other lookup begins.
    A lookup that has begun continues, because a repeated one would get no further.
    """

    __slots__ = ("_left", "bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._left = bytes_max

    def check(self) -> None:
        """Raise RequestTimedOut if the lookups so far have used up the bytes."""
        if self._left <= 0:
            raise RequestTimedOut(
                f"the lookups of this request have decoded {self.bytes_max} bytes of records, "
                "which is the limit (sharegroup.decompressed.max.bytes); send another request for "
                "the rest"
            )

    def spend(self, byte_count: int) -> None:
        """Count decoded bytes; `check` fails once the allowance is used up."""
        self._left -= byte_count


class LogTimes(NamedTuple):
    """Lookups by timestamp in the current state of one log."""

    log: object
    """The log; its ``str`` names it in errors."""
    segments: tuple[Segment, ...]
    start: int
    end: int
    durable_max: int
    """The largest timestamp of the last segment's durable part."""

    def first_not_older(
        self, timestamp_ms: int, allowance: Allowance
    ) -> Walk[TimestampAndOffset | None]:
        """Find the first record of ``[start, end)`` with at least this timestamp, in pieces."""
        allowance.check()
        headers = 0
        try:
            for segment in self._candidates(timestamp_ms):
                for batch in _batches_from(segment, timestamp_ms):
                    headers += 1
                    if headers % SLICE_HEADERS == 0:
                        yield WalkStep.PAUSE
                    if batch.base_offset >= self.end:
                        return None
                    if batch.max_timestamp >= timestamp_ms and batch.end_offset > self.start:
                        record = yield from _record(
                            segment, batch, timestamp_ms, self.start, allowance
                        )
                        if record is not None:
                            return record
        except OSError as error:
            raise self._failed(timestamp_ms, error) from error
        return None

    def latest(self, allowance: Allowance) -> Walk[TimestampAndOffset | None]:
        """Find the first record with the largest timestamp, in pieces; None if there is none."""
        visible = [
            segment.max_timestamp for segment in self.segments if segment.end_offset <= self.end
        ]
        # The last segment may have records that are not durable yet, so of it only `durable_max`
        # counts.
        largest = max(visible, default=NO_TIMESTAMP)
        largest = max(largest, self.durable_max)
        if largest == NO_TIMESTAMP:
            return None
        return (yield from self.first_not_older(largest, allowance))

    def start_not_older(self, timestamp_ms: int) -> int | None:
        """Return the start offset for a group that reads from a timestamp on.

        That is the offset of the first record with at least this timestamp, or None if there is
        none. For a large batch, which would have to be decoded in pieces, it is the batch's offset.
        """
        try:
            for segment in self._candidates(timestamp_ms):
                for batch in _batches_from(segment, timestamp_ms):
                    if batch.base_offset >= self.end:
                        return None
                    if batch.max_timestamp < timestamp_ms or batch.end_offset <= self.start:
                        continue
                    records = _small(segment, batch)
                    if records is None:
                        return max(batch.base_offset, self.start)
                    record = _first_of(records, timestamp_ms, self.start)
                    if record is not None:
                        return record.offset
        except OSError as error:
            raise self._failed(timestamp_ms, error) from error
        return None

    def _candidates(self, timestamp_ms: int) -> Iterator[Segment]:
        for segment in self.segments:
            if segment.end_offset > self.start and segment.max_timestamp >= timestamp_ms:
                yield segment

    def _failed(self, timestamp_ms: int, error: OSError) -> KafkaStorageError:
        return KafkaStorageError(f"{self.log} timestamp={timestamp_ms}: {error}")


def _batches_from(segment: Segment, timestamp_ms: int) -> Iterator[PlacedBatch]:
    """Iterate over the batches of the segment, skipping most batches with smaller timestamps."""
    entry = segment.time_index.floor(timestamp_ms)
    if entry is None:
        return segment.headers(0)
    # The time index leads to an offset; only the offset index knows positions.
    position = segment.index.floor(entry.value)
    return segment.headers(0 if position is None else position.value)


def _record(
    segment: Segment, batch: PlacedBatch, timestamp_ms: int, start: int, allowance: Allowance
) -> Walk[TimestampAndOffset | None]:
    """Find the record in the batch; None if it has none or cannot be read."""
    records = _small(segment, batch)
    if records is not None:
        return _first_of(records, timestamp_ms, start)
    yield WalkStep.BEGIN
    record = None
    try:
        if batch.size > allowance.bytes_max:  # Its length may be damage.
            raise CorruptMessage(
                f"expected a batch of {allowance.bytes_max} bytes or less, found {batch.size}"
            )
        data = segment.log.read(batch.size, batch.position)
        header = parse_header(data)
        body = yield from body_of(data, header, bytes_max=allowance.bytes_max)
        allowance.spend(len(body))
        record = yield from first_record_from(body, header, timestamp_ms=timestamp_ms, start=start)
    except UNREADABLE as error:
        # It may have cost as much before it turned out to be unreadable.
        allowance.spend(allowance.bytes_max)
        log.warning(
            "event=batch_skipped file=%s offset=%d reason='a lookup by timestamp cannot read it' "
            "error=%r",
            segment.log.path,
            batch.base_offset,
            str(error),
        )
    yield WalkStep.END
    return record


def _small(segment: Segment, batch: PlacedBatch) -> list[DecodedRecord] | None:
    """Return the records of a batch, or None if decoding it may take long."""
    if batch.size > SMALL_BYTES:
        return None
    data = segment.log.read(batch.size, batch.position)
    return small_records(data, parse_header(data))


def _first_of(
    records: Sequence[DecodedRecord], timestamp_ms: int, start: int
) -> TimestampAndOffset | None:
    for record in records:
        timestamp = record.timestamp
        if timestamp is not None and timestamp >= timestamp_ms and record.offset >= start:
            return TimestampAndOffset(timestamp, record.offset)
    return None
