"""`Jobs`: plans, starts, lists, aborts, resumes and runs the jobs of a cluster."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Protocol, Self, Unpack

from sharegroup.client.net.cluster import Cluster
from sharegroup.client.produce.producer import Producer
from sharegroup.client.settings.client_config import (
    ClientConfig,
    ProducerOptions,
    ReadingConfig,
    config_from,
    options_of,
)
from sharegroup.errors import (
    InvalidConfig,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    KafkaError,
    NetworkException,
    OutOfOrderSequenceNumber,
    PolicyViolation,
    ProducerFenced,
    RequestTimedOut,
    TransactionAbortable,
    TransactionAborted,
    UnknownProducerId,
)
from sharegroup.jobs.job import (
    Document,
    Job,
    JobListing,
    JobPlan,
    JobProgress,
    JobRequest,
    JobState,
)
from sharegroup.jobs.job_log import JOBS_LISTED_MAX, LOOK_WAIT_MS, JobLog, JobsTopic
from sharegroup.jobs.job_records import AbortRequest
from sharegroup.jobs.job_run import JobAccess, JobRun, RunAborted, RunStopped, ended, taken
from sharegroup.jobs.purge_job import PURGE, PurgeJobs
from sharegroup.jobs.redrive_job import REDRIVE, RedriveJobs
from sharegroup.jobs.steering_job import KINDS_OF_INTENTS, SteeringJobs
from sharegroup.login import login

log = logging.getLogger(__name__)

FINISHED_JOBS_MAX = 200
"""Finished jobs that are kept; the start of a job deletes older ones."""
UNFINISHED_JOBS_MAX = 1_000
CLAIMS_MAX = 3
"""How often one call of `Jobs.run` claims a job without getting further.

That happens if slices take too long, or brokers are away.
"""
ID_BYTES = 4
NOT_OF_THE_JOB = (
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    NetworkException,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    RequestTimedOut,
    TransactionAbortable,
    TransactionAborted,
    UnknownProducerId,
)
"""Errors after which the job has not failed: its transaction or a connection has.

Brokers answer with most of them, by their version, if a transaction was aborted at its timeout.
"""
NAME_CHARACTERS_MAX = 200
"""Characters kept of the name of a user who starts or aborts a job."""


class JobKind(Protocol):
    """What jobs of one kind do."""

    @property
    def producing(self) -> Document:
        """Options of the producer, for those that the caller does not give."""

    def check(self, request: JobRequest) -> None:
        """Raise InvalidConfig if the request is not valid."""

    async def plan(self, request: JobRequest, access: JobAccess) -> JobPlan:
        """Count what a job would do, and change nothing."""

    async def run(self, run: JobRun) -> None:
        """Do what is left; call `JobRun.look` before each slice, and write by `JobRun.slice`."""


KINDS: Mapping[str, JobKind] = MappingProxyType(
    {
        REDRIVE: RedriveJobs(),
        PURGE: PurgeJobs(),
        **{kind: SteeringJobs(intent) for intent, kind in KINDS_OF_INTENTS.items()},
    }
)
"""The kinds of jobs of this library; `Jobs` takes others."""


class Jobs:
    """The jobs of a cluster.

    Example::

        selection = Selection(group="billing")
        request = redrive_request("orders.dead", RedriveOptions(selection=selection))
        async with Jobs(bootstrap_servers=bootstrap_servers) as jobs:
            print((await jobs.plan(request)).count)
            job = await jobs.start(request, started_by="anna")
            print((await jobs.run(job.id)).state)

    Its calls may run at the same time, but not in another event loop.
    """

    def __init__(
        self,
        *,
        topic: JobsTopic = JobsTopic(),  # noqa: B008  It is frozen.
        kinds: Mapping[str, JobKind] = KINDS,
        **options: Unpack[ProducerOptions],
    ) -> None:
        self._producing: dict[str, Any] = dict(options)
        self._reading = options_of(ClientConfig, options)
        self._cluster = Cluster(config_from(ReadingConfig, self._reading))
        self._log = JobLog(self._cluster, topic)
        self._kinds = kinds

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections that read the topic of jobs."""
        self._cluster.close()

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of jobs that can be run here."""
        return frozenset(self._kinds)

    @property
    def metrics(self) -> Mapping[str, Mapping[str, float]]:
        """The metrics of the client that reads the topic of jobs."""
        return self._cluster.metrics.read()

    async def plan(self, request: JobRequest) -> JobPlan:
        """Count what a job would do now, and change nothing."""
        kind = self._kind(request)
        kind.check(request)
        return await kind.plan(request, self._access(kind))

    async def start(
        self, request: JobRequest, *, started_by: str | None = None, counted: int | None = None
    ) -> Job:
        """Write a new job, which waits for a runner (`run` or `JobRunner`).

        ``counted`` is the count of a plan, for the progress.  Raises InvalidConfig for a filter
        that is empty or not valid, and PolicyViolation above `UNFINISHED_JOBS_MAX`.
        """
        self._kind(request).check(request)
        jobs = self._log
        await jobs.create()
        present = await self.list(limit=FINISHED_JOBS_MAX + UNFINISHED_JOBS_MAX)
        finished = [job for job in present.jobs if job.state.is_end]
        if len(present.jobs) - len(finished) >= UNFINISHED_JOBS_MAX:
            raise PolicyViolation(
                f"topic {self._log.topic.name!r} has {UNFINISHED_JOBS_MAX} jobs that have not "
                "ended; run or abort some of them first (sharegroup jobs list)"
            )
        now_ms = time.time_ns() // 1_000_000
        job = Job(
            id=secrets.token_hex(ID_BYTES),
            request=request,
            started_by=self._named(started_by),
            created_ms=now_ms,
            updated_ms=now_ms,
            progress=JobProgress(counted, 0),
        )
        async with Producer(**self._producing, allow_auto_create_topics=False) as producer:
            await jobs.write(producer, job)
            for old in finished[FINISHED_JOBS_MAX - 1 :]:
                await jobs.delete(producer, old.id)
        return job

    async def list(self, *, limit: int = JOBS_LISTED_MAX) -> JobListing:
        """Return the newest jobs."""
        is_current = await self._log.load(wait_ms=LOOK_WAIT_MS)
        return self._log.listing(limit=limit, is_current=is_current)

    async def show(self, job_id: str) -> Job:
        """Return a job; raises JobNotFound."""
        jobs = self._log
        await jobs.load(wait_ms=LOOK_WAIT_MS)
        return jobs.job(job_id)

    async def abort(self, job_id: str, *, by: str | None = None, at_once: bool = False) -> Job:
        """Abort a job; returns it as aborting if its runner has yet to end it, else as aborted.

        The runner ends it after its slice.  A job without a runner, or of a runner that is not
        heard of any more, is aborted here; so is every other with ``at_once``, which fences its
        runner.  What was sent or deleted stays so.  Raises JobEnded.
        """
        jobs = self._log
        await jobs.load(wait_ms=LOOK_WAIT_MS)
        job, name = jobs.job(job_id), self._named(by)
        if job.state.is_end:
            raise ended(job)
        now_ms = time.time_ns() // 1_000_000
        if job.state is JobState.WAITING or job.is_abandoned(now_ms) or at_once:
            return await self._seized(job, lambda run: run.end(JobState.ABORTED, _aborted_by(name)))
        if job.state is JobState.RUNNING:
            async with Producer(**self._producing, allow_auto_create_topics=False) as producer:
                request = AbortRequest(job.id, job.resumes, name, now_ms)
                await jobs.request_abort(producer, request)
        return replace(job, state=JobState.ABORTING)

    async def resume(self, job_id: str) -> Job:
        """Let a job that failed, was aborted or lost its runner wait for a runner again.

        A runner that it has is fenced.  Raises JobEnded if the job is done.
        """

        async def wait_again(run: JobRun) -> None:
            await run.slice(
                state=JobState.WAITING, error=None, ended_ms=None, resumes=run.job.resumes + 1
            )

        job = await self.show(job_id)
        if job.state is JobState.DONE:
            raise ended(job)
        return await self._seized(job, wait_again, of_ended=True)

    async def run(
        self,
        job_id: str,
        *,
        stop: asyncio.Event | None = None,
        stopped: JobState = JobState.WAITING,
        told: Callable[[Job], None] = lambda _: None,
    ) -> Job:
        """Run a job until it ends, and return it as done, failed or aborted.

        If ``stop`` is set, the job gets the state ``stopped`` after the slice: `JobState.WAITING`
        leaves it to the next runner, and `JobState.ABORTED` until somebody resumes it.  ``told``
        gets the job after each slice.

        Raises JobTaken if another runner has the job or takes it over, JobEnded, and errors after
        which a runner can go on later, such as RequestTimedOut: the job is then abandoned.
        """
        job = await self.show(job_id)
        if job.state.is_end:
            raise ended(job)
        now_ms = time.time_ns() // 1_000_000
        if job.state is not JobState.WAITING and not job.is_abandoned(now_ms):
            raise taken(job)
        runner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(ID_BYTES)}"
        in_vain = 0
        while in_vain < CLAIMS_MAX:
            run = self._run(job, runner, stop or asyncio.Event())
            run.told = told
            try:
                return await self._run_once(run, stopped)
            except NOT_OF_THE_JOB as error:
                failure = error
                log.warning("event=job.broken job=%s runner=%s reason=%r", job_id, runner, error)
            finally:
                await run.close()
            in_vain = 0 if run.job.positions != job.positions else in_vain + 1
            job = await self.show(job_id)
            if job.runner != runner or job.state is JobState.WAITING:
                break
            if job.state.is_end:
                return job  # Only the answer was lost.
            # A slice took too long, or a broker was away: nobody has taken the job.
        if isinstance(failure, ProducerFenced):
            raise taken(job) from failure
        raise failure

    async def _run_once(self, run: JobRun, stopped: JobState) -> Job:
        await run.claim()
        try:
            await self._kind(run.job.request).run(run)
        except RunAborted as aborted:
            await run.end(JobState.ABORTED, _aborted_by(aborted.by))
        except RunStopped:
            error = "stopped by its runner" if stopped.is_end else None
            await run.end(stopped, error)
        except KafkaError as error:
            if isinstance(error, NOT_OF_THE_JOB):
                raise
            await run.end(JobState.FAILED, f"{type(error).__name__}: {error}")
        else:
            await run.end(JobState.DONE)
        return run.job

    async def _seized(
        self, job: Job, change: Callable[[JobRun], Any], *, of_ended: bool = False
    ) -> Job:
        """Take a job away from its runner, change it, and return it."""
        run = self._run(job, "", asyncio.Event())
        try:
            await run.seize()
            if run.job.state is JobState.DONE or (run.job.state.is_end and not of_ended):
                raise ended(run.job)
            await change(run)
        except ProducerFenced as error:
            raise taken(job) from error
        else:
            return run.job
        finally:
            await run.close()

    def _run(self, job: Job, runner: str, stop: asyncio.Event) -> JobRun:
        return JobRun(self._access(self._kind(job.request)), job, runner, stop)

    def _access(self, kind: JobKind) -> JobAccess:
        producing = {**kind.producing, **self._producing}
        return JobAccess(self._reading, producing, self._log)

    def _kind(self, request: JobRequest) -> JobKind:
        kind = self._kinds.get(request.kind)
        if kind is None:
            raise InvalidConfig(
                f"jobs of kind {request.kind!r:.100} are not known here; expected one of "
                f"{sorted(self._kinds)}"
            )
        return kind

    def _named(self, name: str | None) -> str:
        return (name or self._cluster.principal or login())[:NAME_CHARACTERS_MAX]


def _aborted_by(name: str) -> str:
    return f"aborted by {name}"
