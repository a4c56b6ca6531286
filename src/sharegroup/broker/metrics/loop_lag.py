"""Measures how late the event loop is, which delays every request now and then.

A call that is scheduled ten times a second notes how late it ran.  The cause is the work of one
turn of the loop, a sync in its thread, or a machine without time for the process.
"""

from __future__ import annotations

import asyncio

from sharegroup.broker.distribution import Distribution

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
