"""Walks over the records of a batch field by field, in slices, without an object for each record.

A batch of a few kilobytes can decompress to 64 MiB and hold millions of records. The walks here
read only the numbers that a question needs, and hop from record to record by the length::

    record   |length|attributes|time|offset|key length| key |value length| value |headers|
              ------------------------------------------------------------------------> next

A walk is a generator (`Walk`). It runs a limited piece of work, then yields what it needs next
(`WalkStep`), so an event loop can serve others in between. Its return value is the result. Batches
of up to `SMALL_BYTES` need no walk: the compiled codec decodes them at once (`small_records`).

`broker.load.record_jobs` runs walks on an event loop; `finish` runs one to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from enum import Enum
from functools import partial
from typing import NamedTuple, TypeVar

from sharegroup.errors import CorruptMessage, KafkaError
from sharegroup.wire.batches.batches import HEADER_BYTES, NO_TIMESTAMP, BatchHeader, Buffer
from sharegroup.wire.batches.compression import NONE, TooLarge, decompress
from sharegroup.wire.batches.odd_records import LONG_BITS, signed
from sharegroup.wire.batches.records import DecodedRecord, batch_records

T = TypeVar("T")

SLICE_RECORDS = 1_000
"""Number of records between two yields: about a millisecond."""

SMALL_BYTES = 64 * 1024
"""Size of decompressed records that the compiled codec decodes at once.

10,000 records take 2 ms, 32,000 headers take 3 ms.
"""

STREAM_BYTES_MAX = 512 * 1024 * 1024
"""Decompressed bytes of one batch that are checked: half a second in a thread."""

LONG_BYTES_MAX = 10  # 64 bits in groups of 7.
INT_BYTES_MAX = 5  # As in Java, which refuses a longer number of 32 bits.
TIME_AND_OFFSET = (0, 1)
"""The two numbers before a record's key."""
NO_DELTA_MIN, NO_DELTA_MAX = -(2**64), 2**64
"""Below and above every difference of timestamps."""


class WalkStep(Enum):
    """A step that a walk asks its runner for before it continues."""

    PAUSE = "let others run"
    BEGIN = "wait until no other walk holds a large batch"
    END = "the large batch is released"


Work = Callable[[], Buffer]
"""A call that takes long and does not need the interpreter lock, so it may run in a thread."""

Walk = Generator[WalkStep | Work, Buffer | None, T]


class TimestampAndOffset(NamedTuple):
    """A record that a search has found."""

    timestamp: int
    offset: int


def finish(walk: Walk[T]) -> T:
    """Run a walk to its end without a pause; return its result."""
    sent: Buffer | None = None
    failure: Exception | None = None
    while True:
        try:
            # The walk gets the errors of its work, because it may handle one, for example
            # `TooLarge`.
            step = walk.send(sent) if failure is None else walk.throw(failure)
        except StopIteration as end:
            answer: T = end.value
            return answer
        sent = failure = None
        try:
            if not isinstance(step, WalkStep):
                sent = step()
        except KafkaError as error:
            failure = error


def body_of(batch: Buffer, header: BatchHeader, *, bytes_max: int) -> Walk[Buffer]:
    """Return the decompressed records of a batch; raises CorruptMessage if they are damaged."""
    body = memoryview(batch)[HEADER_BYTES : header.size]
    if header.codec == NONE:
        return body
    decompressed = yield partial(decompress, header.codec, body, bytes_max=bytes_max)
    assert decompressed is not None, "the work of a step was not done"
    return decompressed


def small_records(batch: Buffer, header: BatchHeader) -> list[DecodedRecord] | None:
    """Return the records of a batch; None if it is large or cannot be decoded."""
    if header.size > SMALL_BYTES:
        return None
    try:
        return batch_records(batch, 0, header, decompressed_bytes_max=SMALL_BYTES)
    except CorruptMessage:
        return None  # Damaged, or large after decompression: a walk finds out which.


def first_record_from(
    body: Buffer, header: BatchHeader, *, timestamp_ms: int, start: int
) -> Walk[TimestampAndOffset | None]:
    """Return the first record of the batch, from offset ``start`` on, that is not older.

    Raises CorruptMessage if the batch ends before such a record is found.
    """
    # As a difference, so the hot loop compares without an addition for each record.
    delta_min = timestamp_ms - header.first_timestamp
    if header.has_log_append_time:
        # All records of such a batch have one time: the first one is a hit, or none is.
        delta_min = NO_DELTA_MIN if header.max_timestamp >= timestamp_ms else NO_DELTA_MAX
    position = index = 0
    while index < header.record_count:
        stop = min(index + SLICE_RECORDS, header.record_count)
        position, time_delta, offset_delta = _slice_from(
            body, position, stop - index, delta_min=delta_min, offset_min=start - header.base_offset
        )
        if offset_delta is not None:
            timestamp = signed(header.first_timestamp + time_delta, LONG_BITS)
            if header.has_log_append_time:
                timestamp = header.max_timestamp
            return TimestampAndOffset(timestamp, header.base_offset + offset_delta)
        index = stop
        yield WalkStep.PAUSE
    return None


def _slice_from(
    body: Buffer, position: int, count: int, *, delta_min: int, offset_min: int
) -> tuple[int, int, int | None]:
    """Search ``count`` records; return the position reached, and time and offset of a hit.

    A hot loop; numbers of one byte or two are read in place.
    """
    try:
        for _ in range(count):
            octet = body[position]
            if octet < 0x80:
                length, begin = octet, position + 1
            elif (second := body[position + 1]) < 0x80:
                length, begin = octet & 0x7F | second << 7, position + 2
            else:
                length, begin = read_number(body, position)
            # An odd zigzag number is negative; with 0 the walk would not advance.
            if length & 1 or not length:
                raise CorruptMessage(f"record of zero or negative length at byte {position}")
            position = begin + (length >> 1)
            octet = body[begin + 1]
            if octet < 0x80:
                delta, at = octet, begin + 2
            elif (second := body[begin + 2]) < 0x80:
                delta, at = octet & 0x7F | second << 7, begin + 3
            else:
                delta, at = read_number(body, begin + 1)
            delta = (delta >> 1) ^ -(delta & 1)
            if delta >= delta_min:
                offset_delta = read_varint(body, at)[0]
                if offset_delta >= offset_min:
                    return position, delta, offset_delta
    except IndexError:
        raise CorruptMessage(f"the records end at byte {len(body)}, within a record") from None
    return position, 0, None


def every_record_has_a_key(body: Buffer, header: BatchHeader) -> Walk[bool]:
    """Return whether all records of the batch have a key; CorruptMessage if they are damaged."""
    position = index = 0
    while index < header.record_count:
        stop = min(index + SLICE_RECORDS, header.record_count)
        position, have_keys = _slice_keys(body, position, stop - index)
        if not have_keys:
            return False
        index = stop
        yield WalkStep.PAUSE
    if position != len(body):
        raise CorruptMessage(f"{header.record_count} records end at {position} of {len(body)}")
    return True


def _slice_keys(body: Buffer, position: int, count: int) -> tuple[int, bool]:
    """Search ``count`` records; return the position reached, and whether all have a key.

    A hot loop; numbers of one byte or two are read in place.
    """
    try:
        for _ in range(count):
            octet = body[position]
            if octet < 0x80:
                length, begin = octet, position + 1
            elif (second := body[position + 1]) < 0x80:
                length, begin = octet & 0x7F | second << 7, position + 2
            else:
                length, begin = read_number(body, position)
            # An odd zigzag number is negative; with 0 the walk would not advance.
            if length & 1 or not length:
                raise CorruptMessage(f"record of zero or negative length at byte {position}")
            position = begin + (length >> 1)
            at = begin + 1
            for _ in TIME_AND_OFFSET:
                if body[at] < 0x80:
                    at += 1
                elif body[at + 1] < 0x80:
                    at += 2
                else:
                    at = read_number(body, at)[1]
            octet = body[at]
            # An odd zigzag number is negative, and a negative length of a key is null.
            if octet & 1 and (octet < 0x80 or read_varint(body, at)[0] < 0):
                return position, False
    except IndexError:
        raise CorruptMessage(f"the records end at byte {len(body)}, within a record") from None
    return position, True


def check_batch(batch: Buffer, header: BatchHeader, *, bytes_max: int) -> Walk[None]:
    """Check the records of a batch as `check_records` does, also if they exceed ``bytes_max``.

    Of a batch that large `STREAM_BYTES_MAX` are checked. A record above ``bytes_max`` is skipped.
    """
    body: Buffer | None
    try:
        body = yield from body_of(batch, header, bytes_max=bytes_max)
    except TooLarge:
        body = None  # The error holds the buffers that were too small, so the handler ends here.
    if body is None:
        yield from _check_stream(memoryview(batch), header, bytes_max)
    else:
        yield from check_records(body, header)


def _check_stream(batch: memoryview, header: BatchHeader, record_bytes_max: int) -> Walk[None]:
    # Imported here because few brokers ever read such a batch.
    from sharegroup.wire.batches.compression_streams import pieces
    from sharegroup.wire.batches.record_pieces import RecordCutter, WholeRecords

    stream = pieces(header.codec, batch[HEADER_BYTES : header.size])
    cutter = RecordCutter(header, record_bytes_max)
    total, last_delta = 0, -1
    # A piece may be empty, for example of an empty member of gzip: only None is the end.
    while (piece := (yield partial(next, stream, None))) is not None:
        # A whole piece would hold the event loop for too long.
        for start in range(0, len(piece), SMALL_BYTES):
            for cut in cutter.feed(memoryview(piece)[start : start + SMALL_BYTES]):
                if isinstance(cut, WholeRecords):
                    part = header._replace(record_count=cut.record_count)
                    last_delta = yield from check_records(cut.body, part, after=last_delta)
                    continue
                # A record that is skipped has an offset, too, as in `check_records`.
                delta = cut.first - header.base_offset
                if not last_delta < delta <= header.last_offset_delta:
                    raise CorruptMessage(f"a record has offset delta {delta} after {last_delta}")
                last_delta = delta
            yield WalkStep.PAUSE
        total += len(piece)
        # What follows is accepted unchecked: this is the limit of one check (ADR 0033).
        if total > STREAM_BYTES_MAX:
            return
    cutter.finish()


def check_records(body: Buffer, header: BatchHeader, *, after: int = -1) -> Walk[int]:
    """Read every field of every record; raise CorruptMessage if one cannot be delivered.

    Offsets have to ascend within the batch, because acknowledgements name records by offset. The
    first offset delta is above ``after``; returns the last one.
    """
    position, last_delta, fields = 0, after, 0
    for number in range(header.record_count):
        length, begin = read_int(body, position)
        end = begin + length
        if length < 1 or end > len(body):
            raise CorruptMessage(f"record {number} of {length} bytes at byte {position}")
        at = read_varint(body, begin + 1)[1]
        delta, at = read_int(body, at)
        # Two records of one offset could not be acknowledged apart, and an offset behind the batch
        # would belong to another one.
        if not last_delta < delta <= header.last_offset_delta:
            raise CorruptMessage(f"record {number} has offset delta {delta} after {last_delta}")
        at = _behind(body, _behind(body, at, end), end)
        headers, at = read_int(body, at)
        for _ in range(headers):
            at = _behind_header(body, at, end)
            fields += 1
            # Headers count like records, because one record may have a million of them.
            if fields % SLICE_RECORDS == 0:
                yield WalkStep.PAUSE
        if headers < 0 or at != end:
            raise CorruptMessage(f"record {number} ends at byte {at}, not {end}")
        position, last_delta, fields = end, delta, fields + 1
        if fields % SLICE_RECORDS == 0:
            yield WalkStep.PAUSE
    if position != len(body):
        raise CorruptMessage(f"{header.record_count} records end at {position} of {len(body)}")
    return last_delta


def places_of_records(body: Buffer, header: BatchHeader) -> Walk[dict[int, tuple[int, int]]]:
    """Return the first position and the end of each record of the batch, by its offset."""
    places: dict[int, tuple[int, int]] = {}
    position = 0
    for number in range(1, header.record_count + 1):
        length, begin = read_int(body, position)
        end = begin + length
        if length < 1 or end > len(body):
            raise CorruptMessage(f"record {number} of {length} bytes at byte {position}")
        delta = read_int(body, read_varint(body, begin + 1)[1])[0]
        places[header.base_offset + delta] = position, end
        position = end
        if number % SLICE_RECORDS == 0:
            yield WalkStep.PAUSE
    return places


def header_count(body: Buffer, place: tuple[int, int]) -> int:
    """Return the number of headers that the record claims."""
    position, end = place
    at = read_int(body, position)[1] + 1
    at = read_int(body, read_varint(body, at)[1])[1]
    return read_int(body, _behind(body, _behind(body, at, end), end))[0]


def _behind(body: Buffer, position: int, end: int) -> int:
    """Return the position behind a key or a value."""
    length, at = read_int(body, position)
    at += max(0, length)
    if at > end:
        raise CorruptMessage(f"field of {length} bytes at byte {position}")
    return at


def _behind_header(body: Buffer, position: int, end: int) -> int:
    length, at = read_int(body, position)
    if not 0 <= length <= end - at:
        raise CorruptMessage(f"header name of {length} bytes at byte {position}")
    return _behind(body, at + length, end)


def read_varint(body: Buffer, position: int) -> tuple[int, int]:
    """Return the zigzag number of variable length at ``position``, and the position behind it."""
    number, position = read_number(body, position)
    return (number >> 1) ^ -(number & 1), position


def read_int(body: Buffer, position: int) -> tuple[int, int]:
    """Return a number of 32 bits like `read_varint`; surplus bits are dropped, as in Java."""
    number, position = read_number(body, position, INT_BYTES_MAX)
    number &= 0xFFFFFFFF
    return (number >> 1) ^ -(number & 1), position


def read_number(body: Buffer, position: int, bytes_max: int = LONG_BYTES_MAX) -> tuple[int, int]:
    """Return the unsigned number of variable length at ``position``, and the position behind it."""
    number = 0
    try:
        for count in range(bytes_max):
            octet = body[position + count]
            number |= (octet & 0x7F) << (7 * count)
            if octet < 0x80:
                return number, position + count + 1
    except IndexError:
        pass
    raise CorruptMessage(
        f"expected a number of at most {bytes_max} bytes at byte {position} of the records"
    )


# Walks that find the records for which a broker refuses a whole batch, to name them (KIP-467). They
# run only after the batch was refused, so they need not be fast.


FAULTS_MAX = 1_000
"""Records of a batch that are named; others are refused without being named."""


def records_without_key(body: Buffer, header: BatchHeader) -> Walk[list[int]]:
    """Return the positions in the batch of the first `FAULTS_MAX` records that have no key."""
    indexes: list[int] = []
    position = 0
    for index in range(header.record_count):
        length, begin = read_varint(body, position)
        _, at = read_varint(body, begin + 1)
        _, at = read_varint(body, at)
        if read_varint(body, at)[0] < 0:
            indexes.append(index)
            if len(indexes) == FAULTS_MAX:
                return indexes
        position = begin + length
        if index % SLICE_RECORDS == SLICE_RECORDS - 1:
            yield WalkStep.PAUSE
    return indexes


def records_out_of_time(
    body: Buffer, header: BatchHeader, *, earliest: int, latest: int
) -> Walk[list[tuple[int, int]]]:
    """Return position and timestamp of the first `FAULTS_MAX` records that are too old or new.

    A record without a timestamp is accepted.
    """
    faults: list[tuple[int, int]] = []
    position = 0
    for index in range(header.record_count):
        length, begin = read_varint(body, position)
        timestamp = signed(header.first_timestamp + read_varint(body, begin + 1)[0], LONG_BITS)
        if timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
            faults.append((index, timestamp))
            if len(faults) == FAULTS_MAX:
                return faults
        position = begin + length
        if index % SLICE_RECORDS == SLICE_RECORDS - 1:
            yield WalkStep.PAUSE
    return faults
