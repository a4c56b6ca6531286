"""Runs the blocks of a page in order, as a reader does who follows it in one folder.

Each block is a process of its own.  Programs in the background (``&``) run until the page ends.
Two things are not as on the page: the ports are free ones, and the programs
are those of one environment, which the caller names.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from sharegroup.client import AlterConfig, ConfigResource, NewTopic, ResourceType
from sharegroup.client.sync import AdminClient, Producer
from tests.docs.snippets.page_blocks import Block, Step, blocks
from tests.support.limits import HANGING_SECONDS

PORTS = ("9092", "9464", "9099")
"""Kafka's port, that of metrics and that of faults; a run replaces them by free ones."""
BLOCK_SECONDS_MAX = 60.0
JAVA_SECONDS_MAX = 150.0
POLL_SECONDS = 0.05


class SnippetFailed(Exception):
    """A block does not run, or does not print what the page shows."""


class PageRun:
    """The folder, the ports and the processes of a reader who follows one page."""

    def __init__(
        self,
        page: Path,
        folder: Path,
        environment: Path,
        *,
        seconds_max: float = BLOCK_SECONDS_MAX,
        port: str | None = None,
    ) -> None:
        """``environment`` is a virtual environment with sharegroup; the page runs in ``folder``.

        ``seconds_max`` limits each block that needs no Java.  ``port`` is that of a broker which
        is there already, on this machine.
        """
        self._seconds_max = seconds_max
        self._blocks = blocks(page)
        self._folder = folder
        self._bin = environment / "bin"
        self._ports = dict(zip(PORTS, _free_ports(len(PORTS)), strict=True))
        self._sessions: list[subprocess.Popen[bytes]] = []
        self._has_broker = port is not None
        if port is not None:
            self._ports["9092"] = port
        self._has_background = False
        """Whether several programs print, in an order that no page can know."""
        self._imports = ""
        self._output = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for session in reversed(self._sessions):
            _stop(session)

    def run(self, *, without: str = "") -> Iterator[Block]:
        """Run the blocks one after the other, and return each that ran.

        Blocks that need ``without`` are left out.  SnippetFailed says what a block printed.
        """
        for block in self._blocks:
            needs = block.options.get("needs", "").split(",")
            if block.how == "output":
                self._check_output(block)
            elif block.how == "run" and (not without or without not in needs):
                self._run(block, needs)
                yield block

    def _run(self, block: Block, needs: list[str]) -> None:
        if "broker" in needs:
            self._new_record()
        text = self._with_ports(block.text)
        if (name := block.options.get("file")) is not None:
            (self._folder / name).write_text(text)
            self._imports = text if block.options.get("inside") == "file" else self._imports
        elif block.language == "python":
            self._run_script(block, text)
        elif "repeat" in block.options:
            self._repeat_commands(block)
        else:
            self._run_commands(block)

    def _run_script(self, block: Block, text: str) -> None:
        if block.options.get("inside") == "async":
            body = textwrap.indent(text, "    ")
            # A page need not import asyncio for that, so it is imported under another name.
            run = "from asyncio import run as run_block\nrun_block(main())\n"
            text = f"{self._imports}\n\nasync def main():\n{body}\n\n{run}"
        script = self._folder / f"line{block.line}.py"
        script.write_text(text)
        command = [str(self._bin / "python"), script.name]
        if block.options.get("with") == "pytest":
            command[1:1] = ["-m", "pytest", "-q"]
        # As with an environment that is not activated: only the path names this Python.
        with self._process(block, command, os.defpath) as process:
            self._wait(block, process, [])

    def _run_commands(self, block: Block) -> None:
        """Run the commands in one shell, or in several: after a program in the background that
        prints something, a reader waits for that.
        """
        shells: list[list[Step]] = [[]]
        for step in block.steps():
            shells[-1].append(step)
            self._has_background |= step.is_background
            if step.is_awaited:
                shells.append([])
        expected: list[str] = []
        self._log_of(block).write_bytes(b"")
        for steps in filter(None, shells):
            commands = "\n".join(self._served(step.command) for step in steps)
            script = self._folder / f"line{block.line}.sh"
            script.write_text(f"set -euo pipefail\n{self._with_ports(commands)}\n")
            expected += [line for step in steps for line in step.printed]
            with self._process(block, ["bash", script.name], self._path) as process:
                self._wait(block, process, expected)

    def _repeat_commands(self, block: Block) -> None:
        """Run the commands again until they succeed and print the lines of the page."""
        steps = block.steps()
        commands = "\n".join(step.command for step in steps)
        expected = [self._with_ports(line) for step in steps for line in step.printed]
        script = self._folder / f"line{block.line}.sh"
        script.write_text(f"set -euo pipefail\n{self._with_ports(commands)}\n")

        def prints_all() -> bool:
            self._log_of(block).write_bytes(b"")
            with self._process(block, ["bash", script.name], self._path) as process:
                self._wait_for(block, "the end", lambda: process.poll() is not None)
            return process.returncode == 0 and has_lines(self._printed(block), expected)

        self._wait_for(block, "\n".join(expected), prints_all)

    def _served(self, command: str) -> str:
        """The command, with the port of this run if it starts a broker at Kafka's."""
        if "--port" in command:
            return command
        return re.sub(r"\bsharegroup serve\b", f"sharegroup serve --port {PORTS[0]}", command)

    @contextmanager
    def _process(
        self, block: Block, command: list[str], path: str
    ) -> Iterator[subprocess.Popen[bytes]]:
        environment = {
            **os.environ,
            "PATH": path,
            "HOME": str(self._folder),
            # `sharegroup worker stop` of a page reaches no other worker of this user.
            "XDG_RUNTIME_DIR": str(self._folder / ".runtime"),
            "PYTHONUNBUFFERED": "1",
            "SHAREGROUP_BOOTSTRAP": self._bootstrap,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH", "VIRTUAL_ENV"):
            environment.pop(name, None)
        with self._log_of(block).open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._sessions.append(process)
        yield process
        self._output = self._printed(block)

    def _wait(self, block: Block, process: subprocess.Popen[bytes], expected: list[str]) -> None:
        """Wait until the program ended well, or shows what ``until`` names, and printed all."""
        until, pattern = block.options.get("until"), block.options.get("until_file")

        def has_ended() -> bool:
            if (code := process.poll()) not in (None, 0):
                raise SnippetFailed(f"{block.name}: exit code {code}\n{self._printed(block)}")
            if until is not None:
                return until in self._printed(block)
            if pattern is not None:
                return any(self._folder.glob(pattern))
            return code == 0

        goal = until or pattern or "the end of the program"
        self._wait_for(block, goal, has_ended)
        self._wait_for(block, "\n".join(expected), lambda: self._prints(block, expected))
        if until is not None or pattern is not None:
            _stop(process)

    def _prints(self, block: Block, expected: list[str]) -> bool:
        lines = [self._with_ports(line) for line in expected]
        return has_lines(self._all_printed(), lines, in_order=not self._has_background)

    def _check_output(self, block: Block) -> None:
        expected = [line for line in self._with_ports(block.text).splitlines() if line.strip()]
        if not has_lines(self._output, expected):
            raise SnippetFailed(
                f"{block.name}: the program before it does not print this, but\n{self._output}"
            )

    def _wait_for(self, block: Block, goal: str, reached: Callable[[], bool]) -> None:
        seconds = JAVA_SECONDS_MAX if "java" in block.options.get("needs", "") else None
        limit = time.monotonic() + (seconds or self._seconds_max)
        while not reached():
            if time.monotonic() > limit:
                raise SnippetFailed(
                    f"{block.name}: waited in vain for\n{goal}\nPrinted:\n{self._all_printed()}"
                )
            time.sleep(POLL_SECONDS)

    def _new_record(self) -> None:
        """Start the page's broker if there is none, and write one record to the topic orders."""
        if not self._has_broker:
            self._start_broker()
            self._has_broker = True
        with Producer(bootstrap_servers=self._bootstrap) as producer:
            producer.send_and_wait("orders", b"one apple")

    def _start_broker(self) -> None:
        serve = [str(self._bin / "sharegroup"), "serve", "--data", str(self._folder / "broker")]
        with (self._folder / "broker.log").open("wb") as log:
            process = subprocess.Popen(
                [*serve, "--port", self._ports["9092"]],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._sessions.append(process)
        with AdminClient(bootstrap_servers=self._bootstrap) as admin:
            admin.create_topics([NewTopic("orders")])
            group = ConfigResource(ResourceType.GROUP, "billing")
            earliest = AlterConfig("share.auto.offset.reset", "earliest")
            admin.incremental_alter_configs({group: [earliest]})

    @property
    def _path(self) -> str:
        """The path of a reader who activated the environment."""
        return os.pathsep.join([str(self._bin), os.environ["PATH"]])

    @property
    def _bootstrap(self) -> str:
        return f"127.0.0.1:{self._ports['9092']}"

    def _with_ports(self, text: str) -> str:
        for written, port in self._ports.items():
            text = re.sub(rf"\b{written}\b", port, text)
        return text

    def _log_of(self, block: Block) -> Path:
        return self._folder / f"line{block.line}.log"

    def _printed(self, block: Block) -> str:
        return self._log_of(block).read_text(errors="replace")

    def _all_printed(self) -> str:
        """What all blocks printed so far: one in the background may answer a later one."""
        logs = sorted(self._folder.glob("line*.log"), key=lambda log: int(log.stem[4:]))
        return "\n".join(log.read_text(errors="replace") for log in logs)


def has_lines(printed: str, expected: list[str], *, in_order: bool = True) -> bool:
    """Whether each of the lines is among the printed ones; ``...`` stands for anything."""
    lines = [line.rstrip() for line in printed.splitlines()]
    for wanted in expected:
        if wanted.strip() == "...":
            continue
        pattern = ".*".join(map(re.escape, re.split(r"\.\.\.", wanted.rstrip())))
        found = next((place for place, line in enumerate(lines) if re.fullmatch(pattern, line)), -1)
        if found < 0:
            return False
        del lines[0 if in_order else found : found + 1]
    return True


def _free_ports(count: int) -> list[str]:
    """Ports that are free at this moment, on the loopback address."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [str(server.getsockname()[1]) for server in sockets]
    for server in sockets:
        server.close()
    return ports


def _stop(session: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started, in the order a reader would: ask, then kill."""
    for stop in (signal.SIGTERM, signal.SIGKILL):
        limit = time.monotonic() + HANGING_SECONDS
        while time.monotonic() < limit:
            session.poll()
            try:
                os.killpg(session.pid, stop or 0)
            except (ProcessLookupError, PermissionError):
                return
            stop = 0
            time.sleep(POLL_SECONDS)


def java_is_missing() -> bool:
    """Whether the machine has no Java; blocks that need one are left out then."""
    return shutil.which("java") is None
