"""Decompression in pieces of limited size, for records that do not fit into memory as a whole.

`compression.decompress` is faster and decompresses nearly every batch.  The streams here read those
above its limit.  Each takes memory for a piece, and for what its format looks back to::

    gzip      32 KiB
    snappy    a block of Java's framing; `SNAPPY_WINDOW_BYTES` of a block above `PIECE_BYTES`
    lz4       nothing: blocks of up to 4 MiB are independent, as Java requires them
    zstd      the window of the frame, up to `compression.ZSTD_WINDOW_BYTES_MAX`
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator

import cramjam

from sharegroup.errors import CorruptMessage, UnsupportedCompressionType
from sharegroup.wire.batches.compression import (
    GZIP_INPUT_BYTES,
    GZIP_MEMBERS_MAX,
    GZIP_WINDOW,
    XERIAL_HEADER,
    ZSTD_WINDOW_BYTES_MAX,
    Buffer,
    inflated,
    xerial_blocks,
)
from sharegroup.wire.varints import uvarint

PIECE_BYTES = 1024 * 1024
"""Size of a piece: a few milliseconds of work.  A block of lz4 may have four times that."""
ZSTD_INPUT_BYTES = 64 * 1024
"""Size of the pieces given to zstd, which copies the input that it does not use."""
ZSTD_FRAMES_MAX = 1_000
"""Number of frames of one zstd stream; producers write one."""
SNAPPY_WINDOW_BYTES = 1024 * 1024
"""How far back a copy in a large block may reach; compressors stay within 64 KiB."""

LZ4_MAGIC = b"\x04\x22\x4d\x18"
LZ4_VERSION_MASK, LZ4_VERSION = 0xC0, 0x40
LZ4_INDEPENDENT, LZ4_BLOCK_CHECKSUM, LZ4_SIZE, LZ4_CHECKSUM, LZ4_DICTIONARY = 32, 16, 8, 4, 1
LZ4_STORED = 1 << 31
LZ4_END = bytes(4)


def pieces(codec: int, payload: Buffer) -> Iterator[Buffer]:
    """Iterate over the original payload in pieces; CorruptMessage where it is damaged."""
    match codec:
        case 1:
            return _gzip(memoryview(payload))
        case 2:
            return _snappy(memoryview(payload))
        case 3:
            return _lz4(memoryview(payload))
        case 4:
            return _zstd(payload)
    raise UnsupportedCompressionType(f"expected codec 1 to 4, found {codec}")


def _gzip(view: memoryview) -> Iterator[Buffer]:
    position = 0
    for _ in range(GZIP_MEMBERS_MAX):
        stream = zlib.decompressobj(wbits=GZIP_WINDOW)
        while not stream.eof:
            piece = stream.unconsumed_tail
            if not piece:
                piece = bytes(view[position : position + GZIP_INPUT_BYTES])
                position += len(piece)
            part = inflated(stream, piece, PIECE_BYTES)
            if not piece and not part:
                raise CorruptMessage("gzip: the stream is cut off")
            yield part
        # The rest of the piece belongs to the next member.
        position -= len(stream.unused_data)
        if position >= len(view):
            return
    raise CorruptMessage(f"gzip: more than {GZIP_MEMBERS_MAX} members")


def _zstd(payload: Buffer) -> Iterator[Buffer]:
    if sys.version_info >= (3, 14):
        from compression import zstd  # Most processes never read such a batch.
    else:
        from backports import zstd  # As above.

    window_log_max = ZSTD_WINDOW_BYTES_MAX.bit_length() - 1
    options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: window_log_max}
    view, position = memoryview(payload), 0
    for _ in range(ZSTD_FRAMES_MAX):
        stream = zstd.ZstdDecompressor(options=options)
        while not stream.eof:
            piece = view[position : position + ZSTD_INPUT_BYTES] if stream.needs_input else b""
            position += len(piece)
            if stream.needs_input and not piece:
                raise CorruptMessage("zstd: the frame is cut off")
            try:
                yield stream.decompress(piece, PIECE_BYTES)
            except zstd.ZstdError as error:
                raise CorruptMessage(f"zstd: {error}") from error
        # The rest of the piece belongs to the next frame.
        position -= len(stream.unused_data)
        if position >= len(view):
            return
    raise CorruptMessage(f"zstd: more than {ZSTD_FRAMES_MAX} frames")


def _lz4(view: memoryview) -> Iterator[Buffer]:
    """Decompress the blocks of one frame, each as a frame that is made up of it.

    Java checks the header and blocks by their checksums, but not the content.
    """
    if view[:4] != LZ4_MAGIC or len(view) < 7:
        raise CorruptMessage("lz4: no frame")
    flags = view[4]
    if flags & LZ4_VERSION_MASK != LZ4_VERSION or flags & LZ4_DICTIONARY:
        raise CorruptMessage(f"lz4: unknown flags {flags:#04x}")
    if not flags & LZ4_INDEPENDENT:
        raise CorruptMessage("lz4: expected independent blocks, which Java requires, too")
    # Behind the magic, the flags and the block size, and the content's size if it is told.
    position = 14 if flags & LZ4_SIZE else 6
    if view[position : position + 1] != _lz4_header_checksum(view[4:position]):
        raise CorruptMessage("lz4: the checksum of the header does not match")
    position += 1
    # The size and the checksum are those of the whole content, which one block does not have.
    made_up = bytes((flags & ~(LZ4_SIZE | LZ4_CHECKSUM), view[5]))
    header = LZ4_MAGIC + made_up + _lz4_header_checksum(made_up)
    while size := int.from_bytes(view[position : position + 4], "little"):
        # The highest bit is no part of the size: it marks a block that is stored as it is.
        end = position + 4 + (size & ~LZ4_STORED) + (4 if flags & LZ4_BLOCK_CHECKSUM else 0)
        if end > len(view):
            raise CorruptMessage("lz4: the frame is cut off")
        try:
            yield memoryview(
                cramjam.lz4.decompress(b"".join((header, view[position:end], LZ4_END)))
            )
        except cramjam.DecompressionError as error:
            raise CorruptMessage(f"lz4: {error}") from error
        position = end
    if position + (8 if flags & LZ4_CHECKSUM else 4) > len(view):
        raise CorruptMessage("lz4: the frame has no end")


def _lz4_header_checksum(fields: Buffer) -> bytes:
    """Return one byte of the xxHash (32 bits) of less than 16 bytes."""
    hashed = 374761393 + len(fields)
    words = len(fields) // 4 * 4
    for start in range(0, words, 4):
        hashed += int.from_bytes(fields[start : start + 4], "little") * 3266489917
        hashed = _rotated(hashed, 17) * 668265263
    for octet in fields[words:]:
        hashed = _rotated(hashed + octet * 374761393, 11) * 2654435761
    hashed &= 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 15) * 2246822519 & 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 13) * 3266489917 & 0xFFFFFFFF
    return bytes(((hashed ^ hashed >> 16) >> 8 & 0xFF,))


def _rotated(number: int, bits: int) -> int:
    number &= 0xFFFFFFFF
    return (number << bits | number >> 32 - bits) & 0xFFFFFFFF


def _snappy(view: memoryview) -> Iterator[Buffer]:
    if view[:8] != XERIAL_HEADER[:8]:
        yield from _snappy_block(view)
        return
    for block in xerial_blocks(view):
        yield from _snappy_block(block)


def _snappy_block(block: memoryview) -> Iterator[Buffer]:
    """Decompress one block, cut into blocks of its elements that are made up here.

    A made-up block begins with the output before it, as a literal, for copies to reach into::

        | size | literal of the window | elements of the original block |
    """
    claimed, position = _read_size(block, 0)
    window: Buffer = b""
    total = 0
    while position < len(block):
        end, size = _snappy_elements(block, position)
        literal = _snappy_literal(window)
        made_up = b"".join((uvarint(len(window) + size), literal, block[position:end]))
        output = _snappy_output(made_up)
        yield output[len(window) :]
        # Not the whole output: then each piece would be decompressed with all pieces before it.
        window, position, total = output[-SNAPPY_WINDOW_BYTES:], end, total + size
    if total != claimed:
        raise CorruptMessage(f"snappy: a block of {claimed} bytes has {total}")


def _snappy_output(block: bytes) -> memoryview:
    try:
        return memoryview(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptMessage(f"snappy: {error}") from error


def _snappy_elements(block: memoryview, position: int) -> tuple[int, int]:
    """Return the end of about `PIECE_BYTES` of elements, and the size of their output.

    The low bits of an element's first byte are its kind: 0 a literal, 1 to 3 a copy with that many
    bytes of offset, or four.
    """
    size = 0
    while position < len(block) and size < PIECE_BYTES:
        tag = block[position]
        kind, length = tag & 3, (tag >> 2) + 1
        if kind:
            size += 4 + (tag >> 2 & 7) if kind == 1 else length
            position += (2, 3, 5)[kind - 1]
            continue
        if length > 60:  # The length is in one to four bytes behind the tag.
            position, wide = position + length - 60, length - 60
            length = int.from_bytes(block[position - wide + 1 : position + 1], "little") + 1
        position += 1 + length
        size += length
    if position > len(block):
        raise CorruptMessage("snappy: the block is cut off")
    return position, size


def _snappy_literal(content: Buffer) -> bytes:
    if not content:
        return b""
    # The tag of a literal whose length takes four bytes.
    return b"\xfc" + (len(content) - 1).to_bytes(4, "little") + bytes(content)


def _read_size(view: memoryview, position: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 35, 7):
        if position >= len(view):
            break
        number |= (view[position] & 0x7F) << shift
        position += 1
        if view[position - 1] < 0x80:
            return number, position
    raise CorruptMessage("snappy: a block without a size")
