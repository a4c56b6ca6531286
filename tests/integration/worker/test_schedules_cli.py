"""`sharegroup schedules`, and schedules in `sharegroup worker plan`, `check` and `apply`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.docs.write_docs import JSON_KEYS
from tests.integration.cli.piping import Piped, at, sharegroup
from tests.integration.worker.processes import WorkerProcess
from tests.support.limits import HANGING_SECONDS

APPLICATION = """
from sharegroup.worker import ScheduledRun

app = App({name!r}, bootstrap_servers={bootstrap!r}, grace="1s")

@app.share_group({name!r} + "-group", topics={name!r}, retry=None, dead_letter=None)
async def report(run: ScheduledRun) -> None:
    note(run.id)

app.every("{every}", to=report, name="nightly", missed="all", revision={revision})
"""


def listed(bootstrap: str, name: str) -> list[dict[str, Any]]:
    printed = sharegroup(*at(bootstrap, f"schedules list {name} --json"))
    assert printed.code == 0, printed.err
    rows = json.loads(printed.out)
    assert isinstance(rows, list)
    return rows


def commanded(bootstrap: str, words: str) -> Piped:
    printed = sharegroup(*at(bootstrap, f"schedules {words} --json"))
    assert " ".join(json.loads(printed.out)) == JSON_KEYS["schedules pause"]
    return printed


@pytest.mark.slow
def test_a_schedule_is_listed_paused_run_and_resumed(
    bootstrap: str, topic: str, tmp_path: Path
) -> None:
    assert listed(bootstrap, topic) == []
    text = APPLICATION.format(name=topic, bootstrap=bootstrap, every="1h", revision=1)
    with WorkerProcess(tmp_path, text) as worker:
        worker.wait_ready()
        worker.wait_until(lambda: bool(listed(bootstrap, topic)), "its schedule")
        (row,) = listed(bootstrap, topic)
        assert " ".join(row) == JSON_KEYS["schedules list"]
        assert (row["name"], row["when"], row["runs"]) == ("nightly", "every 1:00:00", 0)

        assert commanded(bootstrap, f"pause {topic} nightly").code == 0
        (row,) = listed(bootstrap, topic)
        assert row["paused_by"]
        assert row["next"] is None

        assert commanded(bootstrap, f"run {topic} nightly").code == 0
        worker.wait_until(lambda: len(worker.noted()) == 1, "its run")
        assert commanded(bootstrap, f"resume {topic} nightly").code == 0
        (row,) = listed(bootstrap, topic)
        assert (row["paused_by"], row["runs"]) == (None, 1)

        unknown = sharegroup(*at(bootstrap, f"schedules pause {topic} daily"))
        assert unknown.code == 1
        assert "has no schedule 'daily'; it has nightly" in unknown.err


@pytest.mark.slow
def test_a_plan_names_the_differences_and_prune_removes(
    bootstrap: str, topic: str, tmp_path: Path
) -> None:
    text = APPLICATION.format(name=topic, bootstrap=bootstrap, every="1h", revision=1)
    module = "shop:app"
    worker = WorkerProcess(tmp_path, text)
    assert "a worker that starts declares it" in worker.run("plan", module).stdout
    with worker:
        worker.wait_ready()
        worker.wait_until(lambda: bool(listed(bootstrap, topic)), "its schedule")
        assert "There are no differences." in worker.run("plan", module).stdout

        # Another interval without a new revision.
        worker.write(APPLICATION.format(name=topic, bootstrap=bootstrap, every="2h", revision=1))
        refused = worker.run("plan", module, "--json")
        assert [row["why"] for row in json.loads(refused.stdout)] == [
            "it differs from the stored one; declare it with revision=2"
        ]
        assert worker.run("check", module).returncode == 2

        worker.write(text.partition("app.every")[0])
        planned = json.loads(worker.run("plan", module, "--json").stdout)
        assert ("surplus", "schedule", "nightly") in [
            (row["kind"], row["resource"], row["name"]) for row in planned
        ]
        assert listed(bootstrap, topic)
        applied = worker.run("apply", module, "--prune")
        assert applied.returncode == 0, applied.stderr
        assert listed(bootstrap, topic) == []


@pytest.mark.slow
def test_a_command_without_a_worker_waits_and_says_so(
    bootstrap: str, topic: str, tmp_path: Path
) -> None:
    text = APPLICATION.format(name=topic, bootstrap=bootstrap, every="1h", revision=1)
    with WorkerProcess(tmp_path, text) as worker:
        worker.wait_ready()
        worker.wait_until(lambda: bool(listed(bootstrap, topic)), "its schedule")

    printed = commanded(bootstrap, f"pause {topic} nightly")
    assert printed.code == 1
    assert f"no worker of {topic} has carried this out yet" in printed.err

    with worker:
        limit = time.monotonic() + HANGING_SECONDS
        while listed(bootstrap, topic)[0]["paused_by"] is None:
            assert time.monotonic() < limit
            time.sleep(0.1)
