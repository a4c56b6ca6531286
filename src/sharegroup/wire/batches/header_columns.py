"""The headers of many records as one Arrow column, and the cutting of byte strings into one.

Records have few headers or none, so they are read in rounds: the first header of all records that
have one, then the second, and so on. Beyond ``ROUNDS_MAX`` headers a record is read alone, because
a single record with a million headers would take a million rounds.

Names in the column are text.  A record with a name that is not UTF-8 has the original bytes in a
header more (`header_names.NAMES`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sharegroup.errors import CorruptMessage
from sharegroup.wire.batches.batches import Buffer
from sharegroup.wire.batches.header_names import Header, header_name, with_names, without_names
from sharegroup.wire.batches.number_arrays import (
    INT_BYTES_MAX,
    Integers,
    Octets,
    flag_array,
    number_array,
    read_varints,
)

HEADER_BYTES_MIN = 2
"""Size of a header with an empty name and no value."""
ROUNDS_MAX = 16

NAME_FIRST, NAME_END, VALUE_FIRST, VALUE_END, VALUE_ABSENT = range(5)
"""The rows of a table of headers; the last is 1 for a header without a value."""

HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)


def cut(
    body: Buffer, first: Integers, end: Integers, absent: npt.NDArray[np.bool_]
) -> pa.BinaryArray:
    """Return the byte strings [first, end) of ``body``, which must ascend; null where ``absent``.

    All boundaries in one array make an Arrow array of the strings and the gaps between them, over
    the bytes in place; taking every second element copies the strings together.
    """
    count = len(first)
    if absent.all():  # Often the case for keys.
        return pa.nulls(count, pa.binary())
    # 32 bits are enough, because a group is at most `columns.SPAN_BYTES_MAX` long.
    bounds = np.empty(2 * count, dtype=np.int32)
    bounds[0::2] = first
    bounds[1::2] = end
    pieces = pa.Array.from_buffers(
        pa.binary(), max(0, 2 * count - 1), [None, pa.py_buffer(bounds), pa.py_buffer(body)]
    )
    strings = np.arange(0, 2 * count, 2, dtype=np.int32)
    return pieces.take(number_array(strings, absent=absent))


def read_headers(
    body: Buffer, octets: Octets, at: Integers, counts: Integers, ends: Integers
) -> pa.ListArray:
    """Return the headers of each record, null for none; ``at`` has their positions."""
    # Before the table is made: a record of a few bytes may claim two billion headers.
    if (counts > (ends - at) // HEADER_BYTES_MIN).any():
        raise CorruptMessage("a record is too short for its number of headers")
    if not counts.any() and (at == ends).all():
        return pa.nulls(len(counts), HEADERS)
    bounds = np.concatenate(([0], np.cumsum(counts)))
    table = np.empty((VALUE_ABSENT + 1, int(bounds[-1])), dtype=np.int64)
    # The rounds write to it, and the array is the caller's.
    at = at.copy()
    for done in range(min(ROUNDS_MAX, int(counts.max(initial=0)))):
        records = np.flatnonzero(counts > done)
        table[:, bounds[records] + done] = row = _round(octets, at[records], ends[records])
        at[records] = row[VALUE_END]
    for record in np.flatnonzero(counts > ROUNDS_MAX).tolist():
        rest = table[:, bounds[record] + ROUNDS_MAX : bounds[record + 1]]
        at[record] = _one_by_one(body, int(at[record]), int(ends[record]), rest)
    if (at != ends).any():
        raise CorruptMessage("unexpected bytes follow the headers of a record")
    return _lists(body, table, bounds, counts)


def _round(octets: Octets, at: Integers, ends: Integers) -> Integers:
    """Read one header at each position."""
    sizes, name_first = read_varints(octets, at, INT_BYTES_MAX)
    name_end = name_first + sizes
    # Not `>`: the size of the value follows the name.
    if ((sizes < 0) | (name_end >= ends)).any():
        raise CorruptMessage("a header's name extends beyond its record")
    sizes, value_first = read_varints(octets, name_end, INT_BYTES_MAX)
    value_end = value_first + np.maximum(sizes, 0)
    if (value_end > ends).any():
        raise CorruptMessage("a header's value extends beyond its record")
    return np.stack((name_first, name_end, value_first, value_end, sizes < 0))


def _one_by_one(body: Buffer, at: int, end: int, table: Integers) -> int:
    """Read consecutive headers of one record; return the position after them."""
    for slot in range(table.shape[1]):
        size, name_first = _number(body, at)
        name_end = name_first + size
        # Not `>`: the size of the value follows the name.
        if size < 0 or name_end >= end:
            raise CorruptMessage("a header's name extends beyond its record")
        size, value_first = _number(body, name_end)
        at = value_first + max(size, 0)
        if at > end:
            raise CorruptMessage("a header's value extends beyond its record")
        table[:, slot] = name_first, name_end, value_first, at, size < 0
    return at


def _number(body: Buffer, at: int) -> tuple[int, int]:
    """Return the number at a position like `read_varints`, and the position after it."""
    number = 0
    for index in range(INT_BYTES_MAX):
        octet = body[at + index]
        number |= (octet & 0x7F) << 7 * index
        if octet < 0x80:
            number &= 0xFFFFFFFF
            return (number >> 1) ^ -(number & 1), at + index + 1
    raise CorruptMessage(f"expected a number of {INT_BYTES_MAX} bytes at most")


def _lists(body: Buffer, table: Integers, bounds: Integers, counts: Integers) -> pa.ListArray:
    names = cut(body, table[NAME_FIRST], table[NAME_END], np.zeros(table.shape[1], dtype=bool))
    values = cut(body, table[VALUE_FIRST], table[VALUE_END], table[VALUE_ABSENT] == 1)
    try:
        pairs = pa.StructArray.from_arrays([names.cast(pa.string()), values], ["key", "value"])
    except pa.ArrowInvalid:  # Not UTF-8.
        headers = list(zip(map(header_name, names.to_pylist()), values.to_pylist(), strict=True))
        ends = zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        return header_lists([headers[first:end] for first, end in ends])
    return pa.ListArray.from_arrays(
        number_array(bounds.astype(np.int32)), pairs, type=HEADERS, mask=flag_array(counts == 0)
    )


def header_lists(lists: Iterable[Sequence[Header]]) -> pa.ListArray:
    """Return the headers of each record as a column, null for none, with names as plain text."""
    rows = (
        [{"key": name, "value": content} for name, content in with_names(headers)] or None
        for headers in lists
    )
    return pa.array(rows, type=HEADERS)


def headers_of(row: Sequence[Mapping[str, Any]] | None) -> Sequence[Header]:
    """Return the headers in a row of such a column, with their original names."""
    return without_names([(header["key"], header["value"]) for header in row or ()])
