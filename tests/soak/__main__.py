"""The command of `tests.soak`; `make soak` runs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from tests.attacks.catalog import SOAKED
from tests.attacks.entrance import Entrance
from tests.attacks.probe import Probe
from tests.attacks.target import MIB
from tests.bench.document import ROOT
from tests.faults.login import Login
from tests.soak.verdict import as_text, judge
from tests.support.processes import ServeProcess, peak_rss_bytes, rss_bytes

FOLDER = ROOT / "build" / "soak"
ATTACKERS = 10
BUDGETS_MIB = 512
SLACK_MIB = 100
SAMPLE_SECONDS = 1.0
HONEST_CORE, ATTACKERS_CORE = 0, 1
"""The cores with ``--apart``."""

QUOTAS = {
    "producer_byte_rate": 20.0 * MIB,
    "consumer_byte_rate": 20.0 * MIB,
    "request_percentage": 30.0,
}
"""The quotas of the attackers' user in a secured soak: so much that attacks still have effects."""

END_SECONDS_MAX = 150.0
"""Behind its time an attacker or the honest process gets so long to end by itself."""


class Memory:
    """Samples a process's resident memory once a second, in a thread."""

    def __init__(self, pid: int) -> None:
        self.samples: list[tuple[float, float]] = []
        """Moments of the monotonic clock and MiB."""
        self._pid = pid
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(SAMPLE_SECONDS):
            self.samples.append((time.monotonic(), rss_bytes(self._pid) / MIB))


class Usage:
    """Samples the processor time of groups of processes once a second, in a thread.

    A window with few records has one of three reasons: the broker worked for the attackers, the
    broker and its clients did not get the processor, or they waited.
    """

    def __init__(self) -> None:
        self.samples: list[tuple[float, dict[str, float]]] = []
        """Moments of the monotonic clock, and seconds by the name of the group."""
        self._groups: dict[str, list[int]] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def watch(self, group: str, pids: list[int]) -> None:
        self._groups = {**self._groups, group: pids}

    def stop(self) -> None:
        self._end.set()
        self._thread.join()

    def between(self, begin: float, end: float) -> dict[str, float]:
        """The seconds of each group from the sample before ``begin`` to that before ``end``."""
        before = [used for at, used in self.samples if at <= begin]
        during = [used for at, used in self.samples if at <= end]
        if not before or not during:
            return {}
        first, last = before[-1], during[-1]
        return {group: round(last[group] - first.get(group, 0.0), 2) for group in last}

    def _run(self) -> None:
        while not self._end.wait(SAMPLE_SECONDS):
            used = {
                group: sum(map(processor_seconds, pids)) for group, pids in self._groups.items()
            }
            self.samples.append((time.monotonic(), used))


def processor_seconds(pid: int) -> float:
    """The processor time of a process; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Child:
    """A process of the soak that ends by itself; its output is lines of JSON."""

    def __init__(self, *arguments: str, core: int | None = None) -> None:
        """With ``core`` it runs on this core alone."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        self.pid = self._process.pid
        if core is not None:
            os.sched_setaffinity(self.pid, {core})

    def wait_until_loaded(self) -> None:
        """Read the line that an attacker prints when its modules are imported."""
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def begin(self) -> None:
        """Let an attacker begin."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"begin\n")
        self._process.stdin.flush()

    def lines(self, seconds: float) -> list[dict[str, Any]]:
        """Wait for its end: everything that it printed."""
        output, _ = self._process.communicate(timeout=seconds)
        return [json.loads(line) for line in output.splitlines()]

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


@click.command()
@click.option("--minutes", type=click.FloatRange(0.5, 600), default=30, show_default=True)
@click.option("--reference-seconds", type=float, default=None, help="The undisturbed phase.")
@click.option(
    "--secured", is_flag=True, help="With TLS, SASL, an authorizer and quotas for the attackers."
)
@click.option(
    "--apart",
    is_flag=True,
    help="Broker and honest clients on core 0, the attackers on core 1: what is left of the "
    "throughput then does not depend on how many cores the attackers take.",
)
def main(*, minutes: float, reference_seconds: float | None, secured: bool, apart: bool) -> None:
    """Run the soak; exit code 1 if something did not hold."""
    attacked = 60 * minutes
    undisturbed = reference_seconds or min(180.0, max(30.0, attacked / 6))
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    entrance = Entrance(FOLDER / "certificates") if secured else None
    report = soak(FOLDER / "data", undisturbed, attacked, entrance, apart=apart)
    (FOLDER / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    (FOLDER / "report.txt").write_text(report["text"])
    shutil.rmtree(FOLDER / "data", ignore_errors=True)
    click.echo(report["text"], nl=False)
    sys.exit(1 if report["problems"] else 0)


def soak(
    data: Path, undisturbed: float, attacked: float, entrance: Entrance | None, *, apart: bool
) -> dict[str, Any]:
    """One soak: its windows, figures and verdict.

    With an ``entrance`` everybody comes in through TLS and SASL; all attackers are one user, with
    few rights and quotas.
    """
    port, settings, honest_login = 0, {}, None
    if entrance is not None:
        port, settings, honest_login = entrance.port, entrance.settings, entrance.honest
    with ExitStack() as stack:
        broker = stack.enter_context(ServeProcess(data, port=port, settings=settings))
        if entrance is not None:
            entrance.let_in()
            entrance.limit(**QUOTAS)
        idle_mib = rss_bytes(broker.pid) // MIB
        memory, usage = Memory(broker.pid), Usage()
        stack.callback(memory.stop)
        stack.callback(usage.stop)
        usage.watch("broker", [broker.pid])
        if apart:
            for thread in Path(f"/proc/{broker.pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), {HONEST_CORE})
        probe = Probe(broker.port, honest_login)
        with probe:
            login = None if entrance is None else entrance.attacker
            core = ATTACKERS_CORE if apart else None
            attackers = _start_attackers(stack, broker.port, attacked, login, core)
            usage.watch("attackers", [attacker.pid for attacker in attackers])
            # Ten programs that import take more time than their attacks, and that is no attack.
            for attacker in attackers:
                attacker.wait_until_loaded()
            total = undisturbed + attacked
            address = broker.bootstrap_servers
            honest = Child(
                "tests.soak.honest",
                address,
                str(total),
                *(honest_login or ()),
                core=HONEST_CORE if apart else None,
            )
            stack.callback(honest.kill)
            usage.watch("honest", [honest.pid])
            began = time.monotonic()
            time.sleep(undisturbed)
            for attacker in attackers:
                attacker.begin()
            attacks_began = time.monotonic()
            lines = honest.lines(attacked + END_SECONDS_MAX)
            told = [line for attacker in attackers for line in attacker.lines(END_SECONDS_MAX)]
        memory.stop()
        peak_mib = peak_rss_bytes(broker.pid) // MIB
    *windows, last = lines
    ends = _ends(began, windows)
    for end, window in zip(ends, windows, strict=True):
        window["processor_seconds"] = usage.between(end - window["seconds"], end)
    split = sum(1 for at in ends if at <= attacks_began)
    report: dict[str, Any] = {
        "undisturbed": windows[:split],
        "attacked": windows[split:],
        "account": last["account"],
        "errors": last["errors"],
        "attackers": told,
        "idle_mib": idle_mib,
        "peak_mib": peak_mib,
        "probe_max": probe.slowest,
        "probe_p99": probe.p99,
        "memory_mib": [mib for at, mib in memory.samples if at >= attacks_began],
    }
    verdict = judge(
        report["undisturbed"][1:],  # The first window has the clients' start.
        report["attacked"],
        account=report["account"],
        memory_mib=report["memory_mib"],
        memory_limit_mib=idle_mib + BUDGETS_MIB + SLACK_MIB,
        probe_slowest=probe.slowest,
        log=broker.log_path.read_text(errors="replace"),
    )
    return report | {"problems": verdict.problems, "text": as_text(verdict, report)}


def _start_attackers(
    stack: ExitStack, port: int, seconds: float, login: Login | None, core: int | None
) -> list[Child]:
    chosen = SOAKED[:ATTACKERS]
    assert len(chosen) == ATTACKERS, f"{len(chosen)} attacks can be repeated, expected {ATTACKERS}"
    attackers = []
    for attack in chosen:
        words = ("tests.soak.attacker", str(port), attack.name, str(seconds), *(login or ()))
        child = Child(*words, core=core)
        stack.callback(child.kill)
        attackers.append(child)
    return attackers


def _ends(began: float, windows: list[dict[str, Any]]) -> list[float]:
    """The moments at which the windows ended."""
    ends, at = [], began
    for window in windows:
        at += window["seconds"]
        ends.append(at)
    return ends


if __name__ == "__main__":
    main()
