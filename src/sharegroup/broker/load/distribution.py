"""Counts observed values in buckets: the data of a histogram metric.

The counts are plain numbers in a list, so a hot path pays one bisection and two additions for each
value.  A bucket counts the values that are at most its bound and above the bound before; the last
bucket has no bound.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

SECONDS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
"""Bounds from a request that finds everything in memory up to a long poll."""

RATIOS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


class Distribution:
    """Counts observed values in buckets, and sums them up."""

    __slots__ = ("_counts", "bounds", "total")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self.bounds = bounds
        self.total = 0.0
        """The sum of all values."""
        self._counts = [0] * (len(bounds) + 1)

    @property
    def count(self) -> int:
        """The number of observed values."""
        return sum(self._counts)

    def observe(self, value: float) -> None:
        """Count one more value."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Yield each bound, without infinity, with the number of values up to that bound."""
        so_far = 0
        for bound, count in zip(self.bounds, self._counts, strict=False):
            so_far += count
            yield bound, so_far
