"""``sharegroup worker -n``: a supervisor, and real processes that crash and are killed."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from sharegroup import stop_signals
from sharegroup.__main__ import _is_supervised
from sharegroup.cli.worker.worker import command
from sharegroup.client import AdminClient, OffsetSpec, TopicPartition
from sharegroup.worker.lifecycle.channel import Channel
from sharegroup.worker.lifecycle.supervised import Supervised as FactsOfProcess
from sharegroup.worker.supervision.child_process import ChildProcess, resident_bytes
from tests.integration.worker.processes import WorkerProcess, facts_of
from tests.integration.worker.test_life import lag, send
from tests.support.limits import HANGING_SECONDS

APP = """
app = App("{group}", bootstrap_servers="{bootstrap}", grace="{grace}")

dead = DeadLetter("{topic}.dead")

@app.share_group("{group}", topics="{topic}", concurrency=4, retry=Retry(), dead_letter=dead)
async def work(text: str) -> None:
    note("begin {word} " + text)
    kind, _, seconds = text.partition(" ")
    if kind == "hang":
        time.sleep(1000)
    if kind == "die":
        os._exit(7)
    if seconds:
        await asyncio.sleep(float(seconds))
    note("end {word} " + text)
"""


class Supervised(WorkerProcess):
    """A supervisor in a process of its own, with its processes."""

    def lines(self, word: str) -> list[dict[str, str]]:
        found = [line for line in self.printed().splitlines() if line.startswith(f"{word} ")]
        return [facts_of(line) for line in found]

    def wait_lines(self, word: str, count: int) -> list[dict[str, str]]:
        self.wait_until(lambda: len(self.lines(word)) >= count, f"{count} lines `{word}`")
        return self.lines(word)

    def begin(self, bootstrap: str, topic: str, texts: list[str], *, count: int) -> None:
        """Send records to so many processes when they are ready, and wait until handlers run."""
        self.wait_lines("ready", count)
        send(bootstrap, topic, texts)
        self.wait_noted(*(f"begin old {text}" for text in texts))

    def children(self) -> list[int]:
        """The ids of the processes that have been ready and live."""
        return [pid for line in self.lines("ready") if is_alive(pid := int(line["pid"]))]

    def wait_no_children(self) -> None:
        self.wait_gone(lambda: self.children() == [], "the end of all processes")


def is_alive(pid: int) -> bool:
    """Whether it runs; a zombie that its new parent has not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def application(
    bootstrap: str, group: str, topic: str, *, word: str = "old", grace: str = "10s"
) -> str:
    return APP.format(bootstrap=bootstrap, group=group, topic=topic, word=word, grace=grace)


def page(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=HANGING_SECONDS) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.parametrize("count", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_processes_share_a_port_and_a_stop(
    bootstrap: str, group: str, topic: str, tmp_path: Path, count: int
) -> None:
    numbers = range(1, count + 1)
    text = application(bootstrap, group, topic)
    options = ("-n", str(count), "--health-port", "0", "--metrics-port", "0")
    with Supervised(tmp_path, text, *options) as there:
        (about,) = there.wait_lines("supervising", 1)
        ready = there.wait_lines("ready", count)
        assert {line["health"] for line in ready} == {f"{about['health']}/{n}" for n in numbers}
        assert {line["process"] for line in ready} == {*map(str, numbers)}
        send(bootstrap, topic, ["a", "b 0.5"])
        there.wait_noted("end old a", "begin old b 0.5")
        there.wait_until(lambda: page(f"{about['health']}/ready")[0] == 200, "its readiness")
        metrics = page(f"{about['metrics']}/metrics")[1]
        for number in numbers:
            assert f'sharegroup_worker_joined{{process="{number}",group="{group}"}} 1.0' in metrics
        there.signal(signal.SIGTERM)
        assert there.wait() == 0
        assert "end old b 0.5" in there.noted()
        assert there.children() == []
        assert len(there.lines("stopped")) == count
        assert there.printed().splitlines()[-1].endswith(" code=0")


# Kills.


@pytest.mark.slow
def test_killed_supervisor_leaves_no_process_and_its_records_are_finished(
    bootstrap: str, group: str, topic: str, tmp_path: Path
) -> None:
    with Supervised(tmp_path, application(bootstrap, group, topic), "-n", "3") as there:
        there.begin(bootstrap, topic, ["a 2", "b 2"], count=3)
        there.signal(signal.SIGKILL)
        there.wait()
        assert len(there.children()) == 3
        there.wait_no_children()
    assert {"end old a 2", "end old b 2"} <= {*there.noted()}
    assert len(there.lines("stopped")) == 3


@pytest.mark.slow
def test_process_that_hangs_ends_after_its_killed_supervisor(
    bootstrap: str, group: str, topic: str, tmp_path: Path
) -> None:
    with Supervised(tmp_path, application(bootstrap, group, topic, grace="1s"), "-n", "1") as there:
        there.begin(bootstrap, topic, ["hang"], count=1)
        there.signal(signal.SIGKILL)
        there.wait()
        there.wait_no_children()
    assert "event=orphan_ended" in there.log.read_text()


@pytest.mark.slow
def test_supervisor_that_is_killed_during_the_imports_leaves_no_process(
    bootstrap: str, group: str, topic: str, tmp_path: Path
) -> None:
    text = "note(str(os.getpid()))\ntime.sleep(1000)\n"
    with Supervised(tmp_path, text, "-n", "2") as there:
        there.wait_until(lambda: there.noted() != [], "the import")
        (pid,) = map(int, there.noted())
        there.signal(signal.SIGKILL)
        there.wait()
        there.wait_gone(lambda: not is_alive(pid), "the end of the process")


@pytest.mark.slow
def test_killed_and_crashing_processes_are_replaced(
    bootstrap: str, group: str, topic: str, tmp_path: Path
) -> None:
    with Supervised(tmp_path, application(bootstrap, group, topic), "-n", "2") as there:
        first, second = there.wait_lines("ready", 2)[:2]
        os.kill(int(first["pid"]), signal.SIGKILL)
        third = there.wait_lines("ready", 3)[2]
        assert third["process"] == first["process"]
        send(bootstrap, topic, ["die"])
        there.wait_lines("ready", 4)
        log = there.log.read_text()
        assert "signal=SIGKILL restart_s=" in log
        assert "code=7 restart_s=" in log
        # No zombie: the supervisor has waited for what has ended.
        assert not Path(f"/proc/{first['pid']}").exists()
        there.signal(signal.SIGTERM)
        there.wait()
        assert there.children() == []
    assert second["pid"] != third["pid"]


@pytest.mark.slow
def test_error_of_the_application_stops_the_supervisor(tmp_path: Path) -> None:
    with Supervised(tmp_path, "raise RuntimeError('no database')\n", "-n", "4") as there:
        assert there.wait() == 1
    log = there.log.read_text()
    assert log.count("RuntimeError: no database") == 2 * 5  # A traceback and a line for each.
    assert "event=supervisor.given_up" in log


def test_wrong_name_of_an_application_is_one_line_of_its_process(tmp_path: Path) -> None:
    with Supervised(tmp_path, "nothing = 1\n", "-n", "4") as there:
        assert there.wait() == 2
    (line,) = there.log.read_text().splitlines()
    assert line.startswith("Error: process 1: ")
    assert "has no 'app'" in line


# Reloads.


@pytest.mark.slow
def test_reload_under_load_loses_no_record_and_writes_no_letter(
    bootstrap: str, group: str, topic: str, tmp_path: Path
) -> None:
    texts = [f"{number} 0.05" for number in range(400)]
    with Supervised(tmp_path, application(bootstrap, group, topic), "-n", "3") as there:
        there.wait_lines("ready", 3)
        send(bootstrap, topic, texts[:200])
        there.wait_until(lambda: len(there.noted()) > 20, "the first records")
        there.write(application(bootstrap, group, topic, word="new"))
        there.signal(signal.SIGHUP)
        send(bootstrap, topic, texts[200:])
        there.wait_lines("reloaded", 1)
        send(bootstrap, topic, ["last"])
        there.wait_noted("end new last")
        there.wait_until(lambda: lag(bootstrap, group, topic) == 0, "the end of all records")
        # Code that can't start changes nothing.
        there.write("this is no Python\n")
        there.signal(signal.SIGHUP)
        there.wait_until(lambda: "event=reload.given_up" in there.log.read_text(), "the refusal")
        send(bootstrap, topic, ["still"])
        there.wait_noted("end new still")
        there.signal(signal.SIGTERM)
        assert there.wait() == 0
    ended = [line.split(" ", 2)[2] for line in there.noted() if line.startswith("end ")]
    assert {*ended} == {*texts, "last", "still"}
    assert "record.dead_lettered" not in there.log.read_text()
    assert "record.failed" not in there.log.read_text()
    assert dead_letters(bootstrap, topic) == 0


def dead_letters(bootstrap: str, topic: str) -> int:
    async def ask() -> int:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            there = TopicPartition(f"{topic}.dead", 0)
            return (await admin.list_offsets({there: OffsetSpec.LATEST}))[there].offset

    return asyncio.run(ask())


# Stops.


@pytest.mark.slow
@pytest.mark.parametrize("how", ["all", "command"])
def test_stop_of_every_process_keeps_the_grace(
    bootstrap: str, group: str, topic: str, tmp_path: Path, how: str
) -> None:
    """systemd and Ctrl-C signal the supervisor and its processes; ``worker stop`` the latter."""
    with Supervised(tmp_path, application(bootstrap, group, topic), "-n", "2") as there:
        there.begin(bootstrap, topic, ["a 2"], count=2)
        if how == "all":
            there.signal(signal.SIGTERM)
            for pid in there.children():
                os.kill(pid, signal.SIGTERM)
        else:
            assert there.run("stop", group).returncode == 0
        assert there.wait() == 0
    assert "end old a 2" in there.noted()


@pytest.mark.slow
def test_second_signal_ends_the_grace(
    bootstrap: str, group: str, topic: str, tmp_path: Path
) -> None:
    with Supervised(tmp_path, application(bootstrap, group, topic, grace="60s"), "-n", "2") as it:
        it.begin(bootstrap, topic, ["a 100"], count=2)
        it.signal(signal.SIGINT)
        it.wait_until(lambda: "event=worker.stopping" in it.log.read_text(), "the stop")
        began = time.monotonic()
        it.signal(signal.SIGINT)
        assert it.wait() == 0
        assert time.monotonic() - began < 10
    assert "end old a 100" not in it.noted()


@pytest.mark.slow
def test_closed_terminal_stops_and_a_hangup_from_elsewhere_reloads(
    bootstrap: str, group: str, topic: str, tmp_path: Path
) -> None:
    """In a terminal, SIGHUP by hand is a reload; that of a terminal that closes is a stop."""
    there = Supervised(tmp_path, application(bootstrap, group, topic), "-n", "1")
    there.output.touch()
    there.log.touch()
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(there.folder)
        with open(there.output, "ab") as out, open(there.log, "ab") as log:
            os.dup2(out.fileno(), 1)
            os.dup2(log.fileno(), 2)
        command = [*there.verb("run"), f"{there.module}:app", *there.options]
        os.execvpe(sys.executable, command, there.environment)
    wait: Callable[[Callable[[], bool], str], None] = there.wait_gone
    wait(lambda: len(there.lines("ready")) == 1, "its start")
    os.kill(pid, signal.SIGHUP)
    wait(lambda: len(there.lines("reloaded")) == 1, "the reload")
    os.close(terminal)
    wait(lambda: os.waitpid(pid, os.WNOHANG)[0] == pid, "the end of the supervisor")
    there.wait_no_children()
    assert there.printed().splitlines()[-1].endswith(" code=0")


# The first moments.


def test_process_without_a_channel_is_killed_and_leaves_no_descriptor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when a reload is cancelled at this place."""

    async def cancelled(_: socket.socket) -> Channel:
        raise asyncio.CancelledError

    async def start() -> None:
        monkeypatch.setattr(Channel, "over", cancelled)
        before = os.listdir("/proc/self/fd")
        facts = FactsOfProcess(number=1, channel=-1, lifeline=-1)
        for _ in range(3):
            with pytest.raises(asyncio.CancelledError):
                await ChildProcess.start(["sleep", "600"], facts, os.environ)
        while len(os.listdir("/proc/self/fd")) > len(before):
            await asyncio.sleep(0.01)

    async def limited() -> None:
        async with asyncio.timeout(HANGING_SECONDS):
            await start()

    asyncio.run(limited())


@pytest.mark.slow
def test_signals_before_a_process_handles_them_end_nothing(tmp_path: Path) -> None:
    """The supervisor while it imports, and its process while that imports the application."""
    text = application("127.0.0.1:1", "billing", "orders")
    with Supervised(tmp_path, f"note('imports')\ntime.sleep(1)\n{text}", "-n", "1") as there:
        there.wait_until(lambda: holds_signals(there.pid), "its first step")
        for number in stop_signals.HELD:
            there.signal(number)
        there.wait_lines("supervising", 1)
        there.wait_noted("imports")
        children = Path(f"/proc/{there.pid}/task/{there.pid}/children").read_text().split()
        first = int(children[0])  # The reload that was asked for has started another.
        for number in stop_signals.HELD:
            os.kill(first, number)
        there.wait_until(lambda: not holds_signals(first), "its handlers")
        os.kill(first, signal.SIGHUP)
        time.sleep(0.2)
        assert is_alive(first)
        there.signal(signal.SIGTERM)
        assert there.wait() == 0


def holds_signals(pid: int) -> bool:
    """Whether SIGHUP waits until the process handles it."""
    status = Path(f"/proc/{pid}/status").read_text()
    (blocked,) = re.findall(r"^SigBlk:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return bool(int(blocked, 16) >> (signal.SIGHUP - 1) & 1)


@pytest.mark.parametrize(
    ("arguments", "holds"),
    [
        (["worker", "shop:app", "-n", "4"], True),
        (["worker", "run", "shop:app", "-n4"], True),
        (["worker", "shop:app", "--processes=4"], True),
        (["worker", "shop:app"], False),
        (["tail", "orders", "-n", "4"], False),
    ],
)
def test_signals_wait_from_the_first_step_of_a_supervisor(
    arguments: list[str], holds: bool
) -> None:
    assert _is_supervised(arguments) is holds


# The command line.


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--max-memory", "1GiB"], "--max-memory needs a supervisor: -n 1"),
        (["-n", "2", "--max-memory", "much"], "expected a size such as 512MiB"),
        (["-n", "0"], "0 is not in the range"),
        (["-n", "2", "--reload"], "--reload is for one process"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: list[str], error: str) -> None:
    done = CliRunner().invoke(command, ["run", "shop:app", *options])
    assert (done.exit_code, error in done.output) == (2, True), done.output


# The system.


@pytest.mark.slow
def test_port_that_is_taken_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with Supervised(tmp_path, "", "-n", "2", "--health-port", port) as there:
            assert there.wait() == 1
    (line,) = there.log.read_text().splitlines()
    assert f"can't listen on 127.0.0.1:{port}" in line


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a namespace of processes")
def test_supervisor_is_the_first_process_of_a_container(
    bootstrap: str, group: str, topic: str, tmp_path: Path
) -> None:
    """It waits for what it inherits, and a kill of it ends all."""
    there = Supervised(tmp_path, application(bootstrap, group, topic), "-n", "1")
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*command, "true"], capture_output=True).returncode != 0:
        pytest.skip("namespaces of processes are not allowed here")
    there.prefix = command
    with there:
        pid = there.wait_lines("ready", 1)[0]["pid"]
        (outer,) = [
            int(path.name)
            for path in Path("/proc").iterdir()
            if path.name.isdigit() and f"NSpid:\t{path.name}\t{pid}\n" in status_of(path)
        ]
        # A process whose parent, a worker, has ended.
        orphan = "import os, time; os.fork() or (time.sleep(1), os._exit(0)); os._exit(0)"
        subprocess.run(
            ["nsenter", f"--target={outer}", "--pid", sys.executable, "-c", orphan], check=True
        )
        parent = int(re.findall(r"PPid:\t(\d+)", status_of(Path(f"/proc/{outer}")))[0])
        there.wait_until(lambda: zombies_of(parent) == 1, "the orphan's end")
        there.wait_until(lambda: zombies_of(parent) == 0, "the supervisor's wait for it")
        os.kill(parent, signal.SIGTERM)
        assert there.wait() == 0


def status_of(process: Path) -> str:
    try:
        return (process / "status").read_text()
    except OSError:
        return ""


def zombies_of(parent: int) -> int:
    statuses = [status_of(path) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return sum(f"PPid:\t{parent}\n" in text and "State:\tZ" in text for text in statuses)


REAPED = """
import os, subprocess, sys, time
from sharegroup.worker.supervision.program import reap_others

def zombie():
    if (pid := os.fork()) == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return pid

reap_others(frozenset())
others = [zombie(), zombie()]
reap_others(frozenset())
own = zombie()
reap_others(frozenset({own}))
assert os.waitpid(own, os.WNOHANG)[0] == own
for pid in others:
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        print("reaped")
"""


def test_inherited_processes_are_waited_for_and_own_ones_are_not() -> None:
    done = subprocess.run([sys.executable, "-c", REAPED], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("reaped\nreaped\n", "")


def test_memory_is_that_of_the_process() -> None:
    status = Path("/proc/self/status")
    if not status.exists():
        assert resident_bytes(os.getpid()) is None
        return
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmRSS:"))
    assert abs((resident_bytes(os.getpid()) or 0) - int(line.split()[1]) * 1024) < 16 * 1024 * 1024
    assert resident_bytes(2**22 + 1) is None
