"""Jobs that purge dead letters: a partition is a slice.

A log is deleted up to an offset, so a deletion that is repeated deletes nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import MappingProxyType
from typing import ClassVar

from sharegroup.dead_letters.purge import Purge, plan_purge, purge
from sharegroup.dead_letters.queue import DeadLetterQueue
from sharegroup.dead_letters.selection import Selection
from sharegroup.jobs.filters import LETTERS
from sharegroup.jobs.job import Document, JobPlan, JobProgress, JobRequest, moved
from sharegroup.jobs.job_run import JobAccess, JobRun
from sharegroup.jobs.redrive_job import open_queue

PURGE = "purge"


def purge_request(topic: str, selection: Selection, *, everything: bool = False) -> JobRequest:
    """Return the request for a job that deletes the oldest letters of a topic, if they match.

    A selection without conditions raises InvalidConfig, unless ``everything`` says that all letters
    are meant.
    """
    return JobRequest(
        kind=PURGE, topic=topic, filter=LETTERS.document(selection, everything=everything)
    )


class PurgeJobs:
    """The kind of jobs that delete dead letters."""

    producing: ClassVar[Document] = MappingProxyType({})

    def check(self, request: JobRequest) -> None:
        """Raise InvalidConfig if the filter is not valid."""
        LETTERS.parsed(request.filter)

    async def plan(self, request: JobRequest, access: JobAccess) -> JobPlan:
        """Count what would be deleted, without deleting anything."""
        async with DeadLetterQueue(request.topic, **access.reading) as queue:
            parts = await plan_purge(queue, LETTERS.parsed(request.filter))
        return JobPlan(sum(part.letters for part in parts), _result(parts))

    async def run(self, run: JobRun) -> None:
        """Delete partition by partition."""
        async with AsyncExitStack() as stack:
            queue = await open_queue(run, stack)
            parts = await run.during(plan_purge(queue, LETTERS.parsed(run.job.request.filter)))
            before = run.job
            for number, part in enumerate(parts, 1):
                await run.look()
                await purge(queue, [part])
                finished = parts[:number]
                deleted = sum(partition.letters for partition in finished)
                await run.slice(
                    positions=moved(run.job.positions, {part.partition: part.before}),
                    progress=JobProgress(before.progress.counted, before.progress.done + deleted),
                    result=_added(before.result, _result(finished)),
                )


def purges_of(result: Document) -> list[Purge]:
    """Return what a job has deleted by partition, from its result; for those of its last run."""
    return [Purge(**part) for part in result.get("partitions", ())]


def _result(parts: Sequence[Purge]) -> Document:
    return {
        "deleted": sum(part.letters for part in parts),
        "behind": sum(part.behind for part in parts),
        "partitions": [part._asdict() for part in parts],
    }


def _added(before: Document, now: Document) -> Document:
    """Return the result of this run with the number of letters that earlier runs deleted."""
    return {**now, "deleted": before.get("deleted", 0) + now["deleted"]}
