"""Runners of jobs that are killed, frozen or refused: each letter is sent once all the same."""

from __future__ import annotations

import asyncio
import signal

import pytest

from sharegroup.client import AdminClient
from sharegroup.client.admin.types import AlterConfig, ConfigResource
from sharegroup.jobs import Job, Jobs, JobState
from sharegroup.jobs.job_run import TRANSACTION_TIMEOUT_MS
from sharegroup.protocol_enums import ResourceType
from tests.integration.worker.collecting import on_a_loop
from tests.integration.worker.dead import Given, NoAnswer, bury, failed
from tests.integration.worker.jobs_scene import (
    committed,
    each_once,
    request,
    runner,
    set_up,
    until,
)

RATE = 500
FROZEN_SECONDS = TRANSACTION_TIMEOUT_MS / 1000 + 12
"""Past the timeout of a transaction, and the time after which a coordinator looks again."""


def has_begun(job: Job) -> bool:
    return job.progress.done >= 200


@pytest.mark.slow
@on_a_loop
async def test_kill_9_of_a_runner_loses_and_repeats_nothing(bootstrap: str, group: str) -> None:
    await set_up(bootstrap, group)
    async with Jobs(bootstrap_servers=bootstrap) as jobs:
        job = await jobs.start(request(group, rate=RATE))
        with runner(bootstrap, job.id) as process:
            await until(jobs, job.id, has_begun)
            process.kill()
        assert (await jobs.show(job.id)).state is JobState.RUNNING
        await jobs.resume(job.id)
        done = await jobs.run(job.id)
    assert (done.state, done.progress.done) == (JobState.DONE, 1_000)
    assert await each_once(bootstrap, group)


@pytest.mark.slow
@on_a_loop
async def test_runner_that_was_frozen_is_fenced_and_says_so(bootstrap: str, group: str) -> None:
    """It is frozen in the middle, another one takes over at once, and then it wakes up."""
    await set_up(bootstrap, group)
    async with Jobs(bootstrap_servers=bootstrap) as jobs:
        job = await jobs.start(request(group, rate=RATE))
        with runner(bootstrap, job.id) as process:
            await until(jobs, job.id, has_begun)
            process.send_signal(signal.SIGSTOP)
            await jobs.resume(job.id)
            assert (await jobs.run(job.id)).state is JobState.DONE
            process.send_signal(signal.SIGCONT)
            out, _ = await asyncio.to_thread(process.communicate, timeout=60)
    assert out.startswith(f"taken: job '{job.id}' is done and has the runner"), out
    assert await each_once(bootstrap, group)


@pytest.mark.slow
@on_a_loop
async def test_runner_frozen_past_its_transaction_goes_on_if_nobody_took_over(
    bootstrap: str, group: str
) -> None:
    await set_up(bootstrap, group)
    async with Jobs(bootstrap_servers=bootstrap) as jobs:
        job = await jobs.start(request(group, rate=RATE))
        with runner(bootstrap, job.id) as process:
            await until(jobs, job.id, has_begun)
            process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(FROZEN_SECONDS)  # The time of the coordinator, which is the case.
            process.send_signal(signal.SIGCONT)
            out, _ = await asyncio.to_thread(process.communicate, timeout=60)
    assert out == "done \n"
    assert await each_once(bootstrap, group)


@pytest.mark.slow
@on_a_loop
async def test_letters_that_a_broker_refuses_stay_and_all_others_are_sent(
    bootstrap: str, group: str
) -> None:
    """The target takes no record above 2,000 bytes; every seventh letter is larger."""
    dead = await set_up(bootstrap, group, 0)
    values = [b"x" * 3_000 if number % 7 == 3 else b"%d" % number for number in range(100)]
    letters = [Given("orders", offset=offset, value=value) for offset, value in enumerate(values)]
    await bury(bootstrap, dead, group, *((given, failed(NoAnswer("late"))) for given in letters))
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        resource = ConfigResource(ResourceType.TOPIC, f"{group}.retry")
        await admin.incremental_alter_configs(
            {resource: [AlterConfig("max.message.bytes", "2000")]}
        )
    async with Jobs(bootstrap_servers=bootstrap) as jobs:
        done = await jobs.run((await jobs.start(request(group))).id)
    assert (done.state, done.progress.done) == (JobState.DONE, 100)
    refused = done.result["refused"]
    assert {entry["reason"].partition(":")[0] for entry in refused} == {"MessageTooLarge"}
    places = sorted(first for entry in refused for _, first, _ in entry["runs"])
    assert (sum(entry["letters"] for entry in refused), places) == (14, list(range(3, 100, 7)))
    sent = [value for number, value in enumerate(values) if number % 7 != 3]
    assert await committed(bootstrap, f"{group}.retry") == sent
