"""Runs the broker's background jobs, each until it is cancelled.

A job handles the failures that it expects.  Any other failure is a fault of this program, and must
not end the other jobs.  If the checkpoints ended because compaction failed, for example, each
recovery would be slower, without a sign.  So each job fails alone, logs the failure and restarts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from sharegroup.broker.clock import Clock, sleep_ms

log = logging.getLogger(__name__)

RESTART_MS = 10_000
"""Milliseconds that a failed job waits before it restarts."""

Job = Callable[[], Awaitable[None]]


async def run(jobs: Mapping[str, Job], clock: Clock) -> None:
    """Run all jobs until cancelled, or until each has ended by itself."""
    async with asyncio.TaskGroup() as tasks:
        for name, job in jobs.items():
            tasks.create_task(_keep_running(name, job, clock))


async def _keep_running(name: str, job: Job, clock: Clock) -> None:
    """Run one job; restart it after a pause whenever it fails."""
    task = asyncio.current_task()
    assert task is not None
    while True:
        try:
            # In a task of its own: on Python 3.11 a `TaskGroup` that has failed in the job leaves
            # its task marked as cancelled, and the failure would look like one of a stop.
            return await asyncio.ensure_future(job())
        except Exception as error:
            if task.cancelling():
                # What the job does at its end has failed, so its cancellation came to nothing.
                log.warning("event=job_end_failed job=%s error=%r", name, repr(error))
                raise asyncio.CancelledError from error
            log.exception(
                "event=job_failed job=%s restart_ms=%d action='report this error; the "
                "broker continues without this job and restarts it after restart_ms'",
                name,
                RESTART_MS,
            )
            await sleep_ms(clock, RESTART_MS)
