"""The records of a batch in pieces, so that neither a large batch nor one bad record costs others.

A batch within the limit of memory is one piece.  One that decompresses to more is read as a stream
and cut between records::

    stream    |  1 MiB  |  1 MiB  |  1 MiB  |  1 MiB  | ...
    records   | a | b |   c   | d |      e (too large)     | f | ...
    pieces    [ a   b ][  c     d ] [offset of e: unreadable][ f ...

A record that alone exceeds the limit is not kept: only its offset is read, and its bytes are
skipped.  What cannot be read is an `UnreadableRange` in its place among the pieces.  A batch that
is found damaged behind its first piece is unreadable from the first offset that was not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from sharegroup.errors import CorruptMessage, KafkaError
from sharegroup.wire.batches.batches import HEADER_BYTES, UNREADABLE, BatchHeader, Buffer
from sharegroup.wire.batches.compression import TooLarge
from sharegroup.wire.batches.compression_streams import pieces
from sharegroup.wire.batches.odd_records import (
    INT_BITS,
    INT_BYTES_MAX,
    LONG_BITS,
    LONG_BYTES_MAX,
    number,
)
from sharegroup.wire.batches.records import DecodedRecord, part_of_batch, read_batch

Made = TypeVar("Made")

RECORD_HEAD_BYTES = 2 * INT_BYTES_MAX + 1 + LONG_BYTES_MAX
"""Maximum size of a record's fields before its key."""


class UnreadableRange(NamedTuple):
    """The offsets [first, end), which cannot be read, and why."""

    first: int
    end: int
    error: KafkaError


class WholeRecords(NamedTuple):
    """Consecutive whole records of a stream, with the offsets [first, end) that they cover."""

    first: int
    end: int
    body: Buffer
    record_count: int


class RecordCutter:
    """Cuts the decompressed bytes of a batch between records; CorruptMessage if it cannot."""

    __slots__ = ("_base", "_count_left", "_record_bytes_max", "_rest", "_skip", "following")

    def __init__(self, header: BatchHeader, record_bytes_max: int) -> None:
        self.following = self._base = header.base_offset
        """The offset behind the last record that was found."""
        self._count_left = header.record_count
        self._record_bytes_max = record_bytes_max
        self._rest = bytearray()
        self._skip = 0

    def feed(self, piece: Buffer) -> Iterator[WholeRecords | UnreadableRange]:
        """Take the next bytes; yield the records that are complete now."""
        skipped = min(self._skip, len(piece))
        self._skip -= skipped
        self._rest += memoryview(piece)[skipped:]
        # While a record is skipped, all bytes are its own, and none are kept.
        while not self._skip:
            end, count, last = self._whole()
            if count:
                body = bytes(memoryview(self._rest)[:end])
                del self._rest[:end]
                self._count_left -= count
                first = self.following
                # The offsets between are not read: `part_of_batch` checks that they ascend.
                self._go_on(body, last)
                yield WholeRecords(first, self.following, body, count)
            large = self._large() if self._count_left else None
            if large is None:
                break
            yield large
        if self._rest and not self._count_left:
            raise CorruptMessage("unexpected bytes follow the last record")

    def finish(self) -> None:
        """Check that the stream ended with the last record."""
        if self._count_left or self._rest or self._skip:
            raise CorruptMessage(
                f"the records end with {self._count_left} missing and "
                f"{len(self._rest) + self._skip} bytes left"
            )

    def _whole(self) -> tuple[int, int, int]:
        """Return the end of the whole records, their number, and where the last one begins.

        A hot loop.
        """
        rest, position, last = self._rest, 0, 0
        for count in range(self._count_left):
            size, begin = self._size(position)
            if size > self._record_bytes_max or begin + size > len(rest):
                return position, count, last
            position, last = begin + size, position
        return position, self._count_left, last

    def _size(self, position: int) -> tuple[int, int]:
        """Return the size of a record and the position behind it; beyond the end if unknown."""
        rest = self._rest
        try:
            octet = rest[position]
            # Nearly all sizes of small records: one byte, and positive, which zigzag makes even.
            if octet < 0x80 and octet and not octet & 1:
                return octet >> 1, position + 1
            size, begin = number(rest, position, INT_BYTES_MAX, INT_BITS)
        except IndexError:
            # The record then ends behind the bytes that are here, so it counts as incomplete.
            return 1, len(rest)
        if size < 1:
            raise CorruptMessage(f"a record has {size} bytes")
        return size, begin

    def _large(self) -> UnreadableRange | None:
        """Start to skip the next record if it is too large and its offset is known."""
        size, begin = self._size(0)
        # The offset is read before the record is skipped, so its first fields have to be here.
        if size <= self._record_bytes_max or len(self._rest) < RECORD_HEAD_BYTES:
            return None
        offset = self._go_on(self._rest, 0)
        self._skip = max(0, begin + size - len(self._rest))
        del self._rest[: begin + size]
        self._count_left -= 1
        text = (
            f"the record at offset {offset} has {size} bytes; expected at most "
            f"{self._record_bytes_max}"
        )
        return UnreadableRange(offset, offset + 1, CorruptMessage(text))

    def _go_on(self, body: Buffer, position: int) -> int:
        """Go on behind the record at this position, and return its offset."""
        try:
            _, position = number(body, position, INT_BYTES_MAX, INT_BITS)
            _, position = number(body, position + 1, LONG_BYTES_MAX, LONG_BITS)
            offset = self._base + number(body, position, INT_BYTES_MAX, INT_BITS)[0]
        except IndexError:
            raise CorruptMessage("a record ends before its offset") from None
        # Never back: a producer's offsets need not ascend, and what was yielded must not come
        # again.
        self.following = max(self.following, offset + 1)
        return offset


def read_pieces(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    make: Callable[[Iterable[DecodedRecord]], Made],
    *,
    decompressed_bytes_max: int,
    check_crc: bool = False,
) -> Iterable[Made | UnreadableRange]:
    """Return the results of ``make`` for the records of a batch, and what cannot be read of it.

    It is a tuple of one element unless the batch is read as a stream.  ``make`` may be called twice
    for the same records.
    """
    try:
        made = read_batch(
            buffer,
            position,
            header,
            make,
            decompressed_bytes_max=decompressed_bytes_max,
            check_crc=check_crc,
        )
    # Before UNREADABLE, because it is a CorruptMessage, too.
    except TooLarge:
        batch = memoryview(buffer)[position : position + header.size]
        return streamed(batch, header, make, record_bytes_max=decompressed_bytes_max)
    except UNREADABLE as error:
        return (UnreadableRange(header.base_offset, header.end_offset, error),)
    return (made,)


def streamed(
    batch: memoryview,
    header: BatchHeader,
    make: Callable[[Iterable[DecodedRecord]], Made],
    *,
    record_bytes_max: int,
) -> Iterator[Made | UnreadableRange]:
    """Yield what `read_pieces` returns for a batch that is `TooLarge` to be read as a whole."""
    for piece in cut_pieces(batch, header, record_bytes_max=record_bytes_max):
        if isinstance(piece, UnreadableRange):
            yield piece
            continue
        try:
            made = part_of_batch(batch, header, piece.body, piece.record_count, make)
        except CorruptMessage as error:
            yield UnreadableRange(piece.first, piece.end, error)
        else:
            yield made


def cut_pieces(
    batch: memoryview, header: BatchHeader, *, record_bytes_max: int
) -> Iterator[WholeRecords | UnreadableRange]:
    """Decompress a batch as a stream, and yield its records in pieces that are not decoded."""
    steps = cut_in_steps(batch, header, record_bytes_max=record_bytes_max)
    return (piece for piece in steps if piece is not None)


def cut_in_steps(
    batch: memoryview,
    header: BatchHeader,
    *,
    record_bytes_max: int,
    stream_bytes_max: int | None = None,
) -> Iterator[WholeRecords | UnreadableRange | None]:
    """Do the same as `cut_pieces`, with None after each `compression_streams.PIECE_BYTES`.

    What comes behind ``stream_bytes_max`` is one unreadable range; with None there is no limit.
    """
    cutter = RecordCutter(header, record_bytes_max)
    total = 0
    try:
        for stream_piece in pieces(header.codec, batch[HEADER_BYTES:]):
            yield None
            total += len(stream_piece)
            if stream_bytes_max is not None and total > stream_bytes_max:
                text = f"records behind {stream_bytes_max} bytes are not read"
                break
            yield from cutter.feed(stream_piece)
        else:
            cutter.finish()
            return
    except CorruptMessage as error:
        text = str(error)
    failure = CorruptMessage(f"batch at offset {header.base_offset}: {text}")
    # The records may go on behind the end that the header tells.
    end = max(header.end_offset, cutter.following)
    yield UnreadableRange(cutter.following, end, failure)
