"""Records as columns: a broker's whole answer decoded at once, with numpy, into Arrow arrays.

A record is a chain of variable-length numbers and byte strings; where one ends is only known
by reading it.  One thing has to be done record by record: hopping from length to length to
find where each begins.  Everything else is done for all records together, field by field::

    octets   |len|attr|time|offset|klen| key |vlen| value |headers|len|attr| ...
    starts    ^-------------------- hop ------------------------->^---
    position      all times -> all offsets -> all key lengths -> all value lengths ...

Keys and values are then cut out of the answer by their boundaries: an Arrow array over the
bytes as they lie there, whose every second element is taken.  No record becomes a Python
object.  numpy's cost is per call, so all batches of about ``group_bytes`` are decoded
together: a log of batches with one record each is read nearly as fast as one of large batches.

The bytes are a stranger's.  Every length is held against the record it stands in before
anything is read or made by it, batches are decompressed under a limit, and what is yielded at
a time is bounded by ``group_bytes`` and the largest batch.  What is read is what
`records.decode_records` reads, held so by a test.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from sharegroup.errors import CorruptMessage
from sharegroup.wire.batches import (
    CHECKED_AT,
    CODEC_MASK,
    CONTROL,
    HEADER_BYTES,
    LENGTH_END,
    LENGTH_MIN,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_AT,
    Buffer,
)
from sharegroup.wire.compression import decompress
from sharegroup.wire.records import DECOMPRESSED_BYTES_MAX

try:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from sharegroup.wire.header_columns import cut, read_headers
    from sharegroup.wire.varints import (
        INT_BYTES_MAX,
        LONG_BYTES_MAX,
        Integers,
        read_varints,
    )
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"{error}: columns need numpy and pyarrow, pip install 'sharegroup[arrow]'"
    ) from error

SPAN_BYTES_MAX = 2**31 - 1
"""Arrow's arrays of strings count their bytes with 32 bits."""

GROUP_BYTES = 4 * 1024 * 1024
"""Enough records of 1 KiB to make up for numpy's cost per call; more gains nothing."""

RECORD_BYTES_MIN = 7
"""One byte for each of length, attributes, time, offset, both lengths, and header count."""

ABREAST_MIN = 24
"""Batches that are worth a call of numpy for each of their records."""

_length = Struct(">i")

_HEADER = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("first_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
assert _HEADER.itemsize == HEADER_BYTES


def _steps() -> Integers:
    """By a record's first two bytes, how far it is to the next one; 0 where two don't tell."""
    first, second = np.arange(1 << 16) & 0xFF, np.arange(1 << 16) >> 8
    of_two = 2 + ((first & 0x7F | second << 7) >> 1)
    return np.where(first < 0x80, 1 + (first >> 1), np.where(second < 0x80, of_two, 0))


_STEPS = _steps()


class Ranges(NamedTuple):
    """Ascending, disjoint offset ranges [first, end), as two arrays of equal length."""

    first: Integers
    end: Integers

    @classmethod
    def of(cls, pairs: Iterator[tuple[int, int]] | list[tuple[int, int]]) -> Ranges:
        """From pairs (first, end)."""
        table = np.array(list(pairs), dtype=np.int64).reshape(-1, 2)
        return cls(table[:, 0], table[:, 1])


class RecordColumns(NamedTuple):
    """Records side by side; all columns have the same length, which is 1 or more."""

    offsets: Integers
    timestamps: Integers
    """Milliseconds since 1970; -1 where the producer set none."""
    timestamp_types: npt.NDArray[np.int32]
    """0: the time is the producer's; 1: the broker's, when it appended the record."""
    keys: pa.BinaryArray
    values: pa.BinaryArray
    headers: pa.ListArray | None
    """Of type `header_columns.HEADERS`, null for a record without any; None if not asked for."""
    range_index: Integers
    """Of each record, which of the asked ranges it lies in; 0 where none were asked for."""


def record_columns(
    buffer: Buffer,
    ranges: Ranges | None = None,
    *,
    headers: bool = False,
    group_bytes: int = GROUP_BYTES,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> Iterator[RecordColumns]:
    """The records of all whole batches in order, or of those within ``ranges``, in groups.

    Control batches are passed over, an incomplete batch at the end is left out.  Batches that
    no range touches are not looked into.  Raises CorruptMessage for a batch that is none,
    whose checksum does not hold, or whose records are none; headers are only checked where
    they are asked for.  UnsupportedCompressionType for a codec that does not exist.
    """
    octets = np.frombuffer(buffer, dtype=np.uint8)
    positions = batch_positions(buffer)
    decompressed_bytes_max = min(decompressed_bytes_max, SPAN_BYTES_MAX - group_bytes)
    table = octets[positions[:, None] + np.arange(HEADER_BYTES)].view(_HEADER)[:, 0]
    wanted = table["attributes"] & CONTROL == 0
    if ranges is not None:
        wanted &= _touched(table, ranges)
    positions, table = positions[wanted], table[wanted]
    for group in _groups(buffer, positions, table, group_bytes, decompressed_bytes_max):
        if (columns := _decode(group, ranges, headers=headers)) is not None:
            yield columns


class _Group(NamedTuple):
    """Batches that are decoded together."""

    body: Buffer
    first: Integers
    """Where in ``body`` the records of each batch begin."""
    end: Integers
    table: npt.NDArray[np.void]
    """The batches' headers."""


def batch_positions(buffer: Buffer) -> Integers:
    """Where the whole batches begin.  A hot loop."""
    positions = []
    position = 0
    size = len(buffer)
    unpack_length = _length.unpack_from
    while size - position >= HEADER_BYTES:
        (length,) = unpack_length(buffer, position + LENGTH_END - _length.size)
        if length < LENGTH_MIN or buffer[position + MAGIC_AT] != MAGIC:
            raise CorruptMessage(
                f"batch at byte {position}: expected magic {MAGIC} and a length of {LENGTH_MIN} "
                f"or more, found magic {buffer[position + MAGIC_AT]} and length {length}"
            )
        if LENGTH_END + length > size - position:
            break
        positions.append(position)
        position += LENGTH_END + length
    return np.array(positions, dtype=np.int64)


def _touched(table: npt.NDArray[np.void], ranges: Ranges) -> npt.NDArray[np.bool_]:
    """Which batches hold an offset of the ranges, going by their headers."""
    if not ranges.first.size:
        return np.zeros(len(table), dtype=bool)
    base = table["base_offset"].astype(np.int64)
    last = base + table["last_offset_delta"]
    behind = np.searchsorted(ranges.end, base, side="right")
    inside = np.minimum(behind, ranges.first.size - 1)
    touched: npt.NDArray[np.bool_] = (behind < len(ranges.first)) & (ranges.first[inside] <= last)
    return touched


def _groups(
    buffer: Buffer,
    positions: Integers,
    table: npt.NDArray[np.void],
    group_bytes: int,
    decompressed_bytes_max: int,
) -> Iterator[_Group]:
    """Batches with intact checksums, as many at a time as make up ``group_bytes``.

    The loop is per batch and hot where batches are small.
    """
    view = memoryview(buffer)
    begins = positions.tolist()
    ends = (positions + LENGTH_END + table["length"]).tolist()
    codecs = (table["attributes"] & CODEC_MASK).tolist()
    crcs = table["crc"].tolist()
    bodies: list[Buffer] = []
    total = begun_at = 0
    for index, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        if crc32c(view[begin + CHECKED_AT : end]) != crcs[index]:
            raise _corrupt(table[index], "the checksum does not hold")
        body: Buffer = view[begin + HEADER_BYTES : end]
        if codecs[index]:
            body = _decompressed(table[index], body, decompressed_bytes_max)
        bodies.append(body)
        total += len(body)
        if total >= group_bytes or index + 1 == len(begins):
            batches = slice(begun_at, index + 1)
            packed = any(codecs[batches]) or end - begins[begun_at] > SPAN_BYTES_MAX
            yield (
                _joined(bodies, table[batches])
                if packed
                else _in_place(view, positions[batches], table[batches])
            )
            bodies, total, begun_at = [], 0, index + 1


def _in_place(view: memoryview, positions: Integers, table: npt.NDArray[np.void]) -> _Group:
    """Batches without compression, as they lie between their headers."""
    first = positions - positions[0] + HEADER_BYTES
    end = positions - positions[0] + LENGTH_END + table["length"]
    base = int(positions[0])
    return _Group(view[base : base + int(end[-1])], first, end, table)


def _joined(bodies: list[Buffer], table: npt.NDArray[np.void]) -> _Group:
    end = np.cumsum([len(body) for body in bodies])
    return _Group(b"".join(bodies), np.concatenate(([0], end[:-1])), end, table)


def _decompressed(header: np.void, body: Buffer, bytes_max: int) -> Buffer:
    codec = int(header["attributes"]) & CODEC_MASK
    try:
        return decompress(codec, body, bytes_max=bytes_max)
    except CorruptMessage as error:
        raise _corrupt(header, str(error)) from error


def _decode(group: _Group, ranges: Ranges | None, *, headers: bool) -> RecordColumns | None:
    """The columns of one group; None when none of its records lies within the ranges."""
    octets = np.frombuffer(group.body, dtype=np.uint8)
    try:
        starts, ends, batch = _record_bounds(group)
        lengths, at = read_varints(octets, starts, INT_BYTES_MAX)
        _require(at + lengths == ends, group, batch, "its length is not that of its fields")
        # Unused so far, and taken for a number of one byte by `records`: read it alike.
        _require(octets[at] < 0x80, group, batch, "unknown attributes")
        times, at = read_varints(octets, at + 1, LONG_BYTES_MAX)
        deltas, at = read_varints(octets, at, INT_BYTES_MAX)
        offsets = group.table["base_offset"].astype(np.int64)[batch] + deltas
        index = np.zeros(len(offsets), dtype=np.int64)
        if ranges is not None:
            index, kept = _within(offsets, ranges)
            if not kept.all():
                at, ends, batch = at[kept], ends[kept], batch[kept]
                times, offsets, index = times[kept], offsets[kept], index[kept]
        if not len(offsets):
            return None
        key_sizes, key_first = read_varints(octets, at, INT_BYTES_MAX)
        key_end = key_first + np.maximum(key_sizes, 0)
        _require(key_end < ends, group, batch, "its key goes beyond it")
        value_sizes, value_first = read_varints(octets, key_end, INT_BYTES_MAX)
        value_end = value_first + np.maximum(value_sizes, 0)
        _require(value_end < ends, group, batch, "its value goes beyond it")
        counts, at = read_varints(octets, value_end, INT_BYTES_MAX)
        _require(counts >= 0, group, batch, "it has a negative count of headers")
        _require((counts > 0) | (at == ends), group, batch, "something follows its value")
        return RecordColumns(
            offsets,
            *_times(times, group.table, batch),
            cut(group.body, key_first, key_end, key_sizes < 0),
            cut(group.body, value_first, value_end, value_sizes < 0),
            read_headers(group.body, octets, at, counts, ends) if headers else None,
            index,
        )
    except (IndexError, CorruptMessage) as error:
        first, last = int(group.table["base_offset"][0]), int(group.table["base_offset"][-1])
        raise CorruptMessage(f"batches at offsets {first} to {last}: {error}") from error


def _record_bounds(group: _Group) -> tuple[Integers, Integers, Integers]:
    """Of each record: where it begins, where it ends, and the index of its batch."""
    counts = group.table["record_count"].astype(np.int64)
    sizes = group.end - group.first
    fits = (counts >= 0) & (counts <= sizes // RECORD_BYTES_MIN) & ((counts > 0) | (sizes == 0))
    _require(fits, group, np.arange(len(counts)), "the count of records does not fit its size")
    starts = _hop(group.body, group.first, counts)
    ends = np.empty_like(starts)
    ends[:-1] = starts[1:]
    ends[np.cumsum(counts)[counts > 0] - 1] = group.end[counts > 0]
    return starts, ends, np.repeat(np.arange(len(counts)), counts)


def _hop(body: Buffer, first: Integers, counts: Integers) -> Integers:
    """Where the records begin, found from length to length.

    The hottest loop, and the only one over records: it judges nothing.  A negative or lying
    length leads to bounds that don't match the records' lengths, which are compared later for
    all at once.  It goes forward by a byte or more each time, so it ends.

    Many batches hop abreast: the first record of all, then the second, and so on, the longest
    batches foremost.  When few are left that go on, each goes its way alone.
    """
    total = int(counts.sum())
    starts = np.empty(total, dtype=np.int64)
    order = np.argsort(-counts, kind="stable")
    at, slots, left = first[order], (np.cumsum(counts) - counts)[order], counts[order]
    abreast = len(left) - np.searchsorted(left[::-1], np.arange(left.max(initial=0)), side="right")
    pairs = np.ndarray((max(0, len(body) - 1),), "<u2", body, strides=(1,))
    done = 0
    for count in abreast.tolist():
        if count < ABREAST_MIN:
            break
        at = at[:count]
        starts[slots[:count] + done] = at
        steps = _STEPS[pairs[at]]
        if not steps.all():
            for index in np.flatnonzero(steps == 0).tolist():
                steps[index] = _behind_long(body, int(at[index])) - at[index]
        at = at + steps
        done += 1
    for index in np.flatnonzero(left > done).tolist():
        slot, count = int(slots[index]), int(left[index])
        starts[slot + done : slot + count] = _hop_alone(body, int(at[index]), count - done)
    return starts


def _hop_alone(body: Buffer, position: int, count: int) -> list[int]:
    """Where so many records of one batch begin."""
    starts: list[int] = []
    append = starts.append
    for _ in range(count):
        append(position)
        octet = body[position]
        if octet < 0x80:
            position += 1 + (octet >> 1)
            continue
        second = body[position + 1]
        if second < 0x80:
            position += 2 + ((octet & 0x7F | second << 7) >> 1)
        else:
            position = _behind_long(body, position)
    return starts


def _behind_long(body: Buffer, position: int) -> int:
    """Where a record ends whose length takes more than two bytes."""
    length = 0
    for shift in range(0, 7 * INT_BYTES_MAX, 7):
        octet = body[position]
        position += 1
        length |= (octet & 0x7F) << shift
        if octet < 0x80:
            break
    return position + (length >> 1)


def _within(offsets: Integers, ranges: Ranges) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """The index of the range each offset may lie in, and whether it does."""
    index = np.searchsorted(ranges.first, offsets, side="right") - 1
    return index, (index >= 0) & (offsets < ranges.end[index])


def _times(
    deltas: Integers, table: npt.NDArray[np.void], batch: Integers
) -> tuple[Integers, npt.NDArray[np.int32]]:
    """The records' times and the kinds of them."""
    types = (table["attributes"] & LOG_APPEND_TIME != 0).astype(np.int32)[batch]
    times = table["first_timestamp"].astype(np.int64)[batch] + deltas
    appended = table["max_timestamp"].astype(np.int64)[batch]
    return np.where(types == 1, appended, times), types


def _require(holds: npt.NDArray[np.bool_], group: _Group, batch: Integers, otherwise: str) -> None:
    if not holds.all():
        header = group.table[batch[int(np.argmin(holds))]]
        count, offset = int(header["record_count"]), int(header["base_offset"])
        raise CorruptMessage(f"in the batch of {count} records at offset {offset}: {otherwise}")


def _corrupt(header: np.void, what: str) -> CorruptMessage:
    return CorruptMessage(f"batch at offset {int(header['base_offset'])}: {what}")
