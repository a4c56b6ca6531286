"""Decodes records that the compiled codec refuses although Java's does not.

The codec of `records` takes only names of headers in UTF-8 and attributes of records below 128.
The decoder here reads what Java's `DefaultRecord.readFrom` reads, field by field: attributes are
any byte, numbers have up to five or ten bytes of which surplus bits are dropped, and a negative
size means null.  It takes some microseconds for each record, and is used only for a batch that the
codec has refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sharegroup.errors import CorruptMessage
from sharegroup.wire.batches.batches import NO_TIMESTAMP, BatchHeader, Buffer
from sharegroup.wire.batches.header_names import Header, header_name

INT_BITS, LONG_BITS = 32, 64
INT_BYTES_MAX, LONG_BYTES_MAX = 5, 10  # 32 and 64 bits in groups of 7.


class OddRecord(NamedTuple):
    """A record with the attributes of `records.DecodedRecord`."""

    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: list[Header]


def decode(body: Buffer, header: BatchHeader, count: int) -> Iterator[OddRecord]:
    """Yield the ``count`` records in ``body``; CorruptMessage for what Java refuses, too."""
    position = 0
    with memoryview(body) as view:
        for number in range(count):
            try:
                record, position = _record(view, position, header)
            except (CorruptMessage, IndexError) as error:
                text = str(error) or "its end is missing"
                raise CorruptMessage(f"record {number} of {count}: {text}") from error
            yield record
        if position != len(view):
            raise CorruptMessage(f"{count} records end at byte {position} of {len(view)}")


def _record(view: memoryview, position: int, header: BatchHeader) -> tuple[OddRecord, int]:
    size, position = number(view, position, INT_BYTES_MAX, INT_BITS)
    end = position + size
    if end > len(view):
        raise CorruptMessage(f"it has {size} bytes, but {len(view) - position} are left")
    time_delta, position = number(view, position + 1, LONG_BYTES_MAX, LONG_BITS)
    offset_delta, position = number(view, position, INT_BYTES_MAX, INT_BITS)
    key, position = _content(view, position)
    value, position = _content(view, position)
    count, position = number(view, position, INT_BYTES_MAX, INT_BITS)
    # The limit of `DefaultRecord.readFrom`; it also bounds the loop.
    if not 0 <= count <= len(view) - position:
        raise CorruptMessage(f"it has {count} headers")
    headers = []
    for _ in range(count):
        name, position = _content(view, position)
        if name is None:
            raise CorruptMessage("a header has no name")
        content, position = _content(view, position)
        headers.append((header_name(name), content))
    # Only here, as in `DefaultRecord.readFrom`, which lets a field reach beyond its record.
    if position != end:
        raise CorruptMessage(f"its fields end at byte {position}, not at {end}")
    # A Java long wraps around, and so does the sum in `DefaultRecord.readFrom`.
    timestamp = signed(header.first_timestamp + time_delta, LONG_BITS)
    if header.has_log_append_time:
        timestamp = header.max_timestamp
    shown_time = None if timestamp == NO_TIMESTAMP else timestamp
    return OddRecord(header.base_offset + offset_delta, shown_time, key, value, headers), end


def _content(view: memoryview, position: int) -> tuple[bytes | None, int]:
    size, position = number(view, position, INT_BYTES_MAX, INT_BITS)
    if size < 0:
        return None, position
    end = position + size
    if end > len(view):
        raise CorruptMessage(f"a field has {size} bytes, but {len(view) - position} are left")
    return bytes(view[position:end]), end


def number(view: Buffer, position: int, bytes_max: int, bits: int) -> tuple[int, int]:
    """Return the zigzag number at ``position`` and the position behind it.

    Raises IndexError at the end of the bytes.
    """
    value = 0
    for index in range(bytes_max):
        octet = view[position + index]
        value |= (octet & 0x7F) << 7 * index
        if octet < 0x80:
            value &= (1 << bits) - 1
            return (value >> 1) ^ -(value & 1), position + index + 1
    raise CorruptMessage(f"a number at byte {position} has more than {bytes_max} bytes")


def signed(number: int, bits: int) -> int:
    """Return the number that Java has after an overflow of its ``bits`` bits."""
    half = 1 << bits - 1
    return (number + half) % (1 << bits) - half
