"""Batches with fewer records than they were written with, as compaction leaves them.

A batch keeps its place when records go: base offset, last offset, producer, epoch and sequence
stay what they were, so the offsets of the other records do, and the producer's next batch still
follows.  What is left between two records is a hole.

    offsets     40 41 42 43 44          40 .. 42 .. 44
    records     a  b  a  c  b     ──▶         a     b      base 40, last 44

Records are taken over as the bytes that they are.  Only a new delete horizon, which stands where
the batch's first timestamp stood, has their timestamps counted from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from sharegroup.errors import CorruptMessage
from sharegroup.wire.batches import (
    CODEC_MASK,
    CRC_AT,
    DELETE_HORIZON,
    HEADER_BYTES,
    LENGTH_END,
    BatchHeader,
    Buffer,
    checksum,
    header_bytes,
)
from sharegroup.wire.compression import compress, decompress
from sharegroup.wire.records import DECOMPRESSED_BYTES_MAX

_crc = Struct(">I")
_NUMBER_BYTES_MAX = 10


def thinned(
    batch: Buffer, header: BatchHeader, kept: Sequence[bool], *, delete_horizon_ms: int | None
) -> bytearray:
    """The batch with those of its records for which ``kept`` is true, which must be some.

    ``delete_horizon_ms`` is a horizon to set; None leaves the one there is.
    """
    body = decompress(
        header.codec, memoryview(batch)[HEADER_BYTES:], bytes_max=DECOMPRESSED_BYTES_MAX
    )
    first, attributes = header.first_timestamp, header.attributes
    if delete_horizon_ms is not None:
        first, attributes = delete_horizon_ms, attributes | DELETE_HORIZON
    records, times = _records(body, kept, shift=header.first_timestamp - first)
    latest = header.max_timestamp if header.has_log_append_time else first + max(times)
    changed = header._replace(
        attributes=attributes,
        first_timestamp=first,
        max_timestamp=latest,
        record_count=len(times),
    )
    return _batch(changed, compress(header.codec, records))


def emptied(header: BatchHeader) -> bytearray:
    """The batch without a record: it still says what its producer wrote last, and ends where
    it ended."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON)
    return _batch(header._replace(attributes=attributes, first_timestamp=-1, record_count=0), b"")


def _records(body: Buffer, kept: Sequence[bool], *, shift: int) -> tuple[bytes, list[int]]:
    """The kept records with ``shift`` added to their times, and these times."""
    parts: list[Buffer] = []
    times: list[int] = []
    position = 0
    with memoryview(body) as view:
        for is_kept in kept:
            length, begin = _number(view, position)
            end = begin + length
            if length < 1 or end > len(view):
                raise CorruptMessage(f"record of {length} bytes at byte {position}, not whole")
            if is_kept:
                time, rest = _number(view, begin + 1)
                times.append(time + shift)
                if shift:
                    record = bytes(view[begin : begin + 1]) + _encoded(time + shift)
                    record += view[rest:end]
                    parts += (_encoded(len(record)), record)
                else:
                    parts.append(bytes(view[position:end]))
            position = end
    return b"".join(parts), times


def _batch(header: BatchHeader, records: bytes) -> bytearray:
    length = HEADER_BYTES - LENGTH_END + len(records)
    batch = bytearray(header_bytes(header._replace(length=length)) + records)
    whole = header._replace(length=length)
    _crc.pack_into(batch, CRC_AT, checksum(batch, 0, whole))
    return batch


def _number(view: memoryview, position: int) -> tuple[int, int]:
    """A zigzag number of variable length, and the position behind it."""
    value = 0
    for count in range(_NUMBER_BYTES_MAX):
        if position + count >= len(view):
            break
        byte = view[position + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position + count + 1
    raise CorruptMessage(f"expected a number at byte {position} of the records")


def _encoded(number: int) -> bytes:
    value = (number << 1) ^ (number >> 63)
    octets = bytearray()
    while value > 0x7F:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)
