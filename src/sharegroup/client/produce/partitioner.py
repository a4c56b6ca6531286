"""Chooses the partition of a record: by its key as Java's producer does, otherwise sticky.

Equal keys must go to one partition in all programming languages, so the hash is murmur2 with
Kafka's seed, bit by bit.  Records without a key fill a batch of one partition before they use
another partition: one batch of 100 records costs the broker less than 100 batches of one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import iter_unpack

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Return Kafka's 32-bit murmur2 hash of ``key``, unsigned."""
    length = len(key)
    value = (_SEED ^ length) & _MASK
    whole = length & ~3
    for (word,) in iter_unpack("<I", key[:whole]):
        word = (word * _MULTIPLIER) & _MASK
        word ^= word >> 24
        word = (word * _MULTIPLIER) & _MASK
        value = ((value * _MULTIPLIER) & _MASK) ^ word
    if tail := key[whole:]:
        # Java's `Utils.murmur2` adds the last one to three bytes in a switch that falls through.
        value ^= int.from_bytes(tail, "little")
        value = (value * _MULTIPLIER) & _MASK
    value ^= value >> 13
    value = (value * _MULTIPLIER) & _MASK
    return value ^ (value >> 15)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition of a record with this key; the sign bit is dropped, as in Java."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartition:
    """The partition for records of one topic without a key, until `move_on` chooses another.

    As in Java's producer, it is a partition with a leader, if there is one.  ``leaders`` has the
    leader's node id for each partition, negative if there is no leader.
    """

    __slots__ = ("_chance", "_current")

    def __init__(self, *, chance: Callable[[], float]) -> None:
        self._chance = chance
        self._current = -1

    def current(self, leaders: Sequence[int]) -> int:
        """Return the partition to use now."""
        current = self._current
        if not 0 <= current < len(leaders) or leaders[current] < 0:
            self._choose(leaders, but=-1)
        return self._current

    def move_on(self, leaders: Sequence[int]) -> None:
        """Choose another partition at random, because a batch is full."""
        self._choose(leaders, but=self.current(leaders))

    def _choose(self, leaders: Sequence[int], *, but: int) -> None:
        """Choose among the partitions with leaders; if there are none, keep the current one."""
        partitions = [
            partition
            for partition, leader in enumerate(leaders)
            if leader >= 0 and partition != but
        ]
        if not partitions and not 0 <= self._current < len(leaders):
            partitions = [*range(len(leaders))]
        if partitions:
            self._current = partitions[int(self._chance() * len(partitions))]
