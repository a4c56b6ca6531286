"""Record batches that no honest producer sends, with a checksum that holds."""

from __future__ import annotations

import gzip
import random
import struct
import time
from functools import cache

from crc32c import crc32c

from sharegroup.wire.batches.compression import GZIP, NONE, ZSTD, compress

CLAIMED_PER_BYTE = 60
EMPTY_RECORD = b"\x0c\0\0\0\x01\x01\0"
"""Length 6, no attributes, deltas 0, no key, no value, no headers."""


def batch(
    body: bytes,
    *,
    count: int,
    codec: int = NONE,
    timestamp_ms: int | None = None,
    attributes: int = 0,
) -> bytes:
    """A batch of format 2 whose header claims ``count`` records; ``body`` stays as it is."""
    timestamp_ms = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
    checked = struct.pack(
        ">hiqqqhii",
        *(attributes | codec, count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, count),
    )
    checked += body
    head = struct.pack(">qiib", 0, 9 + len(checked), -1, 2)
    return head + struct.pack(">I", crc32c(checked)) + checked


def honest_batch(count: int, value: bytes) -> bytes:
    """``count`` records of this value, not compressed."""
    return batch(b"".join(_record(number, value) for number in range(count)), count=count)


@cache
def bomb(count: int) -> bytes:
    """``count`` records in a few bytes: 9,000,000 are 63 MB, below the limit of 64 MiB."""
    return batch(compress(ZSTD, EMPTY_RECORD * count), count=count, codec=ZSTD)


@cache
def padded_bomb(count: int) -> bytes:
    """``count`` empty records behind one of random bytes: as many of them as a batch may claim.

    A compressed batch may claim a number of records for each of its bytes; random bytes stay.
    """
    noise = random.Random(1).randbytes(count // CLAIMED_PER_BYTE)
    body = _record(0, noise) + EMPTY_RECORD * (count - 1)
    return batch(compress(ZSTD, body), count=count, codec=ZSTD)


@cache
def large_record() -> bytes:
    """A few KB that decompress to one record of 60 MB."""
    return batch(compress(ZSTD, _record(0, bytes(60_000_000))), count=1, codec=ZSTD)


@cache
def undercounted_bomb(count: int) -> bytes:
    """``count`` records in a batch whose header claims 1,000."""
    return batch(compress(ZSTD, EMPTY_RECORD * count), count=1_000, codec=ZSTD)


def lying_batch(count: int = 2**31 - 1) -> bytes:
    """69 bytes that claim to be 2³¹-1 records."""
    return batch(EMPTY_RECORD + b"\0", count=count)


def lying_compressed_batch(count: int = 2**31 - 1) -> bytes:
    """A compressed batch of one record that claims to be 2³¹-1."""
    return batch(compress(GZIP, EMPTY_RECORD), count=count, codec=GZIP)


@cache
def empty_members(size: int) -> bytes:
    """gzip data of empty members, ``size`` bytes of it, and one record behind them."""
    member = gzip.compress(b"", mtime=0)
    return batch(member * (size // len(member)) + gzip.compress(EMPTY_RECORD), count=1, codec=GZIP)


def _record(offset_delta: int, value: bytes) -> bytes:
    body = (
        b"\0" + _varint(0) + _varint(offset_delta) + b"\x01" + _varint(len(value)) + value + b"\0"
    )
    return _varint(len(body)) + body


@cache
def misread_batch(claimed: int, *, attributes: int = 0x80) -> bytes:
    """A batch of one record with a key of ``claimed`` bytes, which look like another record.

    The compiled codec takes attributes of 128 or more for the first byte of a number, and so the
    key's size for the offset.  Java does not.
    """
    value = b"honest"
    rest = claimed - 4  # The key begins as "no key, and a value of so many bytes".
    key = b"\x01" + _padded_varint(rest + 1 + len(value)) + bytes(rest)
    assert len(key) == claimed
    body = bytes([attributes]) + _varint(0) + _varint(0) + _varint(len(key)) + key
    body += _varint(len(value)) + value + b"\0"
    return batch(_varint(len(body)) + body, count=1)


def batch_of_offsets(*deltas: int) -> bytes:
    """A batch of records whose offsets differ from that of the batch by so much."""
    return batch(b"".join(_record(delta, b"x") for delta in deltas), count=len(deltas))


def _padded_varint(value: int) -> bytes:
    """Three bytes, whatever the value; it must be below 2²⁰."""
    assert 0 <= value < 2**20
    doubled = 2 * value
    return bytes([doubled & 0x7F | 0x80, doubled >> 7 & 0x7F | 0x80, doubled >> 14])


def _varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    raw = bytearray()
    while value > 127:
        raw.append(value & 127 | 128)
        value >>= 7
    raw.append(value)
    return bytes(raw)
