"""The supervisor as a program: ports, pid file and signals around a `Supervisor`.

It imports nothing of the application, so an error there ends a process and not the supervisor, and
a reload runs the new code.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Any

from sharegroup import __version__
from sharegroup.errors import InvalidConfig
from sharegroup.http_endpoint import Page
from sharegroup.worker.lifecycle.health import open_ports
from sharegroup.worker.lifecycle.pid_files import PidFile
from sharegroup.worker.lifecycle.program import (
    Say,
    Surroundings,
    background,
    tell_phase,
    tolerant,
)
from sharegroup.worker.lifecycle.signals import Wishes, listening
from sharegroup.worker.lifecycle.supervised import Supervised
from sharegroup.worker.supervision.child_process import ChildProcess, resident_bytes
from sharegroup.worker.supervision.pages import health_pages
from sharegroup.worker.supervision.supervisor import Supervisor

PHASE_SECONDS = 0.2
"""Interval of looks at the phase, for the pid file."""
TERMINAL = "/dev/tty"
INIT = 1
"""The id of the process that inherits those whose parents have ended."""
REAP_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """The processes that a supervisor runs."""

    processes: int
    memory_bytes_max: int | None = None


async def supervise(command: Sequence[str], team: Team, around: Surroundings, say: Say) -> int:
    """Run a command in several processes until a stop; returns the exit code."""
    if team.memory_bytes_max is not None and resident_bytes(os.getpid()) is None:
        raise InvalidConfig(
            "--max-memory reads the memory of processes in /proc, which this system does not have; "
            "leave it out, and limit the memory by the system's means"
        )
    say = tolerant(say)
    wishes = Wishes()
    urls: dict[str, str] = {}

    async def start(number: int) -> ChildProcess:
        of_process = {name: f"{url}/{number}" for name, url in urls.items()}
        supervised = Supervised(number=number, channel=-1, lifeline=-1, **of_process)
        return await ChildProcess.start(command, supervised, os.environ)

    supervisor = Supervisor(
        start, team.processes, wishes, say, memory_bytes_max=team.memory_bytes_max
    )
    with listening(wishes, on_hangup=_on_hangup(supervisor.reload, wishes.stop)):
        async with AsyncExitStack() as stack:
            facts: dict[str, Any] = {
                "module": around.module,
                "version": __version__,
                "pid": os.getpid(),
                "since_ms": time.time_ns() // 1_000_000,
            }
            urls |= await _open_ports(supervisor, around, facts, stack)
            if around.pid_file is not None:
                file = PidFile(around.pid_file)
                stack.callback(file.close)
                background(stack, _tell_phases(supervisor, file, facts | urls))
            background(stack, _reap_foreign(supervisor))
            ports = "".join(f" {name}={url}" for name, url in urls.items())
            say(
                f"supervising module={around.module} pid={os.getpid()} "
                f"processes={team.processes}{ports}"
            )
            code = await supervisor.run()
            say(f"supervised module={around.module} pid={os.getpid()} code={code}")
            return code


async def _open_ports(
    supervisor: Supervisor, around: Surroundings, facts: dict[str, Any], stack: AsyncExitStack
) -> dict[str, str]:
    """Open the ports; returns their addresses by the names of the options."""
    pages: dict[str, tuple[int, dict[str, Page]]] = {}
    if around.health_port is not None:
        pages["health"] = (around.health_port, health_pages(supervisor, facts))
    if around.metrics_port is not None:
        # Imported here, because it needs prometheus_client, of the extra `worker`.
        from sharegroup.worker.supervision.merged_metrics import metrics_pages

        pages["metrics"] = (around.metrics_port, metrics_pages(supervisor))
    return await open_ports(around.host, pages, stack)


async def _tell_phases(supervisor: Supervisor, file: PidFile, facts: dict[str, Any]) -> None:
    """Write the phase to the pid file, when it changes."""
    phase = ""
    while True:
        if supervisor.phase != phase:
            phase = supervisor.phase
            app = next((running.state.app for running in supervisor.running), "")
            tell_phase(file, {**facts, "app": app, "phase": phase, "groups": []})
        await asyncio.sleep(PHASE_SECONDS)


async def _reap_foreign(supervisor: Supervisor) -> None:
    """Wait for processes that this one has inherited, as process 1 of a container must.

    A handler process of a worker that was killed is one; nobody else would wait for it.
    """
    while os.getpid() == INIT:
        await asyncio.sleep(REAP_SECONDS)
        own = supervisor.pids
        if own is not None:
            reap_others(own)


def reap_others(own: frozenset[int]) -> None:
    """Wait for children of this process that have ended, up to the first of its own ones.

    asyncio waits for its own.
    """
    with suppress(ChildProcessError):  # There is no child at all.
        while True:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None or ended.si_pid in own:
                return
            os.waitpid(ended.si_pid, os.WNOHANG)


def _on_hangup(reload: Callable[[], None], stop: Callable[[], None]) -> Callable[[], None]:
    """Return what SIGHUP does: a reload; a stop if it says that the terminal has closed."""
    had_terminal = _has_terminal()

    def act() -> None:
        if had_terminal and not _has_terminal():
            stop()
        else:
            reload()

    return act


def _has_terminal() -> bool:
    try:
        os.close(os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno not in (errno.ENXIO, errno.EIO, errno.ENOENT)
    return True
