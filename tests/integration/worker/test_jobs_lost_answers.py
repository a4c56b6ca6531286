"""Answers to EndTxn that are lost after the broker has carried it out: the outcome is unknown.

A producer that hears nothing asks again, and gives up after ``max_block_ms``.  Then the runner
takes its own job over: it fences itself, reads how far the job has come, and goes on from there.
"""

from __future__ import annotations

import asyncio
import logging

import pytest

from sharegroup.jobs import Job, Jobs, JobState
from sharegroup.testing import broker
from tests.integration.worker.collecting import on_a_loop
from tests.integration.worker.jobs_scene import each_once, request, set_up, until
from tests.support.chosen_broker import SHORT_TIMES
from tests.support.limits import HANGING_SECONDS

LETTERS, RATE = 100, 100.0
"""Slices of ten letters, ten of them in a second."""
GROUP = "billing"


def has_begun(job: Job) -> bool:
    return job.progress.done >= 20


def all_sent(job: Job) -> bool:
    """Whether each letter counts as sent: none was found in the ledger and left."""
    result = job.result["sent"], job.result["left"]
    return job.state is JobState.DONE and result == ({f"{GROUP}.retry": LETTERS}, {})


@on_a_loop
async def test_commit_whose_answer_is_lost_is_asked_for_again() -> None:
    async with broker(SHORT_TIMES) as there:
        await set_up(there.bootstrap_servers, GROUP, LETTERS)
        async with Jobs(bootstrap_servers=there.bootstrap_servers) as jobs:
            job = await jobs.start(request(GROUP, rate=RATE))
            running = asyncio.ensure_future(jobs.run(job.id))
            await until(jobs, job.id, has_begun)
            fault = there.drop("EndTxn", applied=True, times=3)
            done = await running
        assert fault.count == 3
        assert all_sent(done)
        assert await each_once(there.bootstrap_servers, GROUP, LETTERS)


@on_a_loop
async def test_commit_without_an_outcome_is_not_repeated(caplog: pytest.LogCaptureFixture) -> None:
    """Each EndTxn is carried out and none is answered, until the runner gives the slice up."""
    caplog.set_level(logging.WARNING, "sharegroup.jobs")
    async with broker(SHORT_TIMES) as there:
        await set_up(there.bootstrap_servers, GROUP, LETTERS)
        async with Jobs(bootstrap_servers=there.bootstrap_servers, max_block_ms=500) as jobs:
            job = await jobs.start(request(GROUP, rate=RATE))
            running = asyncio.ensure_future(jobs.run(job.id))
            await until(jobs, job.id, has_begun)
            there.drop("EndTxn", applied=True, times=None)
            async with asyncio.timeout(HANGING_SECONDS):
                while "commit_transaction has no outcome" not in caplog.text:
                    await asyncio.sleep(0.01)
            there.clear_faults()
            done = await running
        assert all_sent(done)
        assert await each_once(there.bootstrap_servers, GROUP, LETTERS)
