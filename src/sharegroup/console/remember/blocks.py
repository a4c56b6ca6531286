"""A block of history: points of many groups in a slot of time, packed.

    magic "SGH", version 1, tier, begin of the slot in ms, size and CRC of what follows unpacked
    ── zlib ──────────────────────────────────────────────────────────────────────────────────
    number of groups
    for each group: length of its id, number of its points, id in UTF-8
    times, lags and settled offsets of all groups: three columns of int64, little-endian

Columns of many groups beside each other compress to a third, and are packed without a loop over
points.  The same blocks are in the topics and in the local file.  A reader takes no block that its
checksum or a bound does not fit, because anybody with the right may write to a topic.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from sharegroup.console.watch.history import (
    GROUPS_MAX,
    SETTLED_MAX,
    UNKNOWN,
    Columns,
    Tier,
)

MAGIC = b"SGH"
VERSION = 1
HEADER = struct.Struct(">3sBBqII")
COUNT = struct.Struct(">I")
GROUP = struct.Struct(">HI")
NUMBER_BYTES = 8
POINT_BYTES = 3 * NUMBER_BYTES
ID_BYTES_MAX = 32_767
"""The longest id of a group that Kafka's protocol has; longer ones are not written."""
PACK_BYTES = 512 * 1024
"""Size from which groups go to another block: packed, they are below a broker's limit."""
BLOCK_BYTES_MAX = 4 * 1024 * 1024
"""Size of a block unpacked: one group may have all of its points in it."""
FASTEST = 1
"""The level of zlib: higher ones take three times as long for a tenth of the bytes."""


class DamagedBlock(ValueError):
    """Bytes that are not a block, or not one that this version can read."""


class GroupPoints(NamedTuple):
    """The points of one group."""

    group_id: str
    points: Columns


@dataclass(frozen=True, slots=True)
class Block:
    """Points of groups; those in topics are of one slot of time."""

    tier: Tier
    slot_ms: int
    groups: tuple[GroupPoints, ...]

    @property
    def newest_ms(self) -> int:
        """The time of the newest point."""
        return max((group.points.times[-1] for group in self.groups), default=self.slot_ms)


def packed(tier: Tier, slot_ms: int, groups: Iterable[GroupPoints]) -> Iterator[bytes]:
    """Yield blocks with the points of all groups: one, unless they are too many for it."""
    gathered: list[tuple[bytes, Columns]] = []
    size = 0
    for group_id, points in groups:
        encoded = group_id.encode("utf-8", "surrogatepass")
        if not points.times or not 0 < len(encoded) <= ID_BYTES_MAX:
            continue
        group_bytes = GROUP.size + len(encoded) + len(points.times) * POINT_BYTES
        assert COUNT.size + group_bytes <= BLOCK_BYTES_MAX, "a history is bounded"
        if gathered and (size + group_bytes > PACK_BYTES or len(gathered) == GROUPS_MAX):
            yield _packed(tier, slot_ms, gathered)
            gathered, size = [], 0
        gathered.append((encoded, points))
        size += group_bytes
    if gathered:
        yield _packed(tier, slot_ms, gathered)


def _packed(tier: Tier, slot_ms: int, groups: list[tuple[bytes, Columns]]) -> bytes:
    parts = [COUNT.pack(len(groups))]
    parts += (GROUP.pack(len(name), len(points.times)) + name for name, points in groups)
    for column in range(3):
        parts += (_little(points[column]).tobytes() for _, points in groups)
    raw = b"".join(parts)
    header = HEADER.pack(MAGIC, VERSION, tier, slot_ms, len(raw), _checksum(tier, slot_ms, raw))
    return header + zlib.compress(raw, FASTEST)


def parsed(block: bytes) -> Block:
    """Return what a block says; raises DamagedBlock."""
    if len(block) < HEADER.size or not block.startswith(MAGIC):
        raise DamagedBlock(f"expected a block of the console's history, found {block[:8]!r}")
    _, version, tier_number, slot_ms, size, checksum = HEADER.unpack_from(block)
    if version != VERSION:
        raise DamagedBlock(f"expected version {VERSION} of the format, found {version}")
    if size > BLOCK_BYTES_MAX:
        raise DamagedBlock(f"expected at most {BLOCK_BYTES_MAX} bytes, found {size}")
    unpack = zlib.decompressobj()
    try:
        raw = unpack.decompress(memoryview(block)[HEADER.size :], size + 1)
    except zlib.error as error:
        raise DamagedBlock(f"it cannot be unpacked: {error}") from error
    if len(raw) != size or not unpack.eof or unpack.unused_data:
        raise DamagedBlock(f"expected {size} bytes unpacked, found {len(raw)} or another end")
    if tier_number not in tuple(Tier) or checksum != _checksum(tier_number, slot_ms, raw):
        raise DamagedBlock("the checksum does not fit")
    tier = Tier(tier_number)
    try:
        groups = tuple(_groups(raw, keep_ms=tier.keep_ms))
    except (struct.error, UnicodeDecodeError) as error:
        raise DamagedBlock(f"its groups cannot be read: {error}") from error
    return Block(tier, slot_ms, groups)


def _groups(raw: bytes, *, keep_ms: int) -> Iterator[GroupPoints]:
    (count,) = COUNT.unpack_from(raw)
    if not 0 < count <= GROUPS_MAX:
        raise DamagedBlock(f"expected 1 to {GROUPS_MAX} groups, found {count}")
    names: dict[str, int] = {}
    at = COUNT.size
    for _ in range(count):
        length, points = GROUP.unpack_from(raw, at)
        at += GROUP.size + length
        encoded = raw[at - length : at]
        if not 0 < length == len(encoded) or not points:
            raise DamagedBlock(f"a group has an id of {length} bytes and {points} points")
        names[encoded.decode("utf-8", "surrogatepass")] = points
    total = sum(names.values())
    if len(names) != count or len(raw) - at != total * POINT_BYTES:
        raise DamagedBlock(f"expected {total} points of {count} groups, each of them once")
    column_bytes = total * NUMBER_BYTES
    for name, points in names.items():
        size = points * NUMBER_BYTES
        starts = (at + part * column_bytes for part in range(3))
        columns = Columns(*(_numbers(raw[start : start + size]) for start in starts))
        _check_points(columns, keep_ms)
        yield GroupPoints(name, columns)
        at += size


def _check_points(points: Columns, keep_ms: int) -> None:
    times, lags, settled = points
    if any(before >= after for before, after in pairwise(times)):
        raise DamagedBlock("the points of a group are not in order of time")
    if times[0] < 0 or times[-1] - times[0] > keep_ms:
        raise DamagedBlock(f"a group has points from {times[0]} to {times[-1]} ms")
    if min(lags) < UNKNOWN or min(settled) < 0 or max(settled) > SETTLED_MAX:
        raise DamagedBlock("a group has a lag or a number of settled offsets that cannot be")


def _checksum(tier: int, slot_ms: int, raw: bytes) -> int:
    return zlib.crc32(raw, zlib.crc32(b"%d %d" % (tier, slot_ms)))


def _numbers(column: bytes) -> array[int]:
    numbers = array("q")
    numbers.frombytes(column)
    return _little(numbers)


def _little(column: array[int]) -> array[int]:
    """Return the column with the bytes of a little-endian machine, or of this one, vice versa."""
    if sys.byteorder == "little":
        return column
    swapped = column[:]
    swapped.byteswap()
    return swapped
