"""`sharegroup worker status`, `quiet` and `stop` over the cluster, with processes that die."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sharegroup.cli.worker.worker import command
from sharegroup.client import AdminClient
from sharegroup.fleet.fleet import Fleet
from sharegroup.worker.infrastructure import apply, plan
from tests.docs.write_docs import JSON_KEYS
from tests.integration.worker.processes import WorkerProcess
from tests.integration.worker.test_fleet import app_of
from tests.integration.worker.test_steering import until

TEXT = """\
app = App({group!r}, bootstrap_servers={bootstrap!r}, announce=True, grace="2s")

@app.share_group({group!r}, topics={topic!r}, retry=None, dead_letter=None)
async def work(value: bytes) -> None: ...
"""
WAIT_SECONDS = "4"
"""For workers of which none answers."""
ANSWER_SECONDS = "15"
"""For a worker that answers, on a machine that is busy: it looks for commands every 2 s."""


class Crew:
    """Three workers of one application, and commands for them from a machine without pid files."""

    def __init__(self, workers: list[WorkerProcess], bootstrap: str, app: str) -> None:
        self.workers = workers
        self.bootstrap = bootstrap
        self.app = app

    def told(self, verb: str, *words: str, code: int = 0) -> tuple[Any, str]:
        """The JSON of a verb, and what it says on standard error."""
        ended = self.workers[0].run(
            verb, self.app, "--bootstrap-server", self.bootstrap, "--json", *words
        )
        assert ended.returncode == code, ended.stderr
        rows = json.loads(ended.stdout)
        for row in rows:
            assert " ".join(row) == JSON_KEYS[f"worker {verb} --bootstrap-server"]
        return rows, ended.stderr

    def wait_phases(self, phases: dict[int, str]) -> dict[int, str]:
        """The worker ids, as soon as the processes have these phases."""

        async def wait() -> dict[int, str]:
            async with Fleet(self.app, bootstrap_servers=self.bootstrap) as fleet:

                async def found() -> bool:
                    now_ms = time.time_ns() // 1_000_000
                    return phases == {
                        seen.identity.pid: "lost" if seen.is_lost(now_ms) else seen.beat.phase
                        for seen in (await fleet.workers()).listed()
                    }

                await until(found, str(phases))
                listed = (await fleet.workers()).listed()
                return {seen.identity.pid: seen.identity.worker_id for seen in listed}

        return asyncio.run(wait())


@pytest.fixture
def crew(tmp_path: Path, bootstrap: str, group: str, topic: str) -> Iterator[Crew]:
    text = TEXT.format(group=group, topic=topic, bootstrap=bootstrap)
    with ExitStack() as stack:
        workers = [WorkerProcess(tmp_path / f"machine{number}", text) for number in range(3)]
        for worker in workers:
            stack.enter_context(worker)
        for worker in workers:
            worker.wait_ready()
        yield Crew(workers, bootstrap, group)


def outcomes(rows: list[dict[str, Any]]) -> dict[int, str]:
    return {row["pid"]: row["outcome"] for row in rows}


@pytest.mark.slow
def test_workers_of_all_machines_are_seen_and_steered_also_if_some_are_lost(crew: Crew) -> None:
    """One is killed, one is frozen, until both are lost; the frozen one wakes up too late."""
    first, killed, frozen = (worker.pid for worker in crew.workers)
    ids = crew.wait_phases(dict.fromkeys((first, killed, frozen), "running"))
    assert {row["pid"]: row["worker"] for row in crew.told("status")[0]} == ids
    [row], _ = crew.told("quiet", "--worker", ids[first])
    assert (row["pid"], row["phase"], row["outcome"]) == (first, "quiet", "done")
    crew.wait_phases({first: "quiet", killed: "running", frozen: "running"})
    rows, _ = crew.told("resume")
    assert outcomes(rows) == dict.fromkeys((first, killed, frozen), "done")

    crew.workers[1].signal(signal.SIGKILL)
    crew.workers[2].signal(signal.SIGSTOP)
    try:
        rows, why = crew.told("quiet", "--worker", ids[frozen], "--timeout", WAIT_SECONDS, code=1)
        assert outcomes(rows) == {frozen: "unheard"}
        assert "1 of 1 workers unheard: no answer" in why
        crew.wait_phases({first: "running", killed: "lost", frozen: "lost"})
        rows, why = crew.told("quiet", "--timeout", ANSWER_SECONDS)
        assert outcomes(rows) == {first: "done", killed: "lost", frozen: "lost"}
        assert ids[killed] in why
        assert ids[frozen] in why
        expired = time.monotonic() + float(ANSWER_SECONDS)
        asyncio.run(until(lambda: time.monotonic() > expired, "the end of the command"))
    finally:
        crew.workers[2].signal(signal.SIGCONT)
    crew.wait_phases({first: "quiet", killed: "lost", frozen: "running"})
    # Its heartbeat comes by another connection than the commands, and may be first.
    log = crew.workers[2].log
    seen = "event=command.expired"
    asyncio.run(until(lambda: log.read_text().count(seen) == 2, "both commands to be read"))
    assert log.read_text().count("intent=quiet") == 2

    rows, _ = crew.told("stop")
    assert outcomes(rows) == {first: "done", killed: "lost", frozen: "done"}
    assert [crew.workers[0].wait(), crew.workers[2].wait()] == [0, 0]
    assert [row["phase"] for row in crew.told("status")[0]] == ["lost"]


def test_wrong_names_are_said(bootstrap: str, group: str, topic: str) -> None:
    async def make_topics() -> None:
        app = app_of(bootstrap, group, topic)
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            await apply(admin, await plan(app, admin))

    asyncio.run(make_topics())
    cluster = ("--bootstrap-server", bootstrap)
    for words, text in (
        (("stop", f"{group}x", *cluster), f"of {group}x do not announce themselves"),
        (("stop", f"{group}x", *cluster), f"did you mean {group!r}?"),
        (("quiet", group, "--host", "elsewhere", *cluster), "(host elsewhere) is listed"),
        (("quiet", group, "--host", "here"), "--host and --worker are for workers of a cluster"),
        (("status", "--pid-file", "x", *cluster), "--pid-file is a file of this machine"),
        (("quiet", *cluster), "give the name of an application"),
        (("quiet", group, "--host", "a", "--worker", "b", *cluster), "--host or --worker, not"),
    ):
        ended = CliRunner().invoke(command, words)
        assert ended.exit_code != 0
        assert text in " ".join(ended.output.split()), ended.output
    ended = CliRunner().invoke(command, ("status", group, *cluster))
    assert (ended.exit_code, ended.output) == (
        0,
        "There are no workers that announce themselves.\n",
    )
