"""Variable-length numbers of many records at once: zigzag, seven bits to a byte, with numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sharegroup.errors import CorruptMessage

Octets = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]

# 32 and 64 bits in groups of 7.
INT_BYTES_MAX = 5
LONG_BYTES_MAX = 10

_BITS = np.uint8(0x7F)
_LAST_SHIFT, _LAST_BITS = 28, np.uint8(0x0F)
"""Bits beyond 32 are dropped, as Java drops them."""
_MORE = np.uint8(0x80)
_ONE = np.uint64(1)


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
