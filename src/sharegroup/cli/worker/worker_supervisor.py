"""``sharegroup worker -n 4``: the options of the supervisor, and what a worker knows of one."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from dataclasses import dataclass
from typing import Any

import click

from sharegroup.cli.common.options import gathered
from sharegroup.worker.lifecycle.program import Surroundings, say
from sharegroup.worker.lifecycle.supervised import Lifeline, Supervised

PROCESSES_MAX = 256
_SIZE = re.compile(r"(\d+)\s*(B|KiB|MiB|GiB)?", re.IGNORECASE)
UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}


class Size(click.ParamType):  # type: ignore[type-arg]  # Generic since click 8.4.
    """A parameter type for sizes such as ``512MiB``; the value is in bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the size in bytes."""
        match = _SIZE.fullmatch(str(value))
        if match is None or int(match[1]) < 1:
            self.fail(f"expected a size such as 512MiB or 2GiB; got {value!r}", param, ctx)
        return int(match[1]) * UNITS[(match[2] or "").lower()]


@dataclass(frozen=True, slots=True)
class Several:
    """The options of a supervisor."""

    processes: int | None
    max_memory: int | None


several_options = gathered(
    "several",
    Several,
    click.option(
        "-n",
        "--processes",
        type=click.IntRange(1, PROCESSES_MAX),
        help="Run this number of processes, and replace those that end.  [default: none but this]",
    ),
    click.option(
        "--max-memory",
        type=Size(),
        help="Replace a process that has more resident memory; needs -n.",
    ),
)
"""Adds the options of a supervisor to a verb, which is called with ``several``."""


def taken_supervisor() -> tuple[Supervised, Lifeline] | None:
    """Return the supervisor that has started this process; None without one.

    From here on the process ends with its supervisor.
    """
    supervised = Supervised.taken_from(os.environ)
    if supervised is None:
        return None
    lifeline = Lifeline(supervised)
    lifeline.watch()
    return supervised, lifeline


def check(several: Several, *, reloads: bool) -> None:
    """Raise UsageError if the options of a supervisor do not fit each other."""
    if several.processes is None and several.max_memory is not None:
        raise click.UsageError("--max-memory needs a supervisor: -n 1, or more processes")
    if several.processes is not None and reloads:
        raise click.UsageError("--reload is for one process; leave out -n, or send SIGHUP instead")


def supervise(processes: int, several: Several, around: Surroundings) -> int:
    """Run this command line in several processes; returns the exit code."""
    # Imported here, because a worker without a supervisor does not need it.
    from sharegroup.worker.supervision import program

    team = program.Team(processes=processes, memory_bytes_max=several.max_memory)
    command = [sys.executable, "-m", "sharegroup", *sys.argv[1:]]
    return asyncio.run(program.supervise(command, team, around, say))
