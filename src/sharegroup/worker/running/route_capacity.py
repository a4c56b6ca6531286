"""Computes the number of handlers of a route that may run, and of records to take in advance.

The rate at which handlers end is measured while records are taken.  With ``concurrency="auto"``
the same measurements adapt the number of concurrent handlers (`level`).
"""

from __future__ import annotations

from sharegroup.worker.declarations.route import Route
from sharegroup.worker.running.level import LEVEL_START, Level

AHEAD_SECONDS = 0.25
"""Records may wait here up to the number handled in this time; a fetch takes a small part of it."""
AHEAD_OF_LOCK = 1 / 8
"""As `AHEAD_SECONDS`, as a part of the lock duration; the smaller one applies."""
AHEAD_MAX = 10_000
RATE_SECONDS_MIN = 0.05
"""The minimum interval at which the rate is measured."""


class RouteCapacity:
    """The number of concurrent handlers of a route, and the measured rate of their ends."""

    __slots__ = (
        "_auto", "_batch_size", "_measured_at", "_measured_done", "_measured_seconds", "_rate",
        "records", "slots",
    )  # fmt: skip

    def __init__(self, route: Route, now: float, *, batch_size: int) -> None:
        self._auto = Level() if route.concurrency == "auto" and not route.processes else None
        self._batch_size = batch_size
        self.slots = _slots_of(route)
        """The number of handlers that may run concurrently."""
        self.records = self.slots * batch_size
        """The number of records in these handlers."""
        self._rate = 0.0
        self._measured_at = now
        self._measured_done = 0
        self._measured_seconds = 0.0

    def ahead(self, lock_seconds: float) -> int:
        """The number of records to have ready, because handlers begin them shortly."""
        seconds = min(AHEAD_SECONDS, lock_seconds * AHEAD_OF_LOCK)
        return int(min(self._rate * seconds, AHEAD_MAX))

    def measure(self, now: float, *, done: int, handling_seconds: float, running: int) -> None:
        """Measure the rate, and adapt the number of handlers to how long they take.

        ``done`` and ``handling_seconds`` are the number and the total duration of all ended runs;
        ``running`` is the number of records in handlers.
        """
        elapsed = now - self._measured_at
        if elapsed < RATE_SECONDS_MIN:
            return
        runs = done - self._measured_done
        rate = runs / elapsed
        # The rate rises at once and falls slowly, so that a pause in the stream does not reset it.
        self._rate = rate if rate > self._rate else 0.7 * self._rate + 0.3 * rate
        if self._auto is not None:
            seconds = handling_seconds - self._measured_seconds
            self._auto.window(runs=runs, seconds=seconds, running=running // self._batch_size)
            self.slots = self._auto.now
            self.records = self.slots * self._batch_size
        self._measured_at, self._measured_done = now, done
        self._measured_seconds = handling_seconds


def _slots_of(route: Route) -> int:
    """Return the number of handlers that initially may run concurrently."""
    if route.processes:
        return route.processes  # More would wait for a process while their handling time runs.
    return LEVEL_START if route.concurrency == "auto" else route.concurrency
