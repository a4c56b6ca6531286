"""Walking the record batches of a segment by their headers alone.

A segment is nothing but record batches (format v2), each a 61-byte header and its records.
Walking from one to the next needs the header only; the records are read when somebody wants
them.  Two questions are kept apart: is this a *plausible* header (cheap, says where the next
batch begins), and is this batch *whole* (its checksum holds)?
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

import crc32c

from sharegroup.storage.files import Buffer
from sharegroup.wire.batches import (
    CHECKED_AT,
    CONTROL,
    CRC_AT,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    TRANSACTIONAL,
    Writable,
)
from sharegroup.wire.batches import stamp as stamp_batch

LEADER_EPOCH = 0
"""One broker, one leadership: the epoch never changes."""

_NEEDED = struct.Struct(">qi4xb4xhi8xqqhi4x")
"""base offset, length, magic, attributes, last offset delta, largest timestamp, producer id,
producer epoch, base sequence: the fields of the header that storage needs, and no others,
because recovery and cold reads unpack them for every batch"""
assert _NEEDED.size == HEADER_BYTES

_CRC = struct.Struct(">I")
_CHUNK_BYTES = 4096

Read = Callable[[int, int], bytes]
"""``read(size, position)``"""


class PlacedBatch(NamedTuple):
    """What storage needs to know of a batch, and where in its segment it lies."""

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
        """Whether it holds a marker and no records for consumers."""
        return self.attributes & CONTROL != 0

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction."""
        return self.attributes & TRANSACTIONAL != 0

    @property
    def offset_count(self) -> int:
        return self.end_offset - self.base_offset

    @property
    def end_position(self) -> int:
        return self.position + self.size


def header_of(batch: Buffer) -> PlacedBatch:
    """The header of a whole batch in memory, at position 0."""
    found = placed_in(batch, position=0, limit=len(batch))
    assert found is not None, "a batch must be validated before it is appended"
    assert found.size == len(batch), f"one batch of {found.size} bytes, got {len(batch)}"
    return found


def placed_in(data: Buffer, *, position: int, limit: int) -> PlacedBatch | None:
    """The header in ``data``, None if it is not plausible.

    The batch begins at ``position`` and must end by ``limit``.
    """
    if len(data) < HEADER_BYTES:
        return None
    base_offset, length, magic, attributes, last_offset_delta, *rest = _NEEDED.unpack_from(data)
    size = length + LENGTH_END
    if magic != MAGIC or base_offset < 0 or last_offset_delta < 0:
        return None
    if size < HEADER_BYTES or position + size > limit:
        return None
    end_offset = base_offset + last_offset_delta + 1
    return PlacedBatch(position, size, base_offset, end_offset, attributes, *rest)


def header_at(read: Read, position: int, *, limit: int) -> PlacedBatch | None:
    """The batch that begins at ``position``; None if no plausible one ends by ``limit``."""
    return placed_in(read(HEADER_BYTES, position), position=position, limit=limit)


def headers(read: Read, position: int, *, limit: int) -> Iterator[PlacedBatch]:
    """The batches from ``position`` on, until ``limit`` or the first implausible header."""
    chunks = ChunkReader(read)
    while position < limit:
        found = header_at(chunks.read, position, limit=limit)
        if found is None:
            return
        yield found
        position += found.size


class ChunkReader:
    """Reads small pieces that lie close together with few calls to the system."""

    __slots__ = ("_chunk", "_position", "_read")

    def __init__(self, read: Read) -> None:
        self._read = read
        self._chunk = b""
        self._position = 0

    def read(self, size: int, position: int) -> bytes:
        at = position - self._position
        if not 0 <= at <= len(self._chunk) - size:
            self._chunk, self._position, at = self._read(_CHUNK_BYTES, position), position, 0
        return self._chunk[at : at + size]


def stamp(batch: Writable, header: PlacedBatch, *, base_offset: int, position: int) -> PlacedBatch:
    """Write offset and leader epoch into the batch; where it will be in the log."""
    stamp_batch(batch, base_offset=base_offset, leader_epoch=LEADER_EPOCH)
    end_offset = base_offset + header.offset_count
    # Not `_replace`: this runs for every append, and by position it takes half of the time.
    return PlacedBatch(position, header.size, base_offset, end_offset, *header[4:])


def is_whole(batch: Buffer) -> bool:
    """Whether the checksum of a batch holds; its base offset is not covered by it."""
    view = memoryview(batch)
    if len(view) < HEADER_BYTES:
        return False
    (stored,) = _CRC.unpack_from(view, CRC_AT)
    return bool(crc32c.crc32c(view[CHECKED_AT:]) == stored)
