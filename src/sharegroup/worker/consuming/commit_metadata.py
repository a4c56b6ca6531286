"""The metadata of a committed offset: records above it that are finished, and delivery counts.

A consumer group commits one offset for each partition.  Handlers run concurrently, so records above
that offset are finished, too, and after a rebalance they would run again.  Kafka stores up to 4,096
characters of metadata beside an offset; this module writes them into it:

    offset 100           finished 101 103 104..199        delivered 100..249 once, 250..299 twice

    "sharegroup:" base85( version | kind, flags | checksum | zlib( delivery ranges, finished set ) )

The finished set is written in the smallest of three forms: a bitmap, runs, or deltas.  A set that
is too large is cut at its upper end: the records that are left out may run twice.

The checksum covers the offset, so metadata that was copied to another offset is ignored, and so is
the metadata of another program.  Pure.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from sharegroup.client.share.session.offset_set import EMPTY, OffsetSet, Range
from sharegroup.wire.varints import uvarint

CHARACTERS_MAX = 4_096
"""Kafka's default of ``offset.metadata.max.bytes``."""
PREFIX = "sharegroup:"
VERSION = 1
OFFSETS_MAX = 1_000_000
"""Finished offsets this far above the committed one are left out."""
BODY_BYTES_MAX = 256 * 1024
"""The maximum size of the decompressed body; a few compressed bytes can expand to a gigabyte."""
DELIVERY_RANGES_MAX = 16
"""Ranges of delivery counts that are kept; neighbours above this number are merged."""
DELIVERIES_MAX = 1_000
"""The highest delivery count that is written."""
IS_OPEN = 0x80
KIND_BITS = 0x0F
CHECKSUM_BYTES = 4


class SetKind(IntEnum):
    """The form in which a finished set is written."""

    RUNS = 0
    BITMAP = 1
    DELTAS = 2


class DeliveryRange(NamedTuple):
    """The delivery count of the records below ``end``, from the end of the range before."""

    end: int
    times: int


@dataclass(frozen=True, slots=True)
class CommitState:
    """The contents of the metadata of a committed offset."""

    finished: OffsetSet = EMPTY
    """The finished records above the offset."""
    deliveries: tuple[DeliveryRange, ...] = ()
    """How often records from the offset on were delivered, in ascending order."""
    is_open: bool = False
    """Whether an owner has the partition.  False after it has given the partition up by itself."""


NOTHING = CommitState()


class UnreadableMetadata(ValueError):
    """The metadata is not that of a worker for this offset; the text says what was found."""


def written(offset: int, state: CommitState, *, characters_max: int = CHARACTERS_MAX) -> str:
    """Return the metadata for a commit of this offset, of at most ``characters_max`` characters.

    Finished records that do not fit are left out from the upper end.  The text is empty if not
    even the delivery counts fit, or if there is nothing to say.
    """
    finished = state.finished.between(offset + 1, offset + OFFSETS_MAX)
    state = CommitState(finished, _bounded(state.deliveries), state.is_open)
    if state == NOTHING:
        return ""
    text = _text(offset, state)
    if len(text) <= characters_max:
        return text
    fits, too_many = 0, len(finished.ranges)
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        shorter = CommitState(OffsetSet(finished.ranges[:middle]), state.deliveries, state.is_open)
        if len(_text(offset, shorter)) <= characters_max:
            fits = middle
        else:
            too_many = middle
    text = _text(
        offset, CommitState(OffsetSet(finished.ranges[:fits]), state.deliveries, state.is_open)
    )
    return text if len(text) <= characters_max else ""


def read(offset: int, metadata: str) -> CommitState:
    """Return the contents of metadata.  Raises UnreadableMetadata if a worker did not write it."""
    if not metadata:
        return NOTHING
    if not metadata.startswith(PREFIX):
        raise UnreadableMetadata(f"expected metadata that starts with {PREFIX!r}")
    try:
        packed = base64.b85decode(metadata.removeprefix(PREFIX))
    except ValueError as error:
        raise UnreadableMetadata(f"expected base85: {error}") from error
    if len(packed) < 2 + CHECKSUM_BYTES:
        raise UnreadableMetadata(f"expected a header, found {len(packed)} bytes")
    version, flags = packed[:2]
    if version != VERSION:
        raise UnreadableMetadata(f"expected version {VERSION}, found {version}")
    body = _decompressed(packed[2 + CHECKSUM_BYTES :])
    checksum = packed[2 : 2 + CHECKSUM_BYTES]
    if checksum != _checksum(offset, flags, body):
        raise UnreadableMetadata(f"the checksum is not that of offset {offset}")
    if flags & KIND_BITS not in SetKind.__members__.values():
        raise UnreadableMetadata(f"found a set of kind {flags & KIND_BITS}")
    deliveries, position = _read_deliveries(offset, body)
    finished = _read_set(SetKind(flags & KIND_BITS), offset, body[position:])
    return CommitState(finished, deliveries, bool(flags & IS_OPEN))


def _text(offset: int, state: CommitState) -> str:
    """Return the shortest of the texts with each kind of set."""
    counts = _deliveries(offset, state.deliveries)
    texts = []
    for kind, octets in _forms(offset, state.finished):
        flags = kind | (IS_OPEN if state.is_open else 0)
        body = counts + octets
        head = bytes((VERSION, flags)) + _checksum(offset, flags, body)
        packed = head + zlib.compress(body, level=6)
        texts.append(PREFIX + base64.b85encode(packed).decode("ascii"))
    return min(texts, key=len)


def _checksum(offset: int, flags: int, body: bytes) -> bytes:
    start = zlib.crc32(bytes((flags,)), zlib.crc32(offset.to_bytes(8)))
    return zlib.crc32(body, start).to_bytes(CHECKSUM_BYTES)


def _decompressed(packed: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        body = stream.decompress(packed, BODY_BYTES_MAX)
    except zlib.error as error:
        raise UnreadableMetadata(f"expected compressed bytes: {error}") from error
    if not stream.eof or stream.unused_data:
        raise UnreadableMetadata(f"expected one stream of up to {BODY_BYTES_MAX} bytes")
    return body


# The forms of a finished set, relative to the committed offset.


def _forms(offset: int, finished: OffsetSet) -> Iterator[tuple[SetKind, bytes]]:
    runs = bytearray()
    end_before = offset
    for first, end in finished:
        runs += uvarint(first - end_before) + uvarint(end - first)
        end_before = end
    yield SetKind.RUNS, bytes(runs)
    if not finished:
        return
    span = finished.ranges[-1][1] - offset
    # A bitmap or deltas of long runs are larger than the runs, whatever zlib makes of them.
    if finished.count > 4 * len(runs) and span > 8 * len(runs) * len(finished.ranges):
        return
    bits = 0
    for first, end in finished:
        bits |= ((1 << (end - first)) - 1) << (first - offset)
    yield SetKind.BITMAP, bits.to_bytes((span + 7) // 8, "little")
    if finished.count <= len(runs):
        deltas = bytearray()
        before = offset
        for first, end in finished:
            for done in range(first, end):
                deltas += uvarint(done - before)
                before = done
        yield SetKind.DELTAS, bytes(deltas)


def _read_set(kind: SetKind, offset: int, octets: bytes) -> OffsetSet:
    ranges: list[Range] = []
    match kind:
        case SetKind.BITMAP:
            return OffsetSet.of_offsets(
                [
                    offset + (index << 3) + bit
                    for index, octet in enumerate(octets)
                    if octet
                    for bit in range(8)
                    if octet >> bit & 1
                ]
            )
        case SetKind.RUNS:
            numbers = list(_numbers(octets))
            if len(numbers) % 2:
                raise UnreadableMetadata("expected a length for each run")
            end = offset
            for gap, length in zip(numbers[::2], numbers[1::2], strict=True):
                ranges.append((end + gap, end + gap + length))
                end += gap + length
        case SetKind.DELTAS:
            before = offset
            for delta in _numbers(octets):
                before += delta
                ranges.append((before, before + 1))
    if ranges and ranges[-1][1] > offset + BODY_BYTES_MAX * 8:
        raise UnreadableMetadata(f"found offset {ranges[-1][1] - 1}, far above {offset}")
    return OffsetSet.of(ranges)


# Delivery counts.


def _bounded(deliveries: tuple[DeliveryRange, ...]) -> tuple[DeliveryRange, ...]:
    """Merge neighbours until at most `DELIVERY_RANGES_MAX` are left; the higher count stays."""
    ranges = list(deliveries)
    while len(ranges) > DELIVERY_RANGES_MAX:
        lower, upper = ranges[-2:]
        ranges[-2:] = [DeliveryRange(upper.end, max(lower.times, upper.times))]
    return tuple(ranges)


def _deliveries(offset: int, deliveries: tuple[DeliveryRange, ...]) -> bytes:
    octets = bytearray(uvarint(len(deliveries)))
    before = offset
    for end, times in deliveries:
        assert end > before, f"a range of delivery counts ends at {end}, expected above {before}"
        octets += uvarint(end - before) + uvarint(min(times, DELIVERIES_MAX))
        before = end
    return bytes(octets)


def _read_deliveries(offset: int, body: bytes) -> tuple[tuple[DeliveryRange, ...], int]:
    """Return the ranges and the position behind them."""
    position = 0

    def number() -> int:
        nonlocal position
        value, position = _number(body, position)
        return value

    length = number()
    if length > DELIVERY_RANGES_MAX:
        raise UnreadableMetadata(f"found {length} delivery ranges, expected {DELIVERY_RANGES_MAX}")
    ranges: list[DeliveryRange] = []
    end = offset
    for _ in range(length):
        span, count = number(), number()
        if span == 0 or count > DELIVERIES_MAX:
            raise UnreadableMetadata(f"found a delivery count of {count} for {span} offsets")
        end += span
        ranges.append(DeliveryRange(end, count))
    return tuple(ranges), position


def _numbers(octets: bytes) -> Iterator[int]:
    position = 0
    while position < len(octets):
        value, position = _number(octets, position)
        yield value


def _number(octets: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(octets) and shift < 63:
        octet = octets[position]
        position += 1
        value |= (octet & 0x7F) << shift
        if octet < 0x80:
            return value, position
        shift += 7
    raise UnreadableMetadata("a number is not complete")
