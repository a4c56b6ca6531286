"""Keeps handlers that never wait from occupying the event loop."""

from __future__ import annotations

import asyncio

RUNS_MAX = 64
"""Maximum number of handlers without waits in one iteration of the event loop, in all slots of
a route.  Then other tasks of the loop run first.  A handler that waits yields to them itself."""
LONG_SECONDS = 0.001
LONG_RUNS = 16
"""A handler that blocked the loop for more than `LONG_SECONDS` counts as this many more."""


class LoopPace:
    """The handlers of a route that ran in this iteration of the event loop without waiting."""

    __slots__ = ("is_waiting", "latest", "runs")

    def __init__(self) -> None:
        self.runs = 0
        """The number of these handlers; one that took long counts more than once."""
        self.is_waiting = False
        """Whether a slot waits for the next iteration of the event loop."""
        self.latest: object = None
        """The slot that began a handler last.  If it is another one at the end, this one waited."""

    def count(self, runs: int) -> None:
        """Count handlers that ran in this iteration of the event loop."""
        if not self.runs:
            asyncio.get_running_loop().call_soon(self._new_iteration)
        self.runs += runs

    async def wait(self) -> None:
        """Wait for the next iteration; only one slot does, and the others become idle."""
        self.is_waiting = True
        try:
            await asyncio.sleep(0)
        finally:
            self.is_waiting = False

    def _new_iteration(self) -> None:
        self.runs = 0
