"""Numbers of many records at once: read with numpy, and as Arrow arrays without a copy.

``pyarrow.array`` would make the arrays, but it imports pandas to find out whether it was given a
Series.  That takes 0.25 s of CPU time in each of Spark's Python workers, which do not need pandas.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sharegroup.errors import CorruptMessage

Octets = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.integer[Any]]
Flags = npt.NDArray[np.bool_]

# 32 and 64 bits in groups of 7.
INT_BYTES_MAX = 5
LONG_BYTES_MAX = 10

_BITS = np.uint8(0x7F)
_LAST_SHIFT, _LAST_BITS = 28, np.uint8(0x0F)
"""Bits beyond 32 are dropped, as Java drops them."""
_MORE = np.uint8(0x80)
_ONE = np.uint64(1)


def number_array(
    numbers: Numbers, kind: pa.DataType | None = None, *, absent: Flags | None = None
) -> pa.Array:
    """Return the numbers as an array over their own memory; null where ``absent``.

    ``kind`` is a type of the same width, such as a timestamp; None means the type of the numbers.
    """
    kind = pa.from_numpy_dtype(numbers.dtype) if kind is None else kind
    assert kind.bit_width == 8 * numbers.itemsize, f"{numbers.dtype} are not numbers of {kind}"
    valid = None if absent is None or not absent.any() else _bits(~absent)
    # Arrow knows no distance between elements: a column of a table would be read wrongly.
    numbers = np.ascontiguousarray(numbers)
    return pa.Array.from_buffers(kind, len(numbers), [valid, pa.py_buffer(numbers)])


def flag_array(flags: Flags) -> pa.BooleanArray:
    """Return the flags as an array of booleans."""
    return pa.Array.from_buffers(pa.bool_(), len(flags), [None, _bits(flags)])


def _bits(flags: Flags) -> pa.Buffer:
    """Return the flags as Arrow stores them: eight to a byte, the first in the lowest bit."""
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def read_varints(octets: Octets, at: Integers, bytes_max: int) -> tuple[Integers, Integers]:
    """Return the numbers that begin at these positions, and the positions behind them.

    Raises CorruptMessage for a number of more than ``bytes_max`` bytes, and IndexError for one that
    exceeds ``octets`` at its end. Positions must not be negative.
    """
    first = octets[at]
    numbers = (first & _BITS).astype(np.uint64)
    after = at + 1
    longer = np.flatnonzero(first >= _MORE)
    for shift in range(7, 7 * bytes_max, 7):
        if not longer.size:
            break
        following = octets[after[longer]]
        bits = _LAST_BITS if shift == _LAST_SHIFT and bytes_max == INT_BYTES_MAX else _BITS
        numbers[longer] |= (following & bits).astype(np.uint64) << np.uint64(shift)
        after[longer] += 1
        longer = longer[following >= _MORE]
    if longer.size:
        raise CorruptMessage(f"expected a number of {bytes_max} bytes at most")
    return (numbers >> _ONE).view(np.int64) ^ -(numbers & _ONE).view(np.int64), after
