"""How often values of some size came: what a histogram of the metrics is made of.

Plain numbers in a list, so that a hot path pays a bisection and two additions for each value
and nothing here knows what reads it.  A bucket counts what is at most its bound and more than
the bound before; the last one has no bound.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

SECONDS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
"""From what a request costs that finds everything in memory to a long poll."""

RATIOS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


class Distribution:
    """See the module's text."""

    __slots__ = ("_counts", "bounds", "total")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self.bounds = bounds
        self.total = 0.0
        """The sum of all values."""
        self._counts = [0] * (len(bounds) + 1)

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self._counts)

    def observe(self, value: float) -> None:
        """One more value."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Each bound and how many values were at most that; infinity is left out."""
        so_far = 0
        for bound, count in zip(self.bounds, self._counts, strict=False):
            so_far += count
            yield bound, so_far
