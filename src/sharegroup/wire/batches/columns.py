"""Records as columns: a whole response decoded at once, with numpy, into Arrow arrays.

A record is a chain of variable-length numbers and byte strings, so its end is known only after
reading it. Only one step is done record by record: hopping from length to length to find where each
record begins. All other steps are done for all records together, field by field::

    octets   |len|attr|time|offset|klen| key |vlen| value |headers|len|attr| ...
    starts    ^-------------------- hop ------------------------->^---
    position      all times -> all offsets -> all key lengths -> all value lengths ...

Keys and values are then cut out of the response by their boundaries: an Arrow array over the bytes
in place, of which every second element is taken. No record becomes a Python object. numpy's cost is
per call, so all batches of about ``group_bytes`` are decoded together: a log with one record per
batch is read nearly as fast as one with large batches.

The bytes are untrusted. Every length is compared with the record that contains it before it is
used, and batches are decompressed under a limit. The memory of each result is limited by
``group_bytes`` and the largest batch. The result equals that of `records.decode_records`, which a
test checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from sharegroup.errors import CorruptMessage, MissingExtra
from sharegroup.installation import pip_install
from sharegroup.wire.batches.batches import (
    CHECKED_AT,
    CODEC_MASK,
    CONTROL,
    HEADER_BYTES,
    LENGTH_END,
    LOG_APPEND_TIME,
    RECORD_BYTES_MIN,
    UNREADABLE,
    Buffer,
    batch_positions,
    parse_header,
)
from sharegroup.wire.batches.compression import DECOMPRESSED_BYTES_MAX, TooLarge, decompress

try:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from sharegroup.wire.batches.header_columns import cut, read_headers
    from sharegroup.wire.batches.number_arrays import (
        INT_BYTES_MAX,
        LONG_BYTES_MAX,
        Integers,
        read_varints,
    )
except ModuleNotFoundError as error:
    raise MissingExtra(
        f"{error}: columns need numpy and pyarrow, {pip_install('arrow')}"
    ) from error

SPAN_BYTES_MAX = 2**31 - 1
"""Number of bytes in an Arrow array of strings, which counts them with 32 bits."""

GROUP_BYTES = 4 * 1024 * 1024
"""Size of a group: enough records of 1 KiB to outweigh numpy's cost per call."""

ABREAST_MIN = 24
"""Number of batches that are worth a call of numpy for each of their records."""

Unreadable = Callable[[int, int, Exception], None]
"""Receives the offsets [first, end) of a batch that cannot be read, and the error."""

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
    """Return the distance to the next record by a record's first two bytes; 0 if unknown."""
    first, second = np.arange(1 << 16) & 0xFF, np.arange(1 << 16) >> 8
    of_two = 2 + ((first & 0x7F | second << 7) >> 1)
    return np.where(first < 0x80, 1 + (first >> 1), np.where(second < 0x80, of_two, 0))


_STEPS = _steps()


class OffsetRanges(NamedTuple):
    """Ascending, disjoint offset ranges [first, end), as two arrays of equal length."""

    first: Integers
    end: Integers

    @classmethod
    def of(cls, pairs: Iterator[tuple[int, int]] | list[tuple[int, int]]) -> OffsetRanges:
        """Return the ranges given as pairs (first, end)."""
        table = np.array(list(pairs), dtype=np.int64).reshape(-1, 2)
        return cls(table[:, 0], table[:, 1])


class RecordColumns(NamedTuple):
    """Records in columns of the same length, which is 1 or more."""

    offsets: Integers
    timestamps: Integers
    """Milliseconds since 1970; -1 if the producer set none."""
    timestamp_types: npt.NDArray[np.int32]
    """0: the producer's time; 1: the broker's time when it appended the record."""
    keys: pa.BinaryArray
    values: pa.BinaryArray
    headers: pa.ListArray | None
    """Of type `header_columns.HEADERS`, null if a record has none; None if not requested."""
    range_index: Integers
    """The index of the range that contains each record; 0 if no ranges were given."""


def record_columns(
    buffer: Buffer,
    ranges: OffsetRanges | None = None,
    *,
    positions: Sequence[int] | None = None,
    headers: bool = False,
    group_bytes: int = GROUP_BYTES,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    unreadable: Unreadable | None = None,
    in_pieces: bool = True,
) -> Iterator[RecordColumns]:
    """Iterate over the records of all whole batches in order, or those in ``ranges``, in groups.

    ``positions`` are those of the batches, if the caller knows them from `batch_positions`.

    Control batches are skipped, and so is an incomplete batch at the end. Batches that no range
    touches are not decoded. Raises CorruptMessage for a batch with an invalid header, checksum or
    record; headers of records are checked only if they are requested. Raises
    UnsupportedCompressionType for an unknown codec. With ``unreadable`` such a batch is skipped and
    reported, unless its length is invalid.  A batch that decompresses to more than
    ``decompressed_bytes_max`` comes in pieces, or counts as unreadable without ``in_pieces``.
    """
    octets = np.frombuffer(buffer, dtype=np.uint8)
    positions = batch_positions(buffer) if positions is None else positions
    starts: Integers = np.array(positions, dtype=np.int64)
    # The last batch of a group may exceed its size, and the whole must fit into one Arrow array.
    decompressed_bytes_max = min(decompressed_bytes_max, SPAN_BYTES_MAX - group_bytes)
    table = octets[starts[:, None] + np.arange(HEADER_BYTES)].view(_HEADER)[:, 0]
    is_selected = table["attributes"] & CONTROL == 0
    if ranges is not None:
        is_selected &= _touched(table, ranges)
    starts, table = starts[is_selected], table[is_selected]
    limits = _Limits(group_bytes, decompressed_bytes_max, in_pieces)
    for group in _groups(buffer, starts, table, limits, unreadable):
        try:
            columns = _decode(group, ranges, headers=headers)
        except CorruptMessage:
            if unreadable is None:
                raise
            yield from _decode_apart(group, ranges, unreadable, headers=headers)
            continue
        if columns is not None:
            yield columns


class _Limits(NamedTuple):
    group_bytes: int
    decompressed_bytes_max: int
    in_pieces: bool


class _Group(NamedTuple):
    """Batches that are decoded together."""

    body: Buffer
    first: Integers
    """Positions in ``body`` at which the records of each batch begin."""
    end: Integers
    table: npt.NDArray[np.void]
    """The headers of the batches."""
    covers: tuple[int, int] | None = None
    """The offsets [first, end) of a piece of a batch; None for whole batches."""


def _touched(table: npt.NDArray[np.void], ranges: OffsetRanges) -> npt.NDArray[np.bool_]:
    """Return which batches may have an offset of the ranges, according to their headers."""
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
    limits: _Limits,
    unreadable: Unreadable | None,
) -> Iterator[_Group]:
    """Iterate over groups of batches with valid checksums, of about ``group_bytes`` each.

    The loop runs once per batch and is hot if batches are small.
    """
    group_bytes, decompressed_bytes_max, in_pieces = limits
    view = memoryview(buffer)
    begins = positions.tolist()
    ends = (positions + LENGTH_END + table["length"]).tolist()
    codecs = (table["attributes"] & CODEC_MASK).tolist()
    crcs = table["crc"].tolist()
    bodies: list[Buffer] = []
    batches: list[int] = []
    total = 0

    def group() -> _Group:
        first, last = batches[0], batches[-1]
        # In place, the view also spans the batches between that are not wanted.
        if any(codecs[first : last + 1]) or ends[last] - begins[first] > SPAN_BYTES_MAX:
            return _joined(bodies, table[batches])
        return _in_place(view, positions[batches], table[batches])

    for index, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        is_large = False
        try:
            if crc32c(view[begin + CHECKED_AT : end]) != crcs[index]:
                raise _corrupt(table[index], "the checksum does not match")
            body: Buffer = view[begin + HEADER_BYTES : end]
            if codecs[index]:
                body = _decompressed(table[index], body, decompressed_bytes_max)
            bodies.append(body)
            batches.append(index)
            total += len(body)
        except UNREADABLE as error:
            if batches:  # What is reported comes behind the records before it.
                yield group()
                bodies, batches, total = [], [], 0
            is_large = isinstance(error, TooLarge) and in_pieces
            if not is_large and unreadable is None:
                raise
            if not is_large and unreadable is not None:
                unreadable(*_offsets(table[index]), error)
        if is_large:  # Behind the handler, because the error holds the buffers that were too small.
            yield from _streamed(view[begin:end], table[index], limits, unreadable)
        if batches and (total >= group_bytes or index + 1 == len(begins)):
            yield group()
            bodies, batches, total = [], [], 0


def _streamed(
    batch: memoryview, row: np.void, limits: _Limits, unreadable: Unreadable | None
) -> Iterator[_Group]:
    """Iterate over the pieces of a batch that decompresses to more than the limit."""
    # Imported here because few batches are that large, and it imports the codec of records.
    from sharegroup.wire.batches.record_pieces import WholeRecords, cut_pieces

    for piece in cut_pieces(
        batch, parse_header(batch), record_bytes_max=limits.decompressed_bytes_max
    ):
        if isinstance(piece, WholeRecords):
            table = np.array([row])
            table["record_count"] = piece.record_count
            yield _joined([piece.body], table)._replace(covers=(piece.first, piece.end))
        elif unreadable is None:
            raise piece.error
        else:
            unreadable(*piece)


def _offsets(header: np.void) -> tuple[int, int]:
    """Return the offsets [first, end) that a batch claims."""
    first = int(header["base_offset"])
    return first, first + int(header["last_offset_delta"]) + 1


def _in_place(view: memoryview, positions: Integers, table: npt.NDArray[np.void]) -> _Group:
    """Return a group of uncompressed batches, whose records stay between their headers."""
    first = positions - positions[0] + HEADER_BYTES
    end = positions - positions[0] + LENGTH_END + table["length"]
    base = int(positions[0])
    return _Group(view[base : base + int(end[-1])], first, end, table)


def _joined(bodies: list[Buffer], table: npt.NDArray[np.void]) -> _Group:
    end = np.cumsum([len(body) for body in bodies])
    return _Group(b"".join(bodies), np.concatenate(([0], end[:-1])), end, table)


def _decompressed(header: np.void, body: Buffer, bytes_max: int) -> Buffer:
    # Java does not look at the body of a batch without records (`records.read_batch`).
    if not header["record_count"]:
        return b""
    codec = int(header["attributes"]) & CODEC_MASK
    try:
        return decompress(codec, body, bytes_max=bytes_max)
    except CorruptMessage as error:
        # Of the same type, because `TooLarge` is no damage.
        raise type(error)(f"batch at offset {int(header['base_offset'])}: {error}") from error


def _decode_apart(
    group: _Group, ranges: OffsetRanges | None, unreadable: Unreadable, *, headers: bool
) -> Iterator[RecordColumns]:
    """Decode each batch of a group alone, and skip those that cannot be read."""
    for index in range(len(group.table)):
        batch = slice(index, index + 1)
        single_batch = _Group(group.body, group.first[batch], group.end[batch], group.table[batch])
        try:
            columns = _decode(single_batch, ranges, headers=headers)
        except CorruptMessage as error:
            unreadable(*(group.covers or _offsets(single_batch.table[0])), error)
            continue
        if columns is not None:
            yield columns


def _decode(group: _Group, ranges: OffsetRanges | None, *, headers: bool) -> RecordColumns | None:
    """Return the columns of one group; None if no record lies within the ranges."""
    octets = np.frombuffer(group.body, dtype=np.uint8)
    try:
        starts, ends, batch = _record_bounds(group)
        lengths, at = read_varints(octets, starts, INT_BYTES_MAX)
        _require(at + lengths == ends, group, batch, "its length does not match its fields")
        times, at = read_varints(octets, at + 1, LONG_BYTES_MAX)  # Behind the attributes.
        deltas, at = read_varints(octets, at, INT_BYTES_MAX)
        # As `records` requires it, so that no batch has offsets of another one.
        ascends = (deltas >= 0) & (deltas <= group.table["last_offset_delta"][batch])
        ascends[1:] &= (np.diff(deltas) > 0) | (np.diff(batch) > 0)
        _require(ascends, group, batch, "its offset does not follow that of the record before it")
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
        # Not `<=`: the size of the value follows, and the count of headers after the value.
        _require(key_end < ends, group, batch, "its key extends beyond its end")
        value_sizes, value_first = read_varints(octets, key_end, INT_BYTES_MAX)
        value_end = value_first + np.maximum(value_sizes, 0)
        _require(value_end < ends, group, batch, "its value extends beyond its end")
        counts, at = read_varints(octets, value_end, INT_BYTES_MAX)
        _require(counts >= 0, group, batch, "it has a negative count of headers")
        _require((counts > 0) | (at == ends), group, batch, "unexpected bytes follow its value")
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
    """Return for each record: its first position, its end, and the index of its batch."""
    counts = group.table["record_count"].astype(np.int64)
    sizes = group.end - group.first
    fits = (counts >= 0) & (counts <= sizes // RECORD_BYTES_MIN)
    _require(fits, group, np.arange(len(counts)), "the number of records does not match its size")
    # Behind the check, because it allocates a number for each record that is claimed.
    starts = _hop(group.body, group.first, counts)
    ends = np.empty_like(starts)
    # A record ends where the next one begins, and the last of a batch with its batch.
    ends[:-1] = starts[1:]
    ends[np.cumsum(counts)[counts > 0] - 1] = group.end[counts > 0]
    return starts, ends, np.repeat(np.arange(len(counts)), counts)


def _hop(body: Buffer, first: Integers, counts: Integers) -> Integers:
    """Return the positions at which records begin, by hopping from length to length.

    The hottest loop, and the only one over records. It checks nothing: a negative or false length
    leads to bounds that do not match the records' lengths, which are compared later for all records
    at once. Each hop advances by a byte or more, so the loop ends.

    Many batches hop abreast: the first record of all, then the second, and so on, with the longest
    batches first. When few batches are left, each is finished alone.
    """
    total = int(counts.sum())
    starts = np.empty(total, dtype=np.int64)
    order = np.argsort(-counts, kind="stable")
    at, slots, remaining = first[order], (np.cumsum(counts) - counts)[order], counts[order]
    abreast = len(remaining) - np.searchsorted(
        remaining[::-1], np.arange(remaining.max(initial=0)), side="right"
    )
    # Overlapping numbers of two bytes, in place: the first two bytes at any position in one
    # look-up.
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
                # Rare: a length of three bytes or more is that of a record of 8 KiB or more.
                steps[index] = _behind_long(body, int(at[index])) - at[index]
        at = at + steps
        done += 1
    for index in np.flatnonzero(remaining > done).tolist():
        slot, count = int(slots[index]), int(remaining[index])
        starts[slot + done : slot + count] = _hop_alone(body, int(at[index]), count - done)
    return starts


def _hop_alone(body: Buffer, position: int, count: int) -> list[int]:
    """Return the positions of ``count`` records of one batch."""
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
    """Return the end of a record whose length takes more than two bytes."""
    length = 0
    for shift in range(0, 7 * INT_BYTES_MAX, 7):
        octet = body[position]
        position += 1
        length |= (octet & 0x7F) << shift
        if octet < 0x80:
            break
    return position + ((length & 0xFFFFFFFF) >> 1)


def _within(offsets: Integers, ranges: OffsetRanges) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """Return the index of the range that may contain each offset, and whether it does."""
    index = np.searchsorted(ranges.first, offsets, side="right") - 1
    return index, (index >= 0) & (offsets < ranges.end[index])


def _times(
    deltas: Integers, table: npt.NDArray[np.void], batch: Integers
) -> tuple[Integers, npt.NDArray[np.int32]]:
    """Return the timestamps of the records and their types."""
    types = (table["attributes"] & LOG_APPEND_TIME != 0).astype(np.int32)[batch]
    times = table["first_timestamp"].astype(np.int64)[batch] + deltas
    appended = table["max_timestamp"].astype(np.int64)[batch]
    return np.where(types == 1, appended, times), types


def _require(holds: npt.NDArray[np.bool_], group: _Group, batch: Integers, otherwise: str) -> None:
    if not holds.all():
        header = group.table[batch[int(np.argmin(holds))]]
        count, offset = int(header["record_count"]), int(header["base_offset"])
        raise CorruptMessage(f"in the batch of {count} records at offset {offset}: {otherwise}")


def _corrupt(header: np.void, problem: str) -> CorruptMessage:
    return CorruptMessage(f"batch at offset {int(header['base_offset'])}: {problem}")
