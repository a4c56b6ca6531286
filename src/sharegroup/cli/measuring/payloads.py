"""What a perf producer sends: keys and values, the same ones for the same seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

POOL_BYTES = 16 * 1024 * 1024
POOL_RECORDS_MAX = 10_000
"""Random values are made before the clock starts: making them costs more than sending them.
So many different ones are sent round and round."""

LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"

ValueOf = Callable[[int], bytes]
KeyOf = Callable[[int], bytes | None]


class Keys(NamedTuple):
    """How keys are spread: ``none``, ``range`` (round and round) or ``random``, below a number."""

    distribution: str = "none"
    below: int = 0


def random_values(size: int, *, count: int, seed: int) -> ValueOf:
    """Values of ``size`` capital letters, by the number of the record."""
    chance = random.Random(seed)  # noqa: S311  The same in every run, on purpose.
    pool_size = max(1, min(count, POOL_RECORDS_MAX, POOL_BYTES // max(size, 1)))
    pool = [bytes(chance.choices(LETTERS, k=size)) for _ in range(pool_size)]
    return _round_and_round(pool)


def values_from_file(path: Path, *, delimiter: bytes, seed: int) -> ValueOf:
    """The values that stand in a file, in an order that chance has made."""
    values = [value for value in path.read_bytes().split(delimiter) if value]
    if not values:
        raise ValueError(f"{path} has no value in it")
    random.Random(seed).shuffle(values)  # noqa: S311
    return _round_and_round(values)


def monotonic_values() -> ValueOf:
    """The number of the record, as text."""
    return lambda number: b"%d" % number


def keys(spread: Keys, *, seed: int) -> KeyOf:
    """Keys by the number of the record."""
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
