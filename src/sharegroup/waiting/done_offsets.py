"""The offsets above a committed offset that are already done, as commit metadata.

A consumer group commits one offset, and records above it are read again.  In the topic ``due``
records leave in the order of their due times, not of their offsets.  So after a crash thousands of
records could run twice because of one that was due last.  The metadata, up to 4,096 characters that
Kafka stores beside the offset, lists the offsets that are done:

    committed 100      done 101 103 104        ->   bits 0 1 0 1 1, compressed, in base64

Offsets `OFFSETS_MAX` or more above the committed offset do not fit, and are left out.
"""

from __future__ import annotations

import base64
import binascii
import logging
import zlib
from collections.abc import Iterable

log = logging.getLogger(__name__)

OFFSETS_MAX = 24_000
"""The number of bits; they fit even if they cannot be compressed."""
FORMAT = "done1:"


def written(committed: int, done: Iterable[int]) -> str:
    """Return the metadata for a commit of this offset; empty if no offset above it is done."""
    bits = bytearray(OFFSETS_MAX // 8)
    highest = -1
    for offset in done:
        distance = offset - committed
        assert distance > 0, (
            f"offset {offset}: expected an offset above the committed offset {committed}"
        )
        if distance < OFFSETS_MAX:
            bits[distance >> 3] |= 1 << (distance & 7)
            highest = max(highest, distance)
    if highest < 0:
        return ""
    packed = zlib.compress(bits[: (highest >> 3) + 1], level=1)
    return FORMAT + base64.b64encode(packed).decode("ascii")


def read(committed: int, metadata: str) -> set[int]:
    """Return the offsets that are done; metadata in another format is logged and ignored."""
    if not metadata:
        return set()
    try:
        bits = _unpacked(metadata)
    except (ValueError, zlib.error, binascii.Error) as error:
        log.warning("event=done_offsets_refused metadata=%.40r reason=%s", metadata, error)
        return set()
    # The committed offset itself is never done.  We do not set its bit; another program may.
    return {
        committed + (index << 3) + bit
        for index, byte in enumerate(bits)
        if byte
        for bit in range(8)
        if byte >> bit & 1
    } - {committed}


def _unpacked(metadata: str) -> bytes:
    if not metadata.startswith(FORMAT):
        raise ValueError(f"expected metadata that starts with {FORMAT}")
    packed = base64.b64decode(metadata.removeprefix(FORMAT), validate=True)
    # Bounded, because a few compressed bytes can expand to a gigabyte.
    return zlib.decompressobj().decompress(packed, OFFSETS_MAX // 8)
