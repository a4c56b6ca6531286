"""`sharegroup jobs`, and the verbs of `dlq` that are jobs: what they print, and a kill."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest

from sharegroup.dead_letters.selection import Selection
from sharegroup.jobs import Job, Jobs, JobState, purge_request
from tests.docs.write_docs import JSON_KEYS
from tests.integration.worker.collecting import on_a_loop
from tests.integration.worker.jobs_scene import committed, each_once, request, set_up, until

SECONDS_MAX = 120
FEW = 30


def start(bootstrap: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "sharegroup", *words, "--bootstrap-server", bootstrap],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


async def run(bootstrap: str, *words: str) -> tuple[int, str, str]:
    process = start(bootstrap, *words)
    out, err = await asyncio.to_thread(process.communicate, timeout=SECONDS_MAX)
    return process.returncode, out, err


async def rows(bootstrap: str, *words: str) -> Any:
    code, out, err = await run(bootstrap, *words, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


async def job_of(jobs: Jobs, group: str) -> Job:
    """Return the newest job of a group, when there is one."""
    while True:
        for job in (await jobs.list()).jobs:
            if job.request.topic == f"{group}.dead":
                return job
        await asyncio.sleep(0.05)


@pytest.mark.slow
@on_a_loop
async def test_redrive_that_is_killed_is_a_job_that_resume_ends(bootstrap: str, group: str) -> None:
    dead = await set_up(bootstrap, group)
    process = start(
        bootstrap, "dlq", "redrive", dead, "--confirm", f"{group}.retry", "--rate", "500"
    )
    async with Jobs(bootstrap_servers=bootstrap) as jobs:
        job = await job_of(jobs, group)
        await until(jobs, job.id, lambda job: job.progress.done >= 200)
        process.kill()
        await asyncio.to_thread(process.communicate)
        assert (await jobs.show(job.id)).state is JobState.RUNNING
    code, out, err = await run(bootstrap, "jobs", "resume", job.id)
    assert (code, err) == (0, "")
    assert out == f"sent 1000 records back to {group}.retry\n"
    assert await each_once(bootstrap, group)
    listed = await rows(bootstrap, "jobs", "list")
    [row] = [row for row in listed if row["id"] == job.id]
    assert (row["state"], row["done"], row["topic"]) == ("done", 1_000, dead)


@on_a_loop
async def test_purge_is_a_job_that_resume_ends(bootstrap: str, group: str) -> None:
    """A purge whose runner is gone, one by its verb, one without a job, and one of no topic."""
    dead = await set_up(bootstrap, group, FEW)
    async with Jobs(bootstrap_servers=bootstrap) as jobs:
        left = await jobs.start(purge_request(dead, Selection(places=frozenset([(0, 0)]))))
        code, out, err = await run(bootstrap, "jobs", "resume", left.id)
        assert (code, err) == (0, "")
        assert out.splitlines()[1].split() == [dead, "0", "1", "1", "0"]
        assert len(await committed(bootstrap, dead)) == FEW - 1
        purged = await rows(bootstrap, "dlq", "purge", dead, "--all", "--execute")
        assert (list(purged[0]), purged[0]["deleted"]) == (
            JSON_KEYS["dlq purge"].split(), FEW - 1,
        )  # fmt: skip
        assert await committed(bootstrap, dead) == []
        job = await job_of(jobs, group)
        assert (job.request.kind, job.state, job.progress.done) == ("purge", JobState.DONE, FEW - 1)
        await rows(bootstrap, "dlq", "purge", dead, "--all", "--execute", "--no-job")
        assert (await job_of(jobs, group)).id == job.id, "no further job"
    code, _, err = await run(bootstrap, "dlq", "purge", f"{group}.none", "--all", "--execute")
    assert (code, f"{group}.none" in err) == (1, True)
    assert all(row["topic"] != f"{group}.none" for row in await rows(bootstrap, "jobs", "list"))


@pytest.mark.slow
@on_a_loop
async def test_verbs_print_the_keys_of_the_document(bootstrap: str, group: str) -> None:
    await set_up(bootstrap, group, FEW)
    async with Jobs(bootstrap_servers=bootstrap) as jobs:
        job = await jobs.start(request(group), started_by="an\x1bna", counted=FEW)
    assert list((await rows(bootstrap, "jobs", "list"))[0]) == JSON_KEYS["jobs list"].split()
    shown = await rows(bootstrap, "jobs", "show", job.id)
    assert list(shown) == JSON_KEYS["jobs show"].split()
    assert (shown["counted"], shown["filter"]) == (FEW, {"group": group})
    _, out, _ = await run(bootstrap, "jobs", "show", job.id)
    assert "started_by  an\\x1bna\n" in out
    aborted = await rows(bootstrap, "jobs", "abort", job.id)
    assert aborted == {"id": job.id, "state": "aborted"}
    waiting = await rows(bootstrap, "jobs", "resume", job.id, "--detach")
    assert (list(waiting), waiting["state"]) == (JSON_KEYS["jobs resume"].split(), "waiting")
    code, out, _ = await run(bootstrap, "jobs", "resume", job.id)
    assert (code, out) == (0, f"sent {FEW} records back to {group}.retry\n")
    code, _, err = await run(bootstrap, "jobs", "abort", job.id)
    assert (code, "is done, so nothing can be done with it" in err) == (1, True)
    code, _, err = await run(bootstrap, "jobs", "show", "no-such-job")
    assert (code, "sharegroup jobs list shows" in err) == (1, True)
