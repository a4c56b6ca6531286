"""One runner's hold on a job: its transactional id, its slices, and how it ends.

    init_transactions ──▶ load ──▶ claim │ slice │ slice │ ... │ end
    fences the runner before              one transaction each

All that a slice writes is in one transaction with the record of the job: copies, the ledger, and
how far the job has come.  So the next runner goes on exactly behind the last committed slice, and a
runner that was taken over can commit nothing any more.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from sharegroup.client.produce.producer import Producer
from sharegroup.client.records import IllegalStateError
from sharegroup.errors import KafkaError, ProducerFenced, RequestTimedOut
from sharegroup.jobs.job import Job, JobEnded, JobState, JobTaken
from sharegroup.jobs.job_log import JobLog

log = logging.getLogger(__name__)
T = TypeVar("T")

HEARTBEAT_SECONDS = 3.0
"""Time after which a runner writes a record of its job, even if there is nothing to report."""
TRANSACTION_TIMEOUT_MS = 20_000
"""Time after which the coordinator aborts a slice, for example of a runner that was killed.

As long, groups that read committed records wait at the first record of the slice.
"""
GIVE_UP_SECONDS = 1.0
"""Time for the abort of a slice that failed; afterwards the coordinator aborts it."""


class RunAborted(Exception):
    """Somebody has asked to abort the job."""

    def __init__(self, by: str) -> None:
        super().__init__(by)
        self.by = by


class RunStopped(Exception):
    """The runner is to stop."""


class JobAccess(NamedTuple):
    """How a runner reaches the cluster."""

    reading: Mapping[str, Any]
    """Options of the clients that read."""
    producing: Mapping[str, Any]
    """Options of the producer."""
    log: JobLog


def transactional_id(job_id: str) -> str:
    """Return the transactional id of all runners of a job."""
    return f"sharegroup.job.{job_id}"


class JobRun:
    """A job in the hands of one runner.

    Jobs of a kind are run by the kind (`JobKind.run`), which writes by `slice` and calls `look`
    before each.
    """

    def __init__(self, access: JobAccess, job: Job, runner: str, stop: asyncio.Event) -> None:
        self.access = access
        self.job = job
        """The job as it was committed last."""
        self.runner = runner
        self.told: Callable[[Job], None] = lambda _: None
        """Called with the job after each slice."""
        self._stop = stop
        self._written_at = time.monotonic()
        self.producer = Producer(
            **{
                **access.producing,
                "transactional_id": transactional_id(job.id),
                "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS,
            }
        )

    async def close(self) -> None:
        """Close the producer, without waiting for what it has not sent."""
        await self.producer.close(timeout=0)

    # The hold on the job.

    async def seize(self) -> None:
        """Fence the runner before, and read how far it has come.

        Raises RequestTimedOut if a transaction of another job hides that for too long.
        """
        await self.producer.init_transactions()
        if not await self.access.log.load():
            raise RequestTimedOut(
                f"job {self.job.id!r}: a transaction in topic {self.access.log.topic.name!r} is "
                "open for long, so its last record is unknown; run the job again when "
                "sharegroup jobs list shows all of them"
            )
        self.job = self.access.log.job(self.job.id)

    async def claim(self) -> None:
        """Seize the job, and write that this runner has it; raises JobEnded if it has ended."""
        await self.seize()
        if self.job.state.is_end:
            raise JobEnded(_ended_text(self.job))
        await self.slice(state=JobState.RUNNING, runner=self.runner, error=None)

    async def end(self, state: JobState, error: str | None = None) -> None:
        """Write the last record of this run; `JobState.WAITING` leaves the job to the next one."""
        ended_ms = _now_ms() if state.is_end else None
        await self.slice(state=state, error=error, ended_ms=ended_ms)

    # Slices.

    @property
    def is_slice_due(self) -> bool:
        """Whether no record was written for `HEARTBEAT_SECONDS`."""
        return time.monotonic() - self._written_at >= HEARTBEAT_SECONDS

    async def slice(
        self, write: Callable[[Producer], Awaitable[None]] | None = None, **changes: Any
    ) -> None:
        """Run ``write`` and write the job with these changes of its fields, in one transaction.

        If anything fails, nothing is written, and `job` stays.  Raises ProducerFenced if another
        runner has the job, or this slice took longer than `TRANSACTION_TIMEOUT_MS`.
        """
        job = replace(self.job, updated_ms=_now_ms(), **changes)
        await self.producer.begin_transaction()
        try:
            if write is not None:
                await write(self.producer)
            await self.access.log.write(self.producer, job)
            await self.producer.commit_transaction()
        except BaseException:
            await self._give_up()
            raise
        self.job = job
        self._written_at = time.monotonic()
        self.told(job)

    async def _give_up(self) -> None:
        """Abort the slice; raises ProducerFenced, because that is why it failed."""
        try:
            async with asyncio.timeout(GIVE_UP_SECONDS):
                await self.producer.abort_transaction()
        except ProducerFenced:
            raise
        # The error of the slice counts.  The next runner, or the coordinator, aborts it.
        except (KafkaError, IllegalStateError, TimeoutError) as error:
            log.info("event=job.slice_open job=%s reason=%r", self.job.id, error)

    async def look(self) -> None:
        """Raise RunStopped or RunAborted if the job is to end here."""
        if self._stop.is_set():
            raise RunStopped
        request = await self.access.log.abort_request(self.job)
        if request is not None:
            raise RunAborted(request.by)

    async def pause(self, seconds: float) -> None:
        """Wait, with the records and looks that are due meanwhile."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(min(left, HEARTBEAT_SECONDS)):
                    await self._stop.wait()
            except TimeoutError:
                pass
            await self.look()
            if self.is_slice_due:
                await self.slice()

    async def during(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of work that writes nothing, with records and looks meanwhile."""
        task = asyncio.ensure_future(work)
        try:
            while True:
                await asyncio.wait({task}, timeout=HEARTBEAT_SECONDS)
                if task.done():
                    return task.result()
                await self.look()
                await self.slice()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})


def taken(job: Job) -> JobTaken:
    """Return the error of a runner that has lost its job, or may not take it."""
    return JobTaken(
        f"job {job.id!r} is {job.state} and has the runner {job.runner!r}; this runner writes "
        f"nothing for it. sharegroup jobs show {job.id} shows whether it goes on, and "
        f"sharegroup jobs resume {job.id} takes it over"
    )


def ended(job: Job) -> JobEnded:
    """Return the error of a call that needs a job that has not ended."""
    return JobEnded(_ended_text(job))


def _ended_text(job: Job) -> str:
    text = f"job {job.id!r} is {job.state}, so nothing can be done with it"
    if job.state is JobState.DONE:
        return f"{text}; start another one"
    return f"{text} before sharegroup jobs resume {job.id}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
