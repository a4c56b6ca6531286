"""Iterates over the record batches of a segment by their headers alone.

A segment is a sequence of record batches (format version 2), each a 61-byte header and its records.
Stepping from one batch to the next needs only the header; the records are read on request.  There
are two separate checks.  A header is *plausible* if its fields are valid; this check is cheap and
gives the position of the next batch.  A batch is *whole* if its checksum matches.

No checksum covers the length in a header, and damage can make it gigabytes.  So code that reads a
large batch of a file into memory checks it first, in pieces (`is_whole_at`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

import crc32c

from sharegroup.ids import LEADER_EPOCH
from sharegroup.storage.disk.files import Buffer
from sharegroup.wire.batches.batches import (
    CHECKED_AT,
    CONTROL,
    CRC_AT,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    TRANSACTIONAL,
    Writable,
    stamp as stamp_batch,
)

_NEEDED = struct.Struct(">qi4xb4xhi8xqqhi4x")
"""Base offset, length, magic, attributes, last offset delta, largest timestamp, producer id,
producer epoch, base sequence: only the header fields that storage needs, because recovery and
cold reads unpack them for every batch."""
assert _NEEDED.size == HEADER_BYTES

_CRC = struct.Struct(">I")
_CHUNK_BYTES = 4096
_PIECE_BYTES = 1 << 20

Read = Callable[[int, int], bytes]
"""``read(size, position)``"""


class PlacedBatch(NamedTuple):
    """The header fields of a batch that storage needs, and its position in the segment."""

    position: int
    size: int
    base_offset: int
    end_offset: int
    attributes: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int

    @property
    def is_control(self) -> bool:
        """Whether this is a control batch: a marker, not records for consumers."""
        return self.attributes & CONTROL != 0

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return self.attributes & TRANSACTIONAL != 0

    @property
    def offset_count(self) -> int:
        """The number of offsets of the batch; compaction may have removed some of its records."""
        return self.end_offset - self.base_offset

    @property
    def end_position(self) -> int:
        """The position in the segment after the last byte of the batch."""
        return self.position + self.size


def header_of(batch: Buffer) -> PlacedBatch:
    """Return the header of a whole validated batch in memory, with position and offset 0.

    The base offset in the bytes is ignored: the log assigns it.
    """
    _, length, magic, attributes, last_offset_delta, *rest = _NEEDED.unpack_from(batch)
    size = length + LENGTH_END
    assert magic == MAGIC, "a batch must be validated before it is appended"
    assert last_offset_delta >= 0, "a batch must be validated before it is appended"
    assert size == len(batch), f"one batch of {size} bytes, got {len(batch)}"
    return PlacedBatch(0, size, 0, last_offset_delta + 1, attributes, *rest)


def placed_in(data: Buffer, *, position: int, limit: int) -> PlacedBatch | None:
    """Return the batch header at the start of ``data``, or None if it is not plausible.

    The batch begins at ``position`` of the segment and must end by ``limit``.
    """
    if len(data) < HEADER_BYTES:
        return None
    base_offset, length, magic, attributes, last_offset_delta, *rest = _NEEDED.unpack_from(data)
    size = length + LENGTH_END
    if magic != MAGIC or base_offset < 0 or last_offset_delta < 0:
        return None
    # A size of 0 or less would let `headers` stand still or go back.
    if size < HEADER_BYTES or position + size > limit:
        return None
    end_offset = base_offset + last_offset_delta + 1
    return PlacedBatch(position, size, base_offset, end_offset, attributes, *rest)


def header_at(read: Read, position: int, *, limit: int) -> PlacedBatch | None:
    """Return the batch at ``position``, or None if no plausible batch there ends by ``limit``."""
    return placed_in(read(HEADER_BYTES, position), position=position, limit=limit)


def headers(read: Read, position: int, *, limit: int) -> Iterator[PlacedBatch]:
    """Iterate over the batches from ``position`` to ``limit`` or the first implausible header."""
    chunks = ChunkReader(read)
    while position < limit:
        header = header_at(chunks.read, position, limit=limit)
        if header is None:
            return
        yield header
        position += header.size


class ChunkReader:
    """Reads small pieces that are close together with few system calls."""

    __slots__ = ("_chunk", "_position", "_read")

    def __init__(self, read: Read) -> None:
        self._read = read
        self._chunk = b""
        self._position = 0

    def read(self, size: int, position: int) -> bytes:
        """Return up to ``size`` bytes at ``position``; fewer only at the end of the file."""
        at = position - self._position
        if not 0 <= at <= len(self._chunk) - size:
            self._chunk, self._position, at = self._read(_CHUNK_BYTES, position), position, 0
        return self._chunk[at : at + size]


def stamp(batch: Writable, header: PlacedBatch, *, base_offset: int, position: int) -> PlacedBatch:
    """Write offset and leader epoch into the batch; return its header at its place in the log."""
    stamp_batch(batch, base_offset=base_offset, leader_epoch=LEADER_EPOCH)
    end_offset = base_offset + header.end_offset - header.base_offset
    # Positional, because this runs for every append and `_replace` takes twice as long.
    return PlacedBatch(position, header.size, base_offset, end_offset, *header[4:])


def is_whole(batch: Buffer) -> bool:
    """Return whether a batch matches its checksum, which does not cover the base offset."""
    view = memoryview(batch)
    if len(view) < HEADER_BYTES:
        return False
    (stored,) = _CRC.unpack_from(view, CRC_AT)
    return bool(crc32c.crc32c(view[CHECKED_AT:]) == stored)


def is_whole_at(read: Read, position: int, size: int) -> bool:
    """Return whether the batch of this size at ``position`` of a file matches its checksum.

    It is read in pieces, because a damaged length may claim gigabytes.
    """
    data = read(min(size, _PIECE_BYTES), position)
    if len(data) < HEADER_BYTES:
        return False
    (stored,) = _CRC.unpack_from(data, CRC_AT)
    crc, end, position = crc32c.crc32c(data[CHECKED_AT:]), position + size, position + len(data)
    while position < end and (data := read(min(end - position, _PIECE_BYTES), position)):
        crc, position = crc32c.crc32c(data, crc), position + len(data)
    # Fewer bytes than the header claims are damage, too: the file has become shorter.
    return position == end and crc == stored
