"""Reports a handler that blocks the event loop, with the line at which it blocks.

A coroutine that calls ``time.sleep`` or a blocking client stops everything in its process: the
other handlers, the renewal of locks, the member's heartbeats.  Nothing on the loop can detect that
in time, so a thread does.  A timer on the loop records beats.  If they stop, the thread logs the
current line of the loop's thread, once for each blocked period.

    event=loop.blocked seconds=1.3 handler="orders.py:12 bill" (...)

If the whole process was stopped or got no CPU time, nothing is logged.  The thread detects that by
its own sleep, which then took too long as well.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Self

log = logging.getLogger(__name__)

BLOCKED_SECONDS = 1.0
LOOKS_IN_THAT = 4
OURS = "sharegroup."


class LoopWatch:
    """A context manager that watches the running event loop for blocking handlers."""

    def __init__(self, blocked_seconds: float = BLOCKED_SECONDS) -> None:
        self._blocked_seconds = blocked_seconds
        self._period = blocked_seconds / LOOKS_IN_THAT
        self._loop = asyncio.get_running_loop()
        self._beat_at = time.monotonic()
        self._beat_timer: asyncio.TimerHandle | None = None
        self._loop_thread = threading.get_ident()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="loop-watch", daemon=True)

    def __enter__(self) -> Self:
        self._beat()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._beat_timer is not None:
            self._beat_timer.cancel()
        self._thread.join()

    def _beat(self) -> None:
        self._beat_at = time.monotonic()
        self._beat_timer = self._loop.call_later(self._period, self._beat)

    def _run(self) -> None:
        told_of = looked_at = 0.0
        while not self._ended.wait(self._period):
            looked_before, looked_at = looked_at, time.monotonic()
            beat_at = self._beat_at
            late = looked_at - beat_at - self._period
            if late < self._blocked_seconds or told_of == beat_at:
                continue
            if looked_at - looked_before > 2 * self._period:
                continue  # This thread could not run, either: the whole process was stopped.
            told_of = beat_at
            log.warning(
                "event=loop.blocked seconds=%.1f at=%r action='nothing else runs in this process: "
                "await there, or make the handler a plain function, which runs in a thread'",
                late,
                place_of(sys._current_frames().get(self._loop_thread)),
            )


def place_of(innermost: FrameType | None) -> str:
    """The line of the application: the outermost frame that was called by this project."""
    frame = place = innermost
    while frame is not None and not frame.f_globals.get("__name__", "").startswith(OURS):
        place, frame = frame, frame.f_back
    if place is None:
        return "unknown"
    code = place.f_code
    return f"{Path(code.co_filename).name}:{place.f_lineno} {code.co_qualname}"
