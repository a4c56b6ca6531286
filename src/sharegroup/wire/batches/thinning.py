"""Batches with fewer records than they were written with, as compaction leaves them.

A batch keeps its place when records are removed. Its base offset, last offset, producer, epoch and
sequence do not change. So the other records keep their offsets, and the producer's next batch still
follows. Removed records leave holes.

    offsets     40 41 42 43 44          40 .. 42 .. 44
    records     a  b  a  c  b     ──▶         a     b      base 40, last 44

Records are copied as bytes. Only a new delete horizon changes their timestamps, because it takes
the place of the batch's first timestamp, from which they are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from sharegroup.errors import CorruptMessage
from sharegroup.wire.batches.batches import (
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
from sharegroup.wire.batches.compression import DECOMPRESSED_BYTES_MAX, compress, decompress
from sharegroup.wire.batches.odd_records import LONG_BITS, signed
from sharegroup.wire.batches.record_walk import read_varint
from sharegroup.wire.varints import zigzag

_crc = Struct(">I")


def thinned(
    batch: Buffer, header: BatchHeader, kept: Sequence[bool], *, delete_horizon_ms: int | None
) -> bytearray:
    """Return the batch with the records for which ``kept`` is true; there must be one.

    ``delete_horizon_ms`` is a horizon to set; None leaves the current one.
    """
    body = decompress(
        header.codec, memoryview(batch)[HEADER_BYTES:], bytes_max=DECOMPRESSED_BYTES_MAX
    )
    first, attributes = header.first_timestamp, header.attributes
    if delete_horizon_ms is not None:
        # KIP-534: the horizon replaces the first timestamp, so the deltas of the records change.
        first, attributes = delete_horizon_ms, attributes | DELETE_HORIZON
    records, times = _records(body, kept, shift=header.first_timestamp - first)
    # Of the kept records alone, as Kafka's cleaner has it from its builder (MemoryRecords.java).
    latest = header.max_timestamp
    if not header.has_log_append_time:
        latest = max(signed(first + time, LONG_BITS) for time in times)
    # ``last_offset_delta`` stays, so the batch covers the same offsets, with holes.
    changed = header._replace(
        attributes=attributes,
        first_timestamp=first,
        max_timestamp=latest,
        record_count=len(times),
    )
    return _batch(changed, compress(header.codec, records))


def emptied(header: BatchHeader) -> bytearray:
    """Return the batch without records; it keeps its producer's last sequence and its end."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON)
    return _batch(header._replace(attributes=attributes, first_timestamp=-1, record_count=0), b"")


def _records(body: Buffer, kept: Sequence[bool], *, shift: int) -> tuple[bytes, list[int]]:
    """Return the kept records with ``shift`` added to their times, and these times."""
    parts: list[Buffer] = []
    times: list[int] = []
    position = 0
    with memoryview(body) as view:
        for is_kept in kept:
            length, begin = read_varint(view, position)
            end = begin + length
            if length < 1 or end > len(view):
                raise CorruptMessage(f"incomplete record of {length} bytes at byte {position}")
            if is_kept:
                delta, rest = read_varint(view, begin + 1)
                # Producers may send any delta.  As in Java, the sum is a number of 64 bits.
                delta = signed(delta + shift, LONG_BITS)
                times.append(delta)
                if shift:
                    record = bytes(view[begin : begin + 1]) + zigzag(delta)
                    record += view[rest:end]
                    parts += (zigzag(len(record)), record)
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
