"""Which partition a record goes to: by its key as Java's producer does, else sticky.

Equal keys must land on one partition whatever language produced them, so the hash is
murmur2 with Kafka's seed, bit by bit.  Records without a key fill one partition's batch
before they move on: one batch of a hundred costs the broker less than a hundred of one.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import iter_unpack

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Kafka's 32-bit murmur2 of ``key``, unsigned."""
    length = len(key)
    value = (_SEED ^ length) & _MASK
    whole = length & ~3
    for (word,) in iter_unpack("<I", key[:whole]):
        word = (word * _MULTIPLIER) & _MASK
        word ^= word >> 24
        word = (word * _MULTIPLIER) & _MASK
        value = ((value * _MULTIPLIER) & _MASK) ^ word
    if tail := key[whole:]:
        value ^= int.from_bytes(tail, "little")
        value = (value * _MULTIPLIER) & _MASK
    value ^= value >> 13
    value = (value * _MULTIPLIER) & _MASK
    return value ^ (value >> 15)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of a record with this key; the sign bit is dropped, as in Java."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartition:
    """The partition that records of one topic without a key go to until `move_on`."""

    __slots__ = ("_chance", "_current")

    def __init__(self, *, chance: Callable[[], float]) -> None:
        self._chance = chance
        self._current = -1

    def current(self, partition_count: int) -> int:
        """The partition to use now."""
        if not 0 <= self._current < partition_count:
            self._current = int(self._chance() * partition_count)
        return self._current

    def move_on(self, partition_count: int) -> None:
        """A batch is full: go to another partition, chosen at random among the others."""
        if partition_count > 1:
            step = 1 + int(self._chance() * (partition_count - 1))
            self._current = (self.current(partition_count) + step) % partition_count
