"""What a broker does beside its requests: jobs, each of which goes on until it is cancelled.

A job handles the failures that it knows of.  Any other is a fault of this program, and no reason
for the rest to stop: a broker whose checkpoints ended because compaction stumbled would recover
more slowly each day and tell nobody.  So each job fails alone, says so, and begins again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from sharegroup.broker.clock import Clock, sleep_ms

log = logging.getLogger(__name__)

RESTART_MS = 10_000
"""How long a job that failed waits before it begins again."""

Job = Callable[[], Awaitable[None]]


async def run(jobs: Mapping[str, Job], clock: Clock) -> None:
    """Run all of them until cancelled, or until each has come to its own end."""
    async with asyncio.TaskGroup() as tasks:
        for name, job in jobs.items():
            tasks.create_task(_keep_running(name, job, clock))


async def _keep_running(name: str, job: Job, clock: Clock) -> None:
    while True:
        try:
            return await job()
        except Exception:
            log.exception(
                "event=job_failed job=%s restart_ms=%d action='report this: the broker goes on "
                "serving, without what this job does until then'",
                name,
                RESTART_MS,
            )
            await sleep_ms(clock, RESTART_MS)
