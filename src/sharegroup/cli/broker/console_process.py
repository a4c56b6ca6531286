"""The console as a child process of ``sharegroup serve``.

It is no part of the broker's process, because rendering a page would hold its event loop.  The
child ends with the broker, however the broker ends: its standard input is a pipe from the broker,
and it stops when the pipe is closed.  A console that ends by itself is started again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from sharegroup.backoff import Backoff
from sharegroup.errors import MissingExtra
from sharegroup.installation import pip_install

log = logging.getLogger(__name__)

READY = re.compile(rb"ready console=(http://\S+:(\d+))\n")
READY_SECONDS = 60.0
"""The time in which the console has to say its address."""
STOP_SECONDS = 5.0
"""The time after SIGTERM at which the console is killed."""
RESTART_MS = 500
RESTART_MS_MAX = 60_000
"""The first and the longest time before the console is started again."""
STEADY_SECONDS = 120.0
"""A console that ran so long is started again after the first time."""
NEEDED = ("jinja2", "starlette", "uvicorn")


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """What ``sharegroup serve`` was told of its console."""

    port: int
    config_file: Path | None
    """The properties with which the console connects to the broker; None: without any."""
    metrics_url: str | None

    def command(self, bootstrap_servers: str, port: int) -> list[str]:
        """Return the command of the console on a port."""
        command = [sys.executable, "-m", "sharegroup", "console", "--ends-with-input"]
        command += ["--port", str(port), "--bootstrap-server", bootstrap_servers]
        if self.config_file is not None:
            command += ["--command-config", str(self.config_file)]
        if self.metrics_url is not None:
            command += ["--metrics", self.metrics_url]
        return command


def check_installed() -> None:
    """Raise MissingExtra if the console's libraries are not installed."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise MissingExtra(
            f"--console-port needs {', '.join(missing)}, an extra: {pip_install('console')}"
        )


class ConsoleProcess:
    """Runs the console until it is stopped; `run` restarts it after a growing delay."""

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        port: int,
        *,
        say: Callable[[str], object],
        backoff: Backoff | None = None,
    ) -> None:
        """``command`` returns the command for a port; 0 is a free one, for the first start."""
        self._command, self._port, self._say = command, port, say
        self._backoff = backoff or Backoff(RESTART_MS, RESTART_MS_MAX, chance=random.random)
        self.pid: int | None = None
        """The id of the process; None while there is none."""

    async def run(self) -> None:
        """Run the console until this is cancelled; end it then."""
        while True:
            code = await self._run_once()
            delay_ms = self._backoff.next_ms()
            log.warning(
                "event=console.ended code=%d restart_ms=%d action='its messages are above; "
                "the broker goes on without it'",
                *(code, delay_ms),
            )
            await asyncio.sleep(delay_ms / 1000)

    async def _run_once(self) -> int:
        started_at = asyncio.get_running_loop().time()
        # In a session of its own, so that Ctrl-C reaches the broker alone, which ends it in order.
        process = await asyncio.create_subprocess_exec(
            *self._command(self._port), stdin=PIPE, stdout=PIPE, start_new_session=True
        )
        self.pid = process.pid
        try:
            await self._wait_ready(process)
            code = await process.wait()
        finally:
            self.pid = None
            await _end(process)
        if asyncio.get_running_loop().time() - started_at > STEADY_SECONDS:
            self._backoff.reset()
        return code

    async def _wait_ready(self, process: Process) -> None:
        assert process.stdout is not None, "it is a pipe"
        line = b""
        with suppress(TimeoutError):
            async with asyncio.timeout(READY_SECONDS):
                line = await process.stdout.readline()
        ready = READY.fullmatch(line)
        if ready is None:
            if process.returncode is None:
                process.terminate()
            return
        self._port = int(ready[2])  # A restart keeps the address that was said.
        log.info("event=console.listening url=%s", ready[1].decode())
        self._say(f"console {ready[1].decode()}")


async def _end(process: Process) -> None:
    """End a process that may have ended already."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
