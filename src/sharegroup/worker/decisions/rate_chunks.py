"""Divides a rate limit that processes share into numbered chunks of tokens; pure.

    chunk      ... 41   42   43   44   45       each has `tokens`, and exists once
    minted at       |    |    |    |    |  --> time, one every `every_seconds`
    at this time                  ^
    may be taken   '--------------'           the last `kept` of them: the burst

A process takes a chunk by reserving its number in a store.  So all processes together start at
most the tokens that were minted: the rate, and the burst at once.
"""

from __future__ import annotations

from math import ceil, floor
from typing import NamedTuple, Self

CHUNK_SECONDS = 0.25
"""The time in which the tokens of a chunk are minted, if the burst is not small or large."""
KEPT_MAX = 16
"""The number of chunks that a process looks at when it has been idle."""


class RateChunks(NamedTuple):
    """How the tokens of a limit are divided into chunks."""

    tokens: int
    every_seconds: float
    kept: int

    @classmethod
    def of(cls, per_second: float, burst: float) -> Self:
        """Return the chunks for a rate and a burst."""
        tokens = max(1, int(per_second * CHUNK_SECONDS), ceil(burst / KEPT_MAX))
        return cls(tokens, tokens / per_second, max(1, floor(burst / tokens)))

    def newest(self, seconds: float) -> int:
        """Return the number of the chunk that was minted last, at this time since 1970."""
        return floor(seconds / self.every_seconds)

    def minted_at(self, number: int) -> float:
        """Return the time at which a chunk is minted."""
        return number * self.every_seconds

    def first(self, seconds: float, *, after: int | None) -> int:
        """Return the number of the first chunk to look at, when those up to ``after`` were.

        It may not be minted yet.  After the clock was set back, all chunks are looked at again.
        """
        newest = self.newest(seconds)
        oldest = newest - self.kept + 1
        if after is None or after > newest + 1:
            return oldest
        return max(oldest, after + 1)
