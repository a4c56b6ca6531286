"""Runs jobs in the console's process.

    a user's job             with the connection of the user who started or resumed it, while it is
                             open; after a restart of the console it waits until somebody resumes it
    a job of the console     with the console's connection; the next console goes on with it

A client that may write to the topic of jobs can make the console run a job of its own, so that
right is as much as the console's: docs/console.md says so.
"""

from __future__ import annotations

import asyncio
import logging

from sharegroup.client.settings.client_config import ClientOptions
from sharegroup.errors import KafkaError
from sharegroup.jobs import Job, JobRunner, Jobs

log = logging.getLogger(__name__)

OF_THE_CONSOLE = "console:"
"""What begins the starter's name of jobs that run with the console's connection."""
RUNS_MAX = 8
"""Jobs that run at once; the others wait for one of them to end."""
LOOK_SECONDS = 10.0
STOP_SECONDS = 10.0
"""Time in which the slices of running jobs may end at a stop."""


class JobRuns:
    """The jobs that run in this process."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        """Those of the console's own connection."""
        self._stop = asyncio.Event()
        self._turn = asyncio.Semaphore(RUNS_MAX)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, job_id: str, options: ClientOptions) -> None:
        """Run a job with these options, as soon as there is room."""
        if job_id not in self._tasks:
            task = asyncio.create_task(self._run(job_id, options), name=f"job {job_id}")
            self._tasks[job_id] = task
            task.add_done_callback(lambda _: self._tasks.pop(job_id, None))

    async def run(self) -> None:
        """Go on with jobs of the console that wait or have lost their runner."""
        runner = JobRunner(self._jobs, takes=self._takes, look_seconds=LOOK_SECONDS)
        await runner.run(self._stop)

    async def stop(self) -> None:
        """End the slices that run; their jobs wait for the next runner."""
        self._stop.set()
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=STOP_SECONDS)
        for task in list(self._tasks.values()):
            task.cancel()

    def _takes(self, job: Job) -> bool:
        return job.started_by.startswith(OF_THE_CONSOLE) and job.id not in self._tasks

    async def _run(self, job_id: str, options: ClientOptions) -> None:
        async with self._turn, Jobs(**options) as jobs:
            try:
                await jobs.run(job_id, stop=self._stop)
            except KafkaError as error:
                # The job's page shows its state; what went wrong on this side is here alone.
                log.warning("event=console.job_left job=%s reason=%r", job_id, error)
