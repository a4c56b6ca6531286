"""Which offsets above the commit are done already, as text in the commit's metadata.

A consumer group commits one offset, and what is above it is delivered again.  In the topic
``due`` the records leave in the order of their due times and not of their offsets, so after a
crash thousands could run twice because of one that was due last.  The metadata, up to 4,096
characters that Kafka keeps beside the offset, says which:

    committed 100      done 101 103 104        ->   bits 0 1 0 1 1, compressed, in base64

What does not fit, more than `OFFSETS_MAX` above the commit, is not told and done twice.
"""

from __future__ import annotations

import base64
import binascii
import logging
import zlib
from collections.abc import Iterable

log = logging.getLogger(__name__)

OFFSETS_MAX = 24_000
"""So many bits fit even where nothing can be compressed."""
FORMAT = "done1:"


def written(committed: int, done: Iterable[int]) -> str:
    """The metadata for a commit of this offset; empty when nothing above it is done."""
    bits = bytearray(OFFSETS_MAX // 8)
    highest = -1
    for offset in done:
        at = offset - committed
        assert at > 0, f"offset {offset} is done, and the commit of {committed} says so already"
        if at < OFFSETS_MAX:
            bits[at >> 3] |= 1 << (at & 7)
            highest = max(highest, at)
    if highest < 0:
        return ""
    packed = zlib.compress(bits[: (highest >> 3) + 1], level=1)
    return FORMAT + base64.b64encode(packed).decode("ascii")


def read(committed: int, metadata: str) -> set[int]:
    """The offsets that are done; none, and a line in the log, where the text is not ours."""
    if not metadata:
        return set()
    try:
        bits = _unpacked(metadata)
    except (ValueError, zlib.error, binascii.Error) as error:
        log.warning("event=done_offsets_refused metadata=%.40r reason=%s", metadata, error)
        return set()
    return {
        committed + (index << 3) + bit
        for index, byte in enumerate(bits)
        if byte
        for bit in range(8)
        if byte >> bit & 1
    } - {committed}


def _unpacked(metadata: str) -> bytes:
    if not metadata.startswith(FORMAT):
        raise ValueError(f"expected {FORMAT}... in front")
    packed = base64.b64decode(metadata.removeprefix(FORMAT), validate=True)
    # Bounded: a few bytes can claim to be a gigabyte.
    return zlib.decompressobj().decompress(packed, OFFSETS_MAX // 8)
