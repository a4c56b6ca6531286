"""Walking the record batches of a segment by their headers alone.

A segment is nothing but record batches (format v2), each a 61-byte header and its records.
Walking from one to the next needs the header only; the records are read when somebody wants
them.  Two questions are kept apart: is this a *plausible* header (cheap, says where the next
batch begins), and is this batch *whole* (its checksum holds)?
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import crc32c

from sharegroup.storage.files import Buffer

HEADER = struct.Struct(">qiibIhiqqqhii")
"""base offset, length, leader epoch, magic, crc, attributes, last offset delta, first and
largest timestamp, producer id, producer epoch, base sequence, record count"""

HEADER_BYTES = HEADER.size
LENGTH_STARTS_AT = 12
"""``length`` counts the bytes after itself: a batch has this many more."""

LEADER_EPOCH = 0
"""One broker, one leadership: the epoch never changes."""

_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_LEADER_EPOCH_AT = 12
_CRC_STARTS_AT = 17
_CRC_COVERS_FROM = 21
_MAGIC = 2
_CHUNK_BYTES = 4096

Read = Callable[[int, int], bytes]
"""``read(size, position)``"""


class BatchHeader(NamedTuple):
    """What storage needs to know of a batch."""

    position: int
    size: int
    base_offset: int
    end_offset: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int

    @property
    def offset_count(self) -> int:
        return self.end_offset - self.base_offset

    @property
    def end_position(self) -> int:
        return self.position + self.size


def header_of(batch: Buffer) -> BatchHeader:
    """The header of a whole batch in memory, at position 0."""
    found = parse_header(batch, position=0, limit=len(batch))
    assert found is not None, "a batch must be validated before it is appended"
    assert found.size == len(batch), f"one batch of {found.size} bytes, got {len(batch)}"
    return found


def parse_header(data: Buffer, *, position: int, limit: int) -> BatchHeader | None:
    """The header in ``data``, None if it is not plausible.

    The batch begins at ``position`` and must end by ``limit``.
    """
    if len(data) < HEADER_BYTES:
        return None
    fields = HEADER.unpack_from(data)
    base_offset, length, magic, last_offset_delta = fields[0], fields[1], fields[3], fields[6]
    size = length + LENGTH_STARTS_AT
    if magic != _MAGIC or base_offset < 0 or last_offset_delta < 0:
        return None
    if size < HEADER_BYTES or position + size > limit:
        return None
    return BatchHeader(
        position,
        size,
        base_offset,
        base_offset + last_offset_delta + 1,
        fields[8],
        fields[9],
        fields[10],
        fields[11],
    )


def header_at(read: Read, position: int, *, limit: int) -> BatchHeader | None:
    """The batch that begins at ``position``; None if no plausible one ends by ``limit``."""
    return parse_header(read(HEADER_BYTES, position), position=position, limit=limit)


def headers(read: Read, position: int, *, limit: int) -> Iterator[BatchHeader]:
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


def stamp(
    batches: Sequence[bytearray], headers: list[BatchHeader], *, base_offset: int, position: int
) -> list[BatchHeader]:
    """Write offsets and leader epoch into the batches; where each will be in the log."""
    placed = []
    for batch, header in zip(batches, headers, strict=True):
        _BASE_OFFSET.pack_into(batch, 0, base_offset)
        _LEADER_EPOCH.pack_into(batch, _LEADER_EPOCH_AT, LEADER_EPOCH)
        end_offset = base_offset + header.offset_count
        placed.append(
            header._replace(position=position, base_offset=base_offset, end_offset=end_offset)
        )
        base_offset, position = end_offset, position + header.size
    return placed


def is_whole(batch: Buffer) -> bool:
    """Whether the checksum of a batch holds; its base offset is not covered by it."""
    view = memoryview(batch)
    if len(view) < HEADER_BYTES:
        return False
    stored: int = struct.unpack_from(">I", view, _CRC_STARTS_AT)[0]
    return crc32c.crc32c(view[_CRC_COVERS_FROM:]) == stored
