"""Reading a log from an offset to its end, for whoever keeps state in it and reads it at start.

Readers of a log ask for an offset and get some batches; where those lie is remembered in
`boundaries`, header by header.  A coordinator that starts reads millions of small batches once,
in order, and asks for none of them again: this reads the files in large pieces and looks at each
batch once, 1 microsecond instead of 5.

It does not look into records, and does not cut the first batch at the offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct

from crc32c import crc32c

from sharegroup.errors import CorruptMessage, KafkaStorageError
from sharegroup.storage.segment import Segment
from sharegroup.wire.batches import CHECKED_AT, HEADER_BYTES, LENGTH_END, MAGIC

PIECE_BYTES = 4 * 1024 * 1024

_NEEDED = Struct(">qi4xbI2xi")
"""Base offset, length, magic, checksum and last offset delta."""


def read_whole(
    segments: Sequence[Segment], offset: int, *, verified_from: int, name: str
) -> Iterator[bytes]:
    """Whole batches up to the log's end, in pieces; the first holds ``offset`` or comes before.

    Raises CorruptMessage where a batch is damaged.  Checksums are compared below
    ``verified_from``: what lies above was written, or checked, by this process.
    """
    for segment in list(segments):
        if segment.end_offset > offset:
            yield from _segment(segment, offset, verified_from=verified_from, name=name)


def _segment(segment: Segment, offset: int, *, verified_from: int, name: str) -> Iterator[bytes]:
    position, expected = _start(segment, offset)
    piece_bytes = PIECE_BYTES
    while position < segment.size:
        wanted = min(piece_bytes, segment.size - position)
        try:
            data = segment.log.read(wanted, position)
        except OSError as error:
            raise KafkaStorageError(f"{name} offset={expected}: {error}") from error
        size, expected = _sound(data, expected, segment, verified_from=verified_from)
        if size == 0:
            needed = _batch_bytes(data)
            if not wanted < needed <= segment.size - position:
                raise CorruptMessage(
                    f"{name} offset={expected}: a batch on disk does not match its checksum"
                )
            piece_bytes = needed
            continue
        yield data[:size]
        position += size


def _start(segment: Segment, offset: int) -> tuple[int, int]:
    """The position and offset of the last indexed batch that begins at ``offset`` or before."""
    number = segment.index.count_through(offset - segment.base_offset)
    while number > 0:
        number -= 1
        entry = segment.index.entry(number)
        found = segment.header_at(entry.value)
        if found is not None and found.end_offset - 1 - segment.base_offset == entry.key:
            return found.position, found.base_offset
    return 0, segment.base_offset


def _batch_bytes(data: bytes) -> int:
    """What the header of the first batch in ``data`` claims; 0 where there is none."""
    return LENGTH_END + _NEEDED.unpack_from(data)[1] if len(data) >= HEADER_BYTES else 0


def _sound(data: bytes, expected: int, segment: Segment, *, verified_from: int) -> tuple[int, int]:
    """How many bytes of ``data`` are whole batches that follow each other; the offset after.

    A hot loop: it sees every batch of the log.
    """
    unpack, view = _NEEDED.unpack_from, memoryview(data)
    position, size, has_holes = 0, len(data), segment.has_holes
    while size - position >= HEADER_BYTES:
        base_offset, length, magic, stored, last_offset_delta = unpack(data, position)
        end = position + LENGTH_END + length
        if magic != MAGIC or length < HEADER_BYTES - LENGTH_END or end > size:
            break
        if base_offset != expected and not (has_holes and base_offset > expected):
            break
        if expected < verified_from and crc32c(view[position + CHECKED_AT : end]) != stored:
            break
        position, expected = end, base_offset + last_offset_delta + 1
    return position, expected
