"""Measures the delay of the event loop, which adds to the latency of requests.

A callback that is scheduled ten times a second records how late it runs.  A delay is caused by a
long turn of the loop, by a sync in its thread, or by a lack of processor time for the process.
"""

from __future__ import annotations

import asyncio

from sharegroup.broker.load.distribution import Distribution

INTERVAL_SECONDS = 0.1


class LoopLag:
    """Measures the lateness of the event loop, from `start` to `stop`."""

    __slots__ = ("_due", "_timer", "lateness")

    def __init__(self) -> None:
        self.lateness = Distribution()
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to measure, on the running event loop."""
        loop = asyncio.get_running_loop()
        self._due = loop.time() + INTERVAL_SECONDS
        self._timer = loop.call_at(self._due, self._look)

    def stop(self) -> None:
        """Stop measuring; it has no effect before `start`."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self.lateness.observe(max(0.0, asyncio.get_running_loop().time() - self._due))
        self.start()
