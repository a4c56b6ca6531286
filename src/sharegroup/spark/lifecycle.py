"""Ends a reader's process cleanly, so that its member leaves the share group.

Spark starts one process for each query and source, a child of its JVM, and ends it without
notice (all of this was observed):

    the query stops, or fails      SIGTERM, often twice; by default it ends Python at once, and the
                                   group keeps the member until its session times out
    the JVM is killed              the pipe closes: Python notices that when it reads the next call;
                                   until then, within a call, the orphan keeps sending heartbeats

So SIGTERM is converted to SystemExit, which passes through Spark's runner and its ``finally`` to
`stop`.  A change of the parent's process id ends the process from the background.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from types import FrameType

log = logging.getLogger(__name__)

PARENT_CHECK_SECONDS = 0.5
GOODBYE_SECONDS = 1.5
"""Maximum time for leaving the group; a machine that shuts down does not wait long."""


def exit_on_sigterm() -> None:
    """Let SIGTERM end the process through its ``finally`` clauses."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _exit)


def _exit(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  The signal module's form.
    # Spark sends SIGTERM twice, and the second one would interrupt `stop`.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)


async def exit_as_orphan(leave: Callable[[], Awaitable[None]]) -> None:
    """Wait until the parent has ended, then leave the group and end the process at once."""
    parent = os.getppid()
    while os.getppid() == parent:  # noqa: ASYNC110  The system has no event for this.
        await asyncio.sleep(PARENT_CHECK_SECONDS)
    log.warning(
        "event=reader.orphaned parent=%d reason='the Spark process has ended' action='the member "
        "leaves the share group'",
        parent,
    )
    try:
        async with asyncio.timeout(GOODBYE_SECONDS):
            await leave()
    except Exception as error:  # noqa: BLE001  The process ends in any case.
        log.warning("event=reader.leave_failed error=%r", error)
    # Not `sys.exit`: this is the loop's thread, and the main one waits for a pipe or for this loop.
    os._exit(1)
