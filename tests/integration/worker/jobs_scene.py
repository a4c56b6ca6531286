"""Letters and jobs for the tests of `sharegroup.jobs`; a runner in a process of its own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sharegroup.client import Producer
from sharegroup.client.fetch.record_reading import partition_ranges, read_records
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.settings.client_config import ReadingConfig
from sharegroup.dead_letters.redrive_copies import RedriveOptions
from sharegroup.dead_letters.selection import Selection
from sharegroup.jobs import Job, JobRequest, Jobs, redrive_request
from sharegroup.worker.dead_letters import Burier
from sharegroup.worker.declarations.topics import DeadLetter
from tests.integration.worker.dead import (
    Given,
    NoAnswer,
    Sending,
    WallClock,
    failed,
    make_topics,
    route,
)
from tests.support.limits import HANGING_SECONDS

LETTERS = 1_000


async def set_up(bootstrap: str, group: str, letters: int = LETTERS) -> str:
    """Write letters of a group, in order, and return their topic."""
    dead = f"{group}.dead"
    await make_topics(bootstrap, dead, f"{group}.retry")
    step = failed(NoAnswer("late"))
    async with Producer(bootstrap_servers=bootstrap) as producer:
        burier = Burier(Sending(producer), WallClock(), route(group, DeadLetter(dead)), "m")

        async def bury(first: int, end: int) -> None:
            given = [Given("orders", offset=n, value=b"%d" % n) for n in range(first, end)]
            await asyncio.gather(*(burier.bury(each, step) for each in given))

        # The first one alone: as long as a broker does not know the new topic, each record waits by
        # itself, and they go in any order.
        await bury(0, min(letters, 1))
        await bury(1, letters)
    return dead


def request(group: str, rate: float | None = None, limit: int | None = None) -> JobRequest:
    """Return a request to send back the letters of a group."""
    return redrive_request(
        f"{group}.dead",
        RedriveOptions(
            selection=Selection(group=group),
            confirmed=frozenset({f"{group}.retry"}),
            rate=rate,
            limit=limit,
        ),
    )


async def committed(bootstrap: str, topic: str) -> list[bytes]:
    """Return the values of a topic that a read_committed reader gets."""
    cluster = Cluster(ReadingConfig(bootstrap_servers=bootstrap))
    try:
        return [
            bytes(record.value or b"")
            for log_range in await partition_ranges(cluster, topic)
            async for records in read_records(cluster, log_range, committed=True)
            for record in records
        ]
    finally:
        cluster.close()


async def each_once(bootstrap: str, group: str, letters: int = LETTERS) -> bool:
    """Whether the copy of each letter is there exactly once, and in order."""
    values = await committed(bootstrap, f"{group}.retry")
    return values == [b"%d" % number for number in range(letters)]


async def until(jobs: Jobs, job_id: str, holds: Callable[[Job], bool]) -> Job:
    """Return the job when this holds."""
    async with asyncio.timeout(HANGING_SECONDS):
        while not holds(job := await jobs.show(job_id)):
            await asyncio.sleep(0.05)
    return job


RUNNER = """
import asyncio, sys
from sharegroup.jobs import Jobs, JobTaken

async def run():
    async with Jobs(bootstrap_servers=sys.argv[1]) as jobs:
        try:
            job = await jobs.run(sys.argv[2])
            print(job.state, job.error or "")
        except JobTaken as error:
            print("taken:", error)

asyncio.run(run())
"""


@contextmanager
def runner(bootstrap: str, job_id: str) -> Iterator[subprocess.Popen[str]]:
    """Run a job in a process, which is killed at the end of the block."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUNNER, bootstrap, job_id], stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
