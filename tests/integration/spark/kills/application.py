"""The application under kills, seen from outside: its processes, and how they end."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import psutil

from tests.integration.spark.kills.pipeline import Pipeline, Victim

ROOT = Path(__file__).resolve().parents[4]
STOP_SECONDS_MAX = 30.0
END_SECONDS_MAX = 30.0
LOG_TAIL_BYTES = 4_000
TASK_FAILED = "Lost task"
"""What Spark logs of a task that has to run again."""
EXECUTOR_LOST = "Command exited with code 137"
"""What Spark logs of an executor that was killed, and not when the whole application ends."""


class Application:
    """`tests.integration.spark.kills.query` as a process, started as often as it takes."""

    def __init__(self, bootstrap: str, folder: Path, pipeline: Pipeline) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self._pipeline = pipeline
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """All that it wrote, over all its starts."""
        path = self._folder / "query.log"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def log_tail(self) -> str:
        return self.log[-LOG_TAIL_BYTES:]

    def start(self) -> None:
        """It ends by itself when this process does: its standard input ends."""
        assert not self.running, "the application is running already"
        self._end_input()
        self._folder.mkdir(parents=True, exist_ok=True)
        command = (sys.executable, "-m", "tests.integration.spark.kills.query")
        with open(self._folder / "query.log", "ab") as log:
            self._process = subprocess.Popen(
                (*command, self._bootstrap, str(self._folder), self._pipeline.to_json()),
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        self.starts += 1

    def find(self, victim: Victim, chance: random.Random) -> psutil.Process | None:
        """One such process; None while there is none."""
        found = [process for process in self.family() if is_a(victim, process, self._root())]
        if victim is Victim.WORKER:
            found = [process for process in found if _is_busy(process)]
        return chance.choice(found) if found else None

    def wait_until_ended(self, family: list[psutil.Process]) -> None:
        """What is left of a killed application must end by itself, and soon."""
        assert self._process is not None
        try:
            self._process.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            # Py4J can wait for ever for its dead JVM; the user's own Python is not ours to end.
            self._process.kill()
            self._process.wait()
        wait_until_gone(family)

    def family(self) -> list[psutil.Process]:
        """All its processes."""
        try:
            return with_children(psutil.Process(self._root()))
        except psutil.NoSuchProcess:
            return []

    def stop(self) -> None:
        """Have it stop its query and session; it must end with 0."""
        assert self._process is not None
        family = self.family()
        self._end_input()
        code = self._process.wait(STOP_SECONDS_MAX)
        assert code == 0, f"the application ended with {code}: {self.log_tail}"
        self.wait_until_ended(family)

    def kill_all(self) -> None:
        """Leave nothing behind."""
        if self._process is not None:
            _kill(self.family())
            self._process.wait()
            self._end_input()

    def _end_input(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def _root(self) -> int:
        assert self._process is not None
        return self._process.pid


def with_children(process: psutil.Process) -> list[psutil.Process]:
    """The process and all that it has started; empty if it has ended."""
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def wait_until_gone(processes: list[psutil.Process]) -> None:
    """What a kill has left behind must end by itself, and soon."""
    _, alive = psutil.wait_procs(processes, END_SECONDS_MAX)
    named = [_command(process) for process in alive]
    _kill(alive)
    assert not named, f"still running {END_SECONDS_MAX} s after the kill: {named}"


def is_a(victim: Victim, process: psutil.Process, root: int) -> bool:
    """Whether the process is such a victim of the application ``root``; False if it has ended."""
    command = _command(process)
    match victim:
        case Victim.DRIVER:
            return process.pid == root
        case Victim.JVM:
            return "org.apache.spark.deploy.SparkSubmit" in command
        case Victim.EXECUTOR:
            return "org.apache.spark.executor.CoarseGrainedExecutorBackend" in command
        case Victim.READER:
            return "python_streaming_source_runner" in command
        case Victim.WORKER:  # Forked from a process of the same command, which only forks.
            return _is_worker(command) and _is_worker(_command_of_parent(process))
        case Victim.BROKER:
            return False  # It is not one of the application's processes.


def _command_of_parent(process: psutil.Process) -> str:
    """Empty if one of the two has ended meanwhile."""
    try:
        return _command(psutil.Process(process.ppid()))
    except psutil.NoSuchProcess:
        return ""


def _is_worker(command: str) -> bool:
    return command.endswith("pyspark.daemon pyspark.worker")


def _is_busy(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_RUNNING)
    except psutil.NoSuchProcess:
        return False


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def killed(process: psutil.Process) -> bool:
    """Kill the process.  False if it ended by itself after it was found."""
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return False
    return True


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        killed(process)
