"""`JobRunner`: takes the jobs that wait and those that are abandoned, and runs them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from sharegroup.errors import KafkaError
from sharegroup.jobs.job import Job, JobState
from sharegroup.jobs.jobs import Jobs

log = logging.getLogger(__name__)

JOBS_AT_ONCE_MAX = 4
LOOK_SECONDS = 3.0


def take_all(_: Job) -> bool:
    """Take every job that waits or is abandoned."""
    return True


class JobRunner:
    """Runs jobs until it is stopped.

    ``takes`` chooses among the jobs that wait or are abandoned; a program with users leaves those
    that need the credentials of somebody.
    """

    def __init__(
        self,
        jobs: Jobs,
        *,
        takes: Callable[[Job], bool] = take_all,
        at_once_max: int = JOBS_AT_ONCE_MAX,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._jobs = jobs
        self._takes = takes
        self._at_once_max = at_once_max
        self._look_seconds = look_seconds
        self._running: dict[str, asyncio.Task[None]] = {}

    @property
    def running(self) -> tuple[str, ...]:
        """The ids of the jobs that run here now."""
        return tuple(self._running)

    async def run(self, stop: asyncio.Event) -> None:
        """Run jobs until ``stop`` is set; they wait for the next runner then."""
        async with asyncio.TaskGroup() as tasks:
            while not stop.is_set():
                for job in await self._open_jobs():
                    if len(self._running) < self._at_once_max and job.id not in self._running:
                        task = tasks.create_task(self._run(job.id, stop), name=f"job {job.id}")
                        self._running[job.id] = task
                try:
                    async with asyncio.timeout(self._look_seconds):
                        await stop.wait()
                except TimeoutError:
                    pass

    async def _open_jobs(self) -> list[Job]:
        now_ms = time.time_ns() // 1_000_000
        try:
            listing = await self._jobs.list()
        except KafkaError as error:
            # Only told, because a broker may be away for a while.
            log.warning("event=jobs.unlisted error=%r do='check the broker'", error)
            return []
        return [
            job
            for job in reversed(listing.jobs)
            if job.request.kind in self._jobs.kinds
            and (job.state is JobState.WAITING or job.is_abandoned(now_ms))
            and self._takes(job)
        ]

    async def _run(self, job_id: str, stop: asyncio.Event) -> None:
        try:
            job = await self._jobs.run(job_id, stop=stop)
        except KafkaError as error:
            # Only told: another runner has it, or it is taken again when it is abandoned.
            log.warning("event=job.left job=%s error=%r", job_id, error)
        else:
            log.info("event=job.ended job=%s state=%s", job_id, job.state)
        finally:
            del self._running[job_id]
