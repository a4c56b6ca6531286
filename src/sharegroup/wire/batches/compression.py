"""Compression and decompression of the records behind a batch header.

A few bytes can claim to be gigabytes. Decompression therefore does not trust the data's own sizes
but has a limit set by the caller, and memory grows only with the actual output. gzip goes through
zlib, which stops at a limit. lz4 and zstd write into a buffer that starts small and grows up to the
limit. snappy has a maximum ratio, and its claimed length is compared with both.

The time is linear in the sizes of input and limit for any input. The work is done by compiled code
that releases the interpreter lock, in pieces that leave little to do under the lock, so a thread
that decompresses does not delay the event loop. Parts that cost time and may be empty (members of
gzip, blocks of snappy) are limited in number.
"""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Iterator
from typing import Any

import cramjam

from sharegroup.errors import CorruptMessage, UnsupportedCompressionType

Buffer = bytes | bytearray | memoryview


class TooLarge(CorruptMessage):
    """The payload may decompress to more than the limit, so only a stream can tell what it is.

    See `compression_streams`.
    """


DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
"""Size of one decompressed batch, if the caller sets no limit of its own."""

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
"""Kafka's names of the codecs (``compression.type``) and their numbers in a batch."""

# So a record compressed here has about the size that a Kafka broker would give it.
LEVELS = {GZIP: 6, LZ4: 9, ZSTD: 3}
"""Kafka's default compression levels."""

LZ4_PIECE_BYTES = 64 * 1024
"""Size of the pieces given to lz4's compressor: a millisecond of work at the default level."""

GZIP_WINDOW = 31
"""zlib's code for a gzip header and the largest window."""
GZIP_MEMBERS_MAX = 1_000
"""Number of members of one gzip stream; producers write one."""
GZIP_INPUT_BYTES = 64 * 1024
"""Size of the pieces given to zlib, which copies the input that it does not use."""
GZIP_OUTPUT_BYTES = 1024 * 1024
GROWTH = 4
FIRST_GUESS_BYTES = 64 * 1024
MAPPED_BYTES_MIN = 1024 * 1024
"""Size from which buffers come from the system, which clears pages only when they are used."""
SNAPPY_RATIO_MAX = 64
"""Output bytes for each input byte; an element of snappy takes two bytes or more and gives 64."""
XERIAL_HEADER = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01"
"""The beginning of Java's framing of snappy; blocks with four bytes of length follow."""
XERIAL_BLOCK_BYTES = 32 * 1024
XERIAL_BLOCK_BYTES_MIN = 4 * 1024
"""Smallest average output of a block of Java's framing, relative to the permitted output."""
XERIAL_BLOCKS_FREE = 16
"""Number of blocks that may be smaller."""
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZSTD_WINDOW_BYTES_MAX = 128 * 1024 * 1024


def compress(codec: int, payload: Buffer, *, level: int | None = None) -> bytes:
    """Return the payload compressed with ``codec``; at Kafka's default level if it is None."""
    if level is None:
        level = LEVELS.get(codec)
    match codec:
        case 0:
            return bytes(payload)
        case 1:
            return bytes(cramjam.gzip.compress(payload, level=level))
        case 2:
            return _snappy_blocks(payload)
        case 3:
            return _lz4_frame(payload, level)
        case 4:
            return bytes(cramjam.zstd.compress(payload, level=level))
    raise UnsupportedCompressionType(f"expected codec 0 to 4, found {codec}")


def _lz4_frame(payload: Buffer, level: int | None) -> bytes:
    """Return one frame; the compressor gets pieces, because it works under the interpreter lock."""
    # The flags that Java's `Lz4BlockOutputStream` sets; its reader refuses linked blocks.
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    with memoryview(payload) as view:
        for start in range(0, len(view), LZ4_PIECE_BYTES):
            compressor.compress(bytes(view[start : start + LZ4_PIECE_BYTES]))
    return bytes(compressor.finish())


def decompress(codec: int, payload: Buffer, *, bytes_max: int) -> Buffer:
    """Return the original payload; raises CorruptMessage, also above ``bytes_max``."""
    match codec:
        case 0:
            return payload
        case 1:
            return _gunzip(payload, bytes_max)
        case 2:
            return _unsnappy(payload, bytes_max)
        case 3:
            return _into_growing(cramjam.lz4.decompress_into, payload, bytes_max)
        case 4:
            _check_zstd_window(payload)
            return _into_growing(cramjam.zstd.decompress_into, payload, bytes_max)
    raise UnsupportedCompressionType(f"expected codec 0 to 4, found {codec}")


def _too_large(bytes_max: int) -> TooLarge:
    return TooLarge(f"records decompress to more than {bytes_max} bytes")


def _gunzip(payload: Buffer, bytes_max: int) -> bytes | bytearray:
    """Return the output of all members of a gzip stream.

    Input and output are cut into pieces, because zlib copies the input that it does not use, and
    because an output that grows within zlib is copied under the interpreter lock.
    """
    output = bytearray()
    members = position = 0
    with memoryview(payload) as view:
        while position < len(view):
            members += 1
            if members > GZIP_MEMBERS_MAX:
                raise CorruptMessage(f"gzip: more than {GZIP_MEMBERS_MAX} members")
            stream = zlib.decompressobj(wbits=GZIP_WINDOW)
            while not stream.eof:
                piece = stream.unconsumed_tail
                if not piece:
                    piece = bytes(view[position : position + GZIP_INPUT_BYTES])
                    position += len(piece)
                # One byte more than is permitted, to notice that there is more; and 0 is no limit
                # to zlib.
                room = min(GZIP_OUTPUT_BYTES, bytes_max + 1 - len(output))
                part = inflated(stream, piece, room)
                if not piece and not part:
                    raise CorruptMessage("gzip: the stream is cut off")
                output += part
                if len(output) > bytes_max:
                    raise _too_large(bytes_max)
            # The rest of the piece belongs to the next member.
            position -= len(stream.unused_data)
    return output


def inflated(stream: Any, piece: bytes, bytes_max: int) -> bytes:
    """Return the next output of a gzip stream, up to ``bytes_max``."""
    try:
        part: bytes = stream.decompress(piece, bytes_max)
    except zlib.error as error:
        raise CorruptMessage(f"gzip: {error}") from error
    return part


def _into_growing(decompress_into: Any, payload: Buffer, bytes_max: int) -> memoryview:
    """Decompress into a buffer of estimated size, and into larger ones while it is too small.

    cramjam raises the same error for a full buffer and for damaged data.  So damaged data is tried
    with all sizes, which writes at most four thirds of ``bytes_max`` for nothing.
    """
    size = min(bytes_max, max(FIRST_GUESS_BYTES, GROWTH * len(payload)))
    while True:
        output = _empty_buffer(size)
        try:
            written = decompress_into(payload, output)
        except cramjam.DecompressionError as error:
            if size >= bytes_max:
                raise TooLarge(
                    f"records are damaged or decompress to more than {bytes_max} bytes: {error}"
                ) from error
            size = min(bytes_max, size * GROWTH)
        else:
            return memoryview(output)[:written]


def _empty_buffer(size: int) -> bytearray | mmap.mmap:
    """Return a buffer of zeros; 64 MiB take no time here, but 50 ms as a bytearray."""
    return bytearray(size) if size < MAPPED_BYTES_MIN else mmap.mmap(-1, size)


def _snappy_blocks(payload: Buffer) -> bytes:
    view = memoryview(payload)
    parts = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _unsnappy(payload: Buffer, bytes_max: int) -> Buffer:
    """Decompress Java's framing, or one raw block as librdkafka writes it."""
    view = memoryview(payload)
    if view[:8] != XERIAL_HEADER[:8]:
        return _unsnappy_block(view, bytes_max, bytes_max)
    # Empty blocks cost time and yield nothing, so the limit on the output does not bound them.
    blocks_max = XERIAL_BLOCKS_FREE + bytes_max // XERIAL_BLOCK_BYTES_MIN
    output = bytearray()
    for count, block in enumerate(xerial_blocks(view)):
        if count == blocks_max:
            raise TooLarge(
                f"snappy: more blocks than one for each {XERIAL_BLOCK_BYTES_MIN} of {bytes_max} "
                "bytes"
            )
        output += _unsnappy_block(block, bytes_max - len(output), bytes_max)
    return output


def xerial_blocks(view: memoryview) -> Iterator[memoryview]:
    """Iterate over the compressed blocks in Java's framing."""
    position = len(XERIAL_HEADER)
    while position < len(view):
        length = int.from_bytes(view[position : position + 4], "big")
        position += 4
        if not 0 < length <= len(view) - position:
            raise CorruptMessage(f"snappy: block of {length} bytes, {len(view) - position} left")
        yield view[position : position + length]
        position += length


def _unsnappy_block(block: memoryview, bytes_left: int, bytes_max: int) -> Buffer:
    """Decompress one block, which may give ``bytes_left`` of the ``bytes_max`` bytes in total."""
    try:
        claimed = cramjam.snappy.decompress_raw_len(block)
        # Before memory is allocated for it: five bytes can claim 4 GiB.
        if claimed > bytes_left:
            raise _too_large(bytes_max)
        if claimed > SNAPPY_RATIO_MAX * len(block):
            raise CorruptMessage(f"snappy: {len(block)} bytes claim to decompress to {claimed}")
        if not claimed:
            return b""
        output = _empty_buffer(claimed)
        written = cramjam.snappy.decompress_raw_into(block, output)
        return memoryview(output)[:written]
    except cramjam.DecompressionError as error:
        raise CorruptMessage(f"snappy: {error}") from error


def _check_zstd_window(payload: Buffer) -> None:
    """Raise CorruptMessage if a frame asks for a larger window than the library's own limit.

    A frame may ask for terabytes. The window's memory is used only as output is produced, so the
    limit on the output applies to it, too.
    """
    head = bytes(payload[:6])
    if len(head) < 6 or head[:4] != ZSTD_MAGIC:
        raise CorruptMessage("zstd: no frame")
    if head[4] & 0x20:
        return  # A single segment: the window is the content, which has its own limit.
    exponent, mantissa = head[5] >> 3, head[5] & 7
    window = (1 << (10 + exponent)) // 8 * (8 + mantissa)
    if window > ZSTD_WINDOW_BYTES_MAX:
        raise CorruptMessage(f"zstd: window of {window} bytes, {ZSTD_WINDOW_BYTES_MAX} allowed")
