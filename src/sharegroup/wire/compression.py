"""Compressing and decompressing what stands behind a batch header.

A few bytes can claim to be gigabytes.  Decompression therefore never goes by what the data
says of itself but by a limit that the caller sets, and memory grows with what really comes
out: gzip through zlib, which stops at a limit; lz4 and zstd into a buffer that starts small
and is made larger until the limit; snappy, whose ratio has a ceiling, after its claimed
length was held against both.
"""

from __future__ import annotations

import zlib
from typing import Any

import cramjam

from sharegroup.errors import CorruptMessage, UnsupportedCompressionType

Buffer = bytes | bytearray | memoryview

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
"""Kafka's names of the codecs (``compression.type``) and their numbers in a batch."""

LEVELS = {GZIP: 6, LZ4: 9, ZSTD: 3}
"""Kafka's default levels."""

GZIP_WINDOW = 31
"""zlib's way to say: a gzip header, and the largest window."""
GROWTH = 4
FIRST_GUESS_BYTES = 64 * 1024
SNAPPY_RATIO_MAX = 64
"""An element of snappy takes two bytes or more and gives at most 64."""
XERIAL_HEADER = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01"
"""Java's framing of snappy: this, then blocks behind four bytes of length."""
XERIAL_BLOCK_BYTES = 32 * 1024
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZSTD_WINDOW_BYTES_MAX = 128 * 1024 * 1024


def compress(codec: int, payload: Buffer) -> bytes:
    """The payload as ``codec`` writes it, at Kafka's default level."""
    match codec:
        case 0:
            return bytes(payload)
        case 1:
            return bytes(cramjam.gzip.compress(payload, level=LEVELS[GZIP]))
        case 2:
            return _snappy_blocks(payload)
        case 3:
            compressor = cramjam.lz4.Compressor(
                level=LEVELS[LZ4], content_checksum=False, block_linked=False
            )
            compressor.compress(bytes(payload))
            return bytes(compressor.finish())
        case 4:
            return bytes(cramjam.zstd.compress(payload, level=LEVELS[ZSTD]))
    raise UnsupportedCompressionType(f"expected codec 0 to 4, found {codec}")


def decompress(codec: int, payload: Buffer, *, bytes_max: int) -> Buffer:
    """What ``compress`` was given; raises CorruptMessage, also above ``bytes_max``."""
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


def _too_large(bytes_max: int) -> CorruptMessage:
    return CorruptMessage(f"records decompress to more than {bytes_max} bytes")


def _gunzip(payload: Buffer, bytes_max: int) -> bytes:
    """All members of a gzip stream."""
    parts = []
    left = bytes_max
    rest: Buffer = payload
    while len(rest):
        stream = zlib.decompressobj(wbits=GZIP_WINDOW)
        try:
            part = stream.decompress(rest, left + 1)
        except zlib.error as error:
            raise CorruptMessage(f"gzip: {error}") from error
        left -= len(part)
        if left < 0:
            raise _too_large(bytes_max)
        if not stream.eof:
            raise CorruptMessage("gzip: the stream is cut off")
        parts.append(part)
        rest = stream.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _into_growing(decompress_into: Any, payload: Buffer, bytes_max: int) -> memoryview:
    """Into a buffer of a first guess, and a larger one each time it does not suffice.

    cramjam does not tell a full buffer from damaged data, so damaged data is tried with all
    sizes: at most four thirds of ``bytes_max`` is written in vain.
    """
    size = min(bytes_max, max(FIRST_GUESS_BYTES, GROWTH * len(payload)))
    while True:
        output = bytearray(size)
        try:
            written = decompress_into(payload, output)
        except cramjam.DecompressionError as error:
            if size >= bytes_max:
                raise CorruptMessage(
                    f"records are damaged or decompress to more than {bytes_max} bytes: {error}"
                ) from error
            size = min(bytes_max, size * GROWTH)
        else:
            return memoryview(output)[:written]


def _snappy_blocks(payload: Buffer) -> bytes:
    view = memoryview(payload)
    parts = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _unsnappy(payload: Buffer, bytes_max: int) -> bytes:
    """Java's framing, or one raw block as librdkafka writes it."""
    view = memoryview(payload)
    if view[:8] != XERIAL_HEADER[:8]:
        return _unsnappy_block(view, bytes_max, bytes_max)
    parts = []
    position = len(XERIAL_HEADER)
    left = bytes_max
    while position < len(view):
        length = int.from_bytes(view[position : position + 4], "big")
        position += 4
        if not 0 < length <= len(view) - position:
            raise CorruptMessage(f"snappy: block of {length} bytes, {len(view) - position} left")
        part = _unsnappy_block(view[position : position + length], left, bytes_max)
        left -= len(part)
        parts.append(part)
        position += length
    return b"".join(parts)


def _unsnappy_block(block: memoryview, left: int, bytes_max: int) -> bytes:
    """One block, of which ``left`` of the ``bytes_max`` in all may come."""
    try:
        claimed = cramjam.snappy.decompress_raw_len(block)
        if claimed > left:
            raise _too_large(bytes_max)
        if claimed > SNAPPY_RATIO_MAX * len(block):
            raise CorruptMessage(f"snappy: {len(block)} bytes claim to be {claimed}")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptMessage(f"snappy: {error}") from error


def _check_zstd_window(payload: Buffer) -> None:
    """A frame may ask its reader for a window of terabytes; the library's own limit is ours.

    Memory of the window is used as output comes, so the limit on that holds for it, too.
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
