"""Counters of a worker: plain numbers that the hot path increments and a scrape reads.

Each route has one `HandlerCounts`.  Counting a record costs two additions and two searches in the
bounds of a histogram, about a microsecond.  There is no lock, because only the thread of the event
loop counts.
"""

from __future__ import annotations

from bisect import bisect_left

SECONDS_BOUNDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0,
)  # fmt: skip
"""Upper bounds of the histograms, from the time of an empty handler to half an hour."""


CLASSES_MAX = 100
"""The number of classes of errors that are counted separately for each handler."""
OTHER_CLASSES = "other"


class Histogram:
    """The number of values up to each bound; ``counts`` has one more element, for the rest.

    >>> some = Histogram()
    >>> some.observe(0.002)
    >>> some.counts[SECONDS_BOUNDS.index(0.0025)], some.total
    (1, 0.002)
    """

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS_BOUNDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count a value."""
        self.counts[bisect_left(SECONDS_BOUNDS, seconds)] += 1
        self.total += seconds


class HandlerCounts:
    """The outcomes of one route's records in this process, since its start."""

    __slots__ = (
        "dead_lettered", "failed", "group", "handler", "handling", "held", "lock_lost",
        "postponed", "queued", "rejected", "released", "running", "succeeded", "timed_out",
        "unreadable",
    )  # fmt: skip

    def __init__(self, group: str, handler: str) -> None:
        self.group = group
        self.handler = handler
        self.running = 0
        """Records in the handler now."""
        self.succeeded = 0
        self.failed: dict[str, int] = {}
        """Failed runs, by the class of the error with its module."""
        self.rejected = 0
        self.released = 0
        self.held = 0
        """Retries for which the record was held in memory, under its lock."""
        self.postponed = 0
        """Retries that were written to a retry topic."""
        self.dead_lettered = 0
        self.unreadable = 0
        self.timed_out = 0
        self.lock_lost = 0
        self.handling = Histogram()
        """The durations of handler runs."""
        self.queued = Histogram()
        """The time from a record's timestamp to the start of its handler."""

    def failed_with(self, error: str) -> None:
        """Count a failed run with an error of this class."""
        if error not in self.failed and len(self.failed) >= CLASSES_MAX:
            error = OTHER_CLASSES  # An application may make a class for each error.
        self.failed[error] = self.failed.get(error, 0) + 1
