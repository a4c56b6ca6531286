"""Keys and values that a perf producer sends; the same seed gives the same ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

POOL_BYTES = 16 * 1024 * 1024
POOL_RECORDS_MAX = 10_000
"""Maximum number of distinct random values; a run sends them repeatedly in turn.

They are made before the clock starts, because making a value costs more than sending it.
"""

LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"

ValueOf = Callable[[int], bytes]
KeyOf = Callable[[int], bytes | None]


class Keys(NamedTuple):
    """The distribution of keys: ``none``, ``range`` (in turn) or ``random``; from 0 to below.

    ``below`` is the number of distinct keys.
    """

    distribution: str = "none"
    below: int = 0


def random_values(size: int, *, count: int, seed: int) -> ValueOf:
    """Return a function from a record's number to a value of ``size`` random capital letters."""
    chance = random.Random(seed)  # noqa: S311  All runs with the same seed send the same values.
    pool_size = max(1, min(count, POOL_RECORDS_MAX, POOL_BYTES // max(size, 1)))
    pool = [bytes(chance.choices(LETTERS, k=size)) for _ in range(pool_size)]
    return _round_and_round(pool)


def values_from_file(path: Path, *, delimiter: bytes, seed: int) -> ValueOf:
    """Return a function from a record's number to a value of the file, in random order.

    Raises ValueError if the file has no values.
    """
    values = [value for value in path.read_bytes().split(delimiter) if value]
    if not values:
        raise ValueError(f"{path} contains no values")
    random.Random(seed).shuffle(values)  # noqa: S311
    return _round_and_round(values)


def monotonic_values() -> ValueOf:
    """Return a function that gives the number of a record as text."""
    return lambda number: b"%d" % number


def keys(spread: Keys, *, seed: int) -> KeyOf:
    """Return a function from a record's number to its key, or None."""
    match spread.distribution:
        case "range":
            return lambda number: b"%d" % (number % spread.below)
        case "random":
            chance = random.Random(seed)  # noqa: S311
            return lambda _: b"%d" % chance.randrange(spread.below)
    return lambda _: None


def _round_and_round(pool: Sequence[bytes]) -> ValueOf:
    size = len(pool)
    return lambda number: pool[number % size]
