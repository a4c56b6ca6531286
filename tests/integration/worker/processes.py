"""``sharegroup worker`` as a process of its own, with an application in a folder of its own.

    with WorkerProcess(tmp_path, APP.format(...)) as worker:
        worker.wait_for("ready")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0

The application writes what it sees to a file (`journal`), because its standard output is ours.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.limits import HANGING_SECONDS

WAIT_SECONDS_MAX = HANGING_SECONDS
LOOK_SECONDS = 0.02

PRELUDE = """\
import asyncio, os, time
from sharegroup.worker import App, DeadLetter, Reject, Retry

JOURNAL = os.open({journal!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def note(text):
    os.write(JOURNAL, (text + "\\n").encode())

"""


class WorkerProcess:
    """One process; a context manager that ends it, whatever state it is in."""

    def __init__(
        self,
        folder: Path,
        text: str,
        *options: str,
        name: str = "shop",
        runtime: Path | None = None,
        wait_seconds_max: float = WAIT_SECONDS_MAX,
    ) -> None:
        self.folder = folder
        self.wait_seconds_max = wait_seconds_max
        self.options = options
        self.journal = folder / "journal"
        self.output = folder / "stdout"
        self.log = folder / "stderr"
        self.runtime = runtime or folder / "run"
        folder.mkdir(exist_ok=True)
        self.runtime.mkdir(exist_ok=True)
        self.module = name
        self.source = folder / f"{name}.py"
        self.journal.touch()
        self.write(text)
        self.prefix: list[str] = []
        """A program that starts it, with its options."""
        self._process: subprocess.Popen[bytes] | None = None

    def write(self, text: str) -> None:
        """The application's code."""
        self.source.write_text(PRELUDE.format(journal=str(self.journal)) + text)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
        if self._process is not None:
            self._process.wait()

    @property
    def environment(self) -> dict[str, str]:
        """With a folder for pid files that no other test looks into."""
        return {**os.environ, "XDG_RUNTIME_DIR": str(self.runtime)}

    @property
    def pid(self) -> int:
        assert self._process is not None, "it was not started"
        return self._process.pid

    def start(self) -> None:
        """Start it, without waiting for anything."""
        command = [*self.prefix, *self.verb("run"), f"{self.module}:app", *self.options]
        with open(self.output, "ab") as out, open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
            )

    def verb(self, *words: str) -> list[str]:
        """``sharegroup worker ...``."""
        return [sys.executable, "-m", "sharegroup", "worker", *words]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Another ``sharegroup worker ...``, to its end."""
        return subprocess.run(
            self.verb(*words),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=self.wait_seconds_max,
        )

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "it was not started"
        self._process.send_signal(number)

    def wait(self, seconds: float | None = None) -> int:
        """The exit code."""
        assert self._process is not None, "it was not started"
        seconds = self.wait_seconds_max if seconds is None else seconds
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end in {seconds} s: {self.told()}") from None

    def printed(self) -> str:
        return self.output.read_text()

    def noted(self) -> list[str]:
        """The lines of the journal."""
        return self.journal.read_text().splitlines()

    def wait_ready(self, count: int = 1) -> dict[str, str]:
        """The facts of the line that says that it works; of the ``count``-th such line."""

        def lines() -> list[str]:
            return [line for line in self.printed().splitlines() if line.startswith("ready ")]

        self.wait_until(lambda: len(lines()) >= count, "its line `ready`")
        return facts_of(lines()[count - 1])

    def stopped(self) -> dict[str, str]:
        """The facts of the line that says what a stop did."""
        [line] = [line for line in self.printed().splitlines() if line.startswith("stopped ")]
        return facts_of(line)

    def wait_noted(self, *lines: str) -> None:
        """Return when the journal has all of these lines."""
        self.wait_until(lambda: {*lines} <= {*self.noted()}, f"{lines} in its journal")

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        limit = time.monotonic() + self.wait_seconds_max
        while not condition():
            assert time.monotonic() < limit, f"{what} did not come: {self.told()}"
            assert self._process is not None, "it was not started"
            if self._process.poll() is not None and not condition():
                raise AssertionError(f"it ended before {what} came: {self.told()}")
            time.sleep(LOOK_SECONDS)

    def wait_gone(self, condition: Callable[[], bool], what: str) -> None:
        """The same of what it left behind."""
        limit = time.monotonic() + self.wait_seconds_max
        while not condition():
            assert time.monotonic() < limit, f"{what} did not come: {self.told()}"
            time.sleep(LOOK_SECONDS)

    def told(self) -> str:
        """What it printed, noted and logged, for a message."""
        log = self.log.read_text()[-3000:]
        return f"printed {self.printed()!r}, noted {self.noted()[-20:]}, logged\n{log}"


def facts_of(line: str) -> dict[str, str]:
    """The pairs of a line like ``ready app=x pid=1``."""
    return dict(pair.partition("=")[::2] for pair in line.split()[1:])
