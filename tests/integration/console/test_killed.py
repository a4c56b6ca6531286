"""A console is killed in the middle of a redrive: the next one ends it, no letter goes twice."""

from __future__ import annotations

import asyncio
import html
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from sharegroup.jobs import Job, Jobs
from sharegroup.testing import broker
from tests.integration.worker.jobs_scene import each_once, set_up
from tests.support.limits import HANGING_SECONDS

LETTERS = 6_000
"""So many that a job has several slices."""


async def started(bootstrap: str, log: Path) -> tuple[subprocess.Popen[str], str]:
    words = ("console", "--port", "0", "--allow-changes", "--bootstrap-server", bootstrap)
    with log.open("a") as lines:
        process = subprocess.Popen(
            [sys.executable, "-m", "sharegroup", *words],
            stdout=subprocess.PIPE,
            stderr=lines,
            text=True,
        )
    assert process.stdout is not None
    line = await asyncio.to_thread(process.stdout.readline)
    process.stdout.close()
    ready = re.match(r"ready console=(\S+)", line)
    assert ready is not None, log.read_text()
    return process, ready[1]


@pytest.mark.slow
def test_redrive_by_filter_survives_a_kill_of_the_console(tmp_path: Path) -> None:
    group, log = "billing", tmp_path / "log"

    async def run() -> None:
        async with broker() as there:
            bootstrap = there.bootstrap_servers
            topic = await set_up(bootstrap, group, LETTERS)
            process, address = await started(bootstrap, log)
            async with httpx.AsyncClient(base_url=address, timeout=HANGING_SECONDS) as browser:
                asked = {"kind": "redrive", "topic": topic, "group": group}
                plan = await browser.get("/plan", params={**asked, "confirm": f"{group}.retry"})
                assert f"Send back {LETTERS:,} letters" in plan.text
                (form,) = re.findall(
                    r'<form[^>]*action="/jobs/start-redrive".*?</form>', plan.text, re.DOTALL
                )
                found = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', form)
                fields = {name: html.unescape(text) for name, text in found}
                answer = await browser.post("/jobs/start-redrive", data=fields)
                assert answer.status_code == 303, answer.text
                job_id = answer.headers["location"].partition("id=")[2]
            async with Jobs(bootstrap_servers=bootstrap) as jobs:

                async def until_done(count: int) -> Job:
                    async with asyncio.timeout(HANGING_SECONDS):
                        while (job := await jobs.show(job_id)).progress.done < count:
                            await asyncio.sleep(0.01)
                    return job

                await until_done(1)
                process.kill()
                process.wait()
                assert not (await jobs.show(job_id)).state.is_end
                process, _ = await started(bootstrap, log)
                try:
                    await until_done(LETTERS)
                    async with asyncio.timeout(HANGING_SECONDS):
                        while not (await jobs.show(job_id)).state.is_end:
                            await asyncio.sleep(0.05)
                    assert str((await jobs.show(job_id)).state) == "done"
                finally:
                    process.terminate()
                    process.wait()
            assert await each_once(bootstrap, group, LETTERS)

    asyncio.run(run())
