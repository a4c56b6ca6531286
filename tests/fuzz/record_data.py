"""Record batches: valid ones of every codec, and what becomes of them by mutation."""

from __future__ import annotations

import random
import struct
from functools import cache

from crc32c import crc32c

from sharegroup.wire.batches.compression import compress
from tests.attacks.batches import EMPTY_RECORD, batch, empty_members
from tests.fuzz.numbers import interesting

COUNT_AT, LAST_DELTA_AT, ATTRIBUTES_AT, CRC_AT, CHECKED_AT = 57, 23, 21, 17, 21
HEADER_FIELDS = (
    (0, ">q"), (8, ">i"), (12, ">i"), (16, ">b"), (21, ">h"), (23, ">i"),
    (27, ">q"), (35, ">q"), (43, ">q"), (51, ">h"), (53, ">i"), (57, ">i"),
)  # fmt: skip
BODY_RECORDS = (1, 1, 1, 2, 3)
MANY = 500
BOMB_RECORDS = 20_000
NOW_MS = 1_795_000_000_000


def records(dice: random.Random) -> bytes:
    """The records of one partition of a Produce request."""
    made = [_one_batch(dice) for _ in range(dice.choice((1, 1, 1, 1, 2, 5)))]
    data = b"".join(made)
    if dice.random() < 0.1:
        data = _damaged(data, dice)
    return data


def sound_batch(dice: random.Random) -> bytes:
    """A batch that the broker takes."""
    count = dice.choice((1, 1, 3, 20))
    body = b"".join(
        _varint(len(record)) + record
        for number in range(count)
        for record in (b"\0\0" + _varint(number) + _bytes(b"key") + _bytes(b"v" * 20) + b"\0",)
    )
    codec = dice.choice((0, 0, 0, 1, 2, 3, 4))
    return batch(compress(codec, body), count=count, codec=codec, timestamp_ms=NOW_MS)


def _one_batch(dice: random.Random) -> bytes:
    count = dice.choice(BODY_RECORDS)
    if dice.random() < 0.05:
        count, body = MANY, _many_records()
    else:
        body = b"".join(_record(number, dice) for number in range(count))
    kind = dice.random()
    if kind < 0.02:
        return empty_members(dice.choice((100, 5_000)))
    if kind < 0.05:
        count, body = BOMB_RECORDS, EMPTY_RECORD * BOMB_RECORDS
    elif kind < 0.15:
        body = _damaged(body, dice)
    elif kind < 0.25:
        count = dice.choice((0, 1, 2, 1_000, 2**31 - 1, 2**31 - 2, max(1, count - 1)))
    codec = dice.choice((0, 0, 0, 1, 2, 3, 4))
    packed = compress(codec, body)
    if codec and dice.random() < 0.2:
        packed = _damaged(packed, dice)
    if dice.random() < 0.03:
        codec = dice.choice((5, 6, 7))
    attributes = dice.choice((0, 0, 0, 0, 8, 0x10, 0x20, 0x30, 0x40, 0x80, 0x7F80))
    timestamp = dice.choice((NOW_MS, NOW_MS, -1, 0, 2**62, -(2**63)))
    data = bytearray(_safe_batch(packed, count, codec, timestamp, attributes))
    if dice.random() < 0.25:
        _change_header(data, dice)
    if dice.random() < 0.3:
        struct.pack_into(">qhi", data, 43, dice.choice((0, 1, 1000, 2**62)), 0, dice.randrange(5))
    if dice.random() < 0.95:
        with memoryview(data) as view:
            struct.pack_into(">I", data, CRC_AT, crc32c(bytes(view[CHECKED_AT:])))
    return bytes(data)


def _safe_batch(body: bytes, count: int, codec: int, timestamp: int, attributes: int) -> bytes:
    return batch(body, count=count, codec=codec, timestamp_ms=timestamp, attributes=attributes)


def _change_header(data: bytearray, dice: random.Random) -> None:
    at, layout = dice.choice(HEADER_FIELDS)
    bits = struct.calcsize(layout) * 8
    struct.pack_into(layout, data, at, interesting(bits, dice))
    if at == COUNT_AT and dice.random() < 0.5:
        data[LAST_DELTA_AT : LAST_DELTA_AT + 4] = struct.pack(
            ">i", max(-(2**31), struct.unpack_from(">i", data, COUNT_AT)[0] - 1)
        )


def _record(delta: int, dice: random.Random) -> bytes:
    body = bytearray([dice.choice((0, 0, 0, 255))])
    body += _varint(dice.choice((0, 0, 1, -1, 2**40)))
    body += _varint(delta if dice.random() < 0.97 else interesting(32, dice))
    body += _bytes(dice.choice((None, b"", b"key", b"key2")))
    body += _bytes(dice.choice((None, b"", b"value", b"v" * 200)))
    headers = dice.choice((0, 0, 0, 1, 3))
    body += _varint(headers if dice.random() < 0.98 else interesting(32, dice))
    for number in range(headers):
        body += _bytes(dice.choice((b"h", b"", b"\xff\xfe"))) + _bytes(
            dice.choice((None, b"x" * number))
        )
    return _varint(len(body) if dice.random() < 0.99 else interesting(32, dice)) + bytes(body)


@cache
def _many_records() -> bytes:
    dice = random.Random(1)
    return b"".join(_record(number, dice) for number in range(MANY))


def _bytes(value: bytes | None) -> bytes:
    return _varint(-1) if value is None else _varint(len(value)) + value


def _damaged(data: bytes, dice: random.Random) -> bytes:
    if not data:
        return data
    at = dice.randrange(len(data))
    match dice.randrange(4):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + bytes([dice.randrange(256)]) + data[at + 1 :]
        case 2:
            return data + dice.randbytes(dice.randrange(1, 70))
    return data[:at] + dice.randbytes(4) + data[at + 4 :]


def _varint(value: int) -> bytes:
    value = ((value << 1) ^ (value >> 63)) & (2**64 - 1)
    raw = bytearray()
    while value > 127:
        raw.append(value & 127 | 128)
        value >>= 7
    raw.append(value)
    return bytes(raw)
