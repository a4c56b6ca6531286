"""The keys and values of all records in many small batches.

A coordinator writes a record, or a few, in a batch of their own, and reads a million of them at
start. An uncompressed batch of one record is decoded by hand here, in a microsecond. All others,
and all unusual ones, are left to `records`.

    header        record: length  attributes  time delta  offset delta  key  value  headers
    61 bytes      varint          0           0           0             varint and bytes, each  0
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from sharegroup.wire.batches.batches import (
    CODEC_MASK,
    CONTROL,
    HEADER_BYTES,
    LENGTH_END,
    TRANSACTIONAL,
    parse_header,
)

if TYPE_CHECKING:
    # Imported with the first marker.
    from sharegroup.wire.batches.markers import TransactionMarker

KeyedRecord = tuple[int, bytes, bytes | None]
"""Offset, key and value."""


class TransactionalBatch(NamedTuple):
    """A batch of a producer's transaction: records, or the marker that ends it."""

    producer_id: int
    records: list[KeyedRecord]
    marker: TransactionMarker | None


_NEEDED = Struct(">qi9xh34xi")
"""The format of base offset, length, attributes and record count in a batch header."""
assert _NEEDED.size == HEADER_BYTES

_PLAIN = b"\0\0\0"
"""Attributes, time delta and offset delta of the first record of a batch."""

_NO_HEADERS = 0


def keyed_records(
    data: bytes, transactional: Callable[[TransactionalBatch], None] | None = None
) -> Iterator[KeyedRecord]:
    """Iterate over records with a key of the whole batches in ``data``, without control batches.

    ``transactional`` is called with each transactional batch, in its place among the others; its
    records are not returned then.

    Raises CorruptMessage for an invalid batch or invalid records.
    """
    unpack, size, position = _NEEDED.unpack_from, len(data), 0
    while size - position >= HEADER_BYTES:
        base_offset, length, attributes, count = unpack(data, position)
        end = position + LENGTH_END + length
        # A batch that is cut off at the end, or a length with which the loop would not advance.
        if not position < end <= size:
            return
        lone = None
        # Before the fast way: the records count only once the marker of their transaction has come.
        if attributes & TRANSACTIONAL and transactional is not None:
            transactional(_transactional(data, position))
            position = end
            continue
        if count == 1 and not attributes & (CODEC_MASK | CONTROL):
            lone = _lone_record(data, position + HEADER_BYTES, end)
        if lone is not None:
            yield base_offset, *lone
        elif not attributes & CONTROL:
            # Imported at first use: the codec takes 15 ms, and coordinators write lone records.
            from sharegroup.wire.batches.records import batch_records

            for record in batch_records(data, position, parse_header(data, position)):
                if record.key is not None:
                    yield record.offset, bytes(record.key), record.value
        position = end


def _transactional(data: bytes, position: int) -> TransactionalBatch:
    # Imported at first use, like the codec above.
    from sharegroup.wire.batches.markers import decode_marker
    from sharegroup.wire.batches.records import batch_records

    header = parse_header(data, position)
    if header.is_control:
        batch = data[position : position + header.size]
        return TransactionalBatch(header.producer_id, [], decode_marker(batch))
    records = [
        (record.offset, bytes(record.key), record.value)
        for record in batch_records(data, position, header)
        if record.key is not None
    ]
    return TransactionalBatch(header.producer_id, records, None)


def _lone_record(data: bytes, position: int, end: int) -> tuple[bytes, bytes | None] | None:
    """Return key and value of the record that fills ``[position, end)``; None if it is unusual."""
    try:
        while data[position] > 127:
            position += 1  # The record's length, which is known: it fills the rest.
        # The last byte of the length, attributes, time delta and offset delta.
        position += 4
        if data[position - 3 : position] != _PLAIN:
            return None
        key_length, position = _length(data, position)
        key_end = position + key_length
        value_length, value_start = _length(data, key_end)
        if value_length < 0:
            is_whole = value_start + 1 == end
            return (data[position:key_end], None) if is_whole and key_length >= 0 else None
        value_end = value_start + value_length
        if key_length < 0 or value_end + 1 != end or data[value_end] != _NO_HEADERS:
            return None
    except IndexError:
        return None
    return data[position:key_end], data[value_start:value_end]


def _length(data: bytes, position: int) -> tuple[int, int]:
    """Return a length of one byte or two, and the position behind it; -1 is null.

    Longer ones are decoded wrongly, so the caller finds that the record does not end with the
    batch.
    """
    low = data[position]
    if low <= 127:
        return (low >> 1) ^ -(low & 1), position + 1
    number = low - 128 + (data[position + 1] << 7)
    return (number >> 1) ^ -(number & 1), position + 2
