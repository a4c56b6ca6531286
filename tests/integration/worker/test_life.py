"""A worker's life as a process: starting, stopping, being quiet, being looked at."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import pytest

from sharegroup.client import AdminClient, Producer, SharePartitionOffset
from tests.docs.write_docs import JSON_KEYS
from tests.integration.worker.processes import WorkerProcess
from tests.support.limits import HANGING_SECONDS
from tests.support.scraping import scrape

APP = """
app = App("{group}", bootstrap_servers="{bootstrap}", grace="{grace}")

@app.share_group("{group}", topics="{topic}", concurrency=8, retry=Retry(initial_delay="50ms"))
async def work(text: str) -> None:
    note("begin " + text)
    kind, _, seconds = text.partition(" ")
    if seconds:
        await asyncio.sleep(float(seconds))
    note("end " + text)

@app.on_startup
async def opened() -> None:
    note("opened")

@app.on_shutdown
async def closed() -> None:
    note("closed")
"""


def application(bootstrap: str, group: str, topic: str, *, grace: str = "10s") -> str:
    return APP.format(bootstrap=bootstrap, group=group, topic=topic, grace=grace)


def send(bootstrap: str, topic: str, texts: Sequence[str]) -> None:
    """Records whose values are these texts."""

    async def produce() -> None:
        async with Producer(bootstrap_servers=bootstrap) as producer:
            for text in texts:
                await producer.send_and_wait(topic, text.encode(), partition=0)

    asyncio.run(produce())


def lag(bootstrap: str, group: str, topic: str) -> int:
    """How many records of the topic the group has not settled."""

    async def ask() -> int:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            partitions = (await admin.list_share_group_offsets({group: None}))[group]
            assert isinstance(partitions, dict), partitions
            known = [offsets for where, offsets in partitions.items() if where.topic == topic]
            return sum(
                offsets.lag
                for offsets in known
                if isinstance(offsets, SharePartitionOffset) and offsets.lag
            )

    return asyncio.run(ask())


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=HANGING_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_sigterm_lets_handlers_finish_and_prints_a_report(
    bootstrap: str, group: str, topic: str, tmp_path: Path
) -> None:
    with WorkerProcess(tmp_path, application(bootstrap, group, topic)) as worker:
        worker.wait_ready()
        send(bootstrap, topic, ["a 1", "b 1"])
        worker.wait_noted("begin a 1", "begin b 1")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert worker.noted() == [
            "opened", "begin a 1", "begin b 1", "end a 1", "end b 1", "closed",
        ]  # fmt: skip
        assert worker.stopped() == {
            "app": group, "handled": "2", "finished": "2", "interrupted": "0", "released": "0",
        }  # fmt: skip
        assert list((tmp_path / "run" / "sharegroup").iterdir()) == []
    assert lag(bootstrap, group, topic) == 0


@pytest.mark.slow
def test_records_beyond_the_grace_period_are_released_and_redelivered(
    bootstrap: str, group: str, topic: str, tmp_path: Path
) -> None:
    text = application(bootstrap, group, topic, grace="300ms")
    with WorkerProcess(tmp_path, text) as worker:
        worker.wait_ready()
        send(bootstrap, topic, ["long 60", "short 0.1"])
        worker.wait_noted("begin long 60", "begin short 0.1")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert "end short 0.1" in worker.noted()
        assert "end long 60" not in worker.noted()
        facts = worker.stopped()
        assert (facts["interrupted"], facts["released"]) == ("1", "1")
        assert facts["of"] == f"{topic}-0:1"
    assert lag(bootstrap, group, topic) == 1


@pytest.mark.slow
def test_a_second_sigterm_hurries(bootstrap: str, group: str, topic: str, tmp_path: Path) -> None:
    with WorkerProcess(tmp_path, application(bootstrap, group, topic, grace="60s")) as worker:
        worker.wait_ready()
        send(bootstrap, topic, ["long 60"])
        worker.wait_noted("begin long 60")
        worker.signal(signal.SIGTERM)
        [pid_file] = (tmp_path / "run" / "sharegroup").iterdir()
        worker.wait_until(lambda: '"stopping"' in pid_file.read_text(), "its stop")
        begin = time.monotonic()
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert time.monotonic() - begin < 10
        assert worker.stopped()["released"] == "1"


@pytest.mark.slow
def test_quiet_worker_finishes_its_records_and_takes_none_until_resumed(
    bootstrap: str, group: str, topic: str, tmp_path: Path
) -> None:
    text = application(bootstrap, group, topic)
    with WorkerProcess(tmp_path, text, "--health-port", "0") as worker:
        health = worker.wait_ready()["health"]
        send(bootstrap, topic, ["a 0.5"])
        worker.wait_noted("begin a 0.5")
        done = worker.run("quiet", group)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split()[-1] == "quiet"
        assert get(f"{health}/ready") == (503, "quiet\n")
        assert get(f"{health}/live")[0] == 200
        send(bootstrap, topic, ["b"])
        worker.wait_noted("end a 0.5")
        # It was quiet for longer than a fetch waits: had it asked, it would have been given b.
        quiet_until = time.monotonic() + 1.0
        worker.wait_until(lambda: time.monotonic() > quiet_until, "a second")
        assert "begin b" not in worker.noted()
        done = worker.run("resume", group, "--json")
        [row] = json.loads(done.stdout)
        assert row == {"app": group, "pid": worker.pid, "phase": "running"}
        assert " ".join(row) == JSON_KEYS["worker resume"]
        worker.wait_noted("end b")
        assert get(f"{health}/ready") == (200, "running\n")
        assert worker.run("stop", group).returncode == 0
        assert worker.wait() == 0


@pytest.mark.slow
def test_status_shows_every_process_of_an_application_and_no_stranger(
    bootstrap: str, group: str, topic: str, tmp_path: Path
) -> None:
    text = application(bootstrap, group, topic, grace="0s")
    options = ("--health-port", "0", "--pid-file", str(tmp_path / "worker.pid"))
    with WorkerProcess(tmp_path, text, *options) as worker:
        ready = worker.wait_ready()
        send(bootstrap, topic, ["a 30"])
        worker.wait_noted("begin a 30")
        [row] = json.loads(worker.run("status", group, "--json").stdout)
        assert " ".join(row) == JSON_KEYS["worker status"]
        assert row.pop("since").endswith("+00:00")
        assert row == {
            "app": group, "pid": worker.pid, "phase": "running", "groups": [group],
            "running": 1, "waiting": 0, "held": 0, "health": ready["health"], "metrics": None,
        }  # fmt: skip
        status = worker.run("status", "--pid-file", str(tmp_path / "worker.pid"), "--json")
        assert json.loads(status.stdout)[0]["pid"] == worker.pid
        no_workers = worker.run("status", "another").stdout
        assert no_workers.startswith("There are no workers of another of this user")
        everywhere = json.loads(worker.run("status", "--json").stdout)
        assert worker.pid in [process["pid"] for process in everywhere]
        assert worker.run("status", group).stderr == ""
        none = worker.run("quiet", "another")
        assert (none.returncode, none.stdout) == (1, "")
        assert none.stderr == (
            "Error: no worker of another of this user is running on this machine; "
            "for those of a cluster, name it with --bootstrap-server or --profile\n"
        )


@pytest.mark.slow
def test_health_and_metrics_may_share_a_port(
    bootstrap: str, group: str, topic: str, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ("--health-port", str(port), "--metrics-port", str(port))
    with WorkerProcess(tmp_path, application(bootstrap, group, topic), *options) as worker:
        ready = worker.wait_ready()
        assert ready["health"] == ready["metrics"] == f"http://127.0.0.1:{port}"
        worker.wait_until(lambda: get(f"{ready['health']}/ready")[0] == 200, "its readiness")
        send(bootstrap, topic, ["a", "b"])
        worker.wait_noted("end a", "end b")
        ours = {"group": group, "handler": "work"}
        worker.wait_until(
            lambda: (
                scrape(port)("sharegroup_worker_handled_total", **ours, outcome="succeeded") == 2
            ),
            "two successes",
        )
        of = scrape(port)
        assert of("sharegroup_worker_phase", phase="running") == 1
        assert of("sharegroup_worker_handling_seconds_count", **ours) == 2
        assert of("sharegroup_worker_joined", group=group) == 1
        assert of("process_open_fds") > 0  # What the application's other libraries register.
        status = json.loads(get(f"{ready['health']}/status")[1])
        assert status["handlers"][0]["succeeded"] == 2


@pytest.mark.slow
def test_a_port_in_use_ends_the_start(
    bootstrap: str, group: str, topic: str, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = application(bootstrap, group, topic)
        with WorkerProcess(tmp_path, text, "--health-port", str(port)) as worker:
            assert worker.wait() == 1
            assert f"can't listen on 127.0.0.1:{port}" in worker.log.read_text()
            assert "Traceback" not in worker.log.read_text()
            assert worker.noted() == []


@pytest.mark.slow
def test_sigterm_during_the_start_ends_the_worker(group: str, topic: str, tmp_path: Path) -> None:
    """No broker listens on the port, so the start would wait for one."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        nowhere = f"127.0.0.1:{free.getsockname()[1]}"
        text = application(nowhere, group, topic)
        with WorkerProcess(tmp_path, text) as worker:
            folder = tmp_path / "run" / "sharegroup"
            worker.wait_until(lambda: folder.exists() and any(folder.iterdir()), "its pid file")
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 0
            assert worker.printed() == ""


@pytest.mark.slow
def test_only_the_selected_groups_run(
    bootstrap: str, group: str, topic: str, tmp_path: Path
) -> None:
    text = application(bootstrap, group, topic) + (
        f'\n@app.share_group("{group}.other", topics="{topic}")\n'
        'async def other(text: str) -> None:\n    note("other " + text)\n'
    )
    with WorkerProcess(tmp_path, text, "-g", group, "-c", "1", "--grace", "1") as worker:
        assert worker.wait_ready()["groups"] == group
        send(bootstrap, topic, ["a 0.3", "b"])
        worker.wait_noted("end b")
        noted = worker.noted()
        assert noted.index("end a 0.3") < noted.index("begin b")  # One at a time.
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert not any(line.startswith("other") for line in worker.noted())


@pytest.mark.slow
def test_error_names_an_unknown_group_and_the_existing_ones(
    bootstrap: str, group: str, topic: str, tmp_path: Path
) -> None:
    with WorkerProcess(tmp_path, application(bootstrap, group, topic), "-g", "nope") as worker:
        assert worker.wait() == 2
        assert f"has no group nope; its groups are {group}" in worker.log.read_text()


@pytest.mark.usefixtures("heeds_hangups")
@pytest.mark.slow
def test_the_commands_are_for_every_process_of_an_application(
    bootstrap: str, group: str, topic: str, tmp_path: Path
) -> None:
    text = application(bootstrap, group, topic, grace="1s")
    runtime = tmp_path / "run"
    with (
        WorkerProcess(tmp_path / "a", text, runtime=runtime) as first,
        WorkerProcess(tmp_path / "b", text, runtime=runtime) as other,
    ):
        first.wait_ready()
        other.wait_ready()
        rows = json.loads(first.run("quiet", group, "--json").stdout)
        assert {row["pid"]: row["phase"] for row in rows} == {
            first.pid: "quiet",
            other.pid: "quiet",
        }
        other.signal(signal.SIGKILL)
        other.wait()
        rows = json.loads(first.run("stop", group, "--json").stdout)
        assert rows == [{"app": group, "pid": first.pid, "phase": "stopped"}]
        assert first.wait() == 0
        assert list((runtime / "sharegroup").iterdir()) == []


@pytest.mark.slow
def test_handler_in_a_separate_process_uses_the_same_log_format(
    bootstrap: str, group: str, topic: str, tmp_path: Path
) -> None:
    text = (
        f'app = App("{group}", bootstrap_servers="{bootstrap}", grace="1s")\n\n'
        f'@app.share_group("{group}", topics="{topic}", processes=1)\n'
        "async def work(text: str) -> None:\n"
        '    import logging\n    logging.getLogger("shop").info("worked")\n    note(text)\n'
    )
    with WorkerProcess(tmp_path, text, "--log-format", "json") as worker:
        worker.wait_ready()
        send(bootstrap, topic, ["a"])
        worker.wait_noted("a")
        [line] = [line for line in worker.log.read_text().splitlines() if "worked" in line]
        facts = json.loads(line)
        assert (facts["logger"], facts["group"]) == ("shop", group)
        assert (facts["topic"], facts["partition"], facts["offset"]) == (topic, 0, 0)
        # A terminal that closes tells the whole group of processes; the handler's outlives it.
        worker.signal(signal.SIGHUP)
        assert worker.wait() == 0


@pytest.mark.slow
@pytest.mark.parametrize("form", ["text", "json"])
def test_log_lines_name_the_position_of_their_record(
    bootstrap: str, group: str, topic: str, tmp_path: Path, form: str
) -> None:
    text = application(bootstrap, group, topic).replace(
        'note("begin " + text)', "1 / len(text.strip())"
    )
    with WorkerProcess(tmp_path, text, "--log-format", form) as worker:
        worker.wait_ready()
        send(bootstrap, topic, [" "])
        worker.wait_until(lambda: "record.failed" in worker.log.read_text(), "a failure")
        [line] = [line for line in worker.log.read_text().splitlines() if "record.failed" in line][
            :1
        ]
        if form == "json":
            facts = json.loads(line)
            assert (facts["event"], facts["group"], facts["topic"]) == (
                "record.failed", group, topic,
            )  # fmt: skip
            assert (facts["partition"], facts["offset"], facts["attempt"]) == (0, 0, 1)
        else:
            assert (
                f"event=record.failed group={group} handler=work topic={topic} partition=0 "
                "offset=0 attempt=1 error=builtins.ZeroDivisionError" in line
            )
