"""``sharegroup worker quiet | resume | stop | status``: the workers that run on this machine."""

from __future__ import annotations

import contextlib
import json
import signal
import time
import urllib.request
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from sharegroup.cli.asking import json_option
from sharegroup.cli.output import Listing, print_listing
from sharegroup.worker.living.pid_files import WorkerProcess, worker_of, workers
from sharegroup.worker.living.signals import QUIET, RESUME

LOOK_SECONDS = 0.05
ASK_SECONDS_MAX = 1.0
GONE = "stopped"

Verb = Callable[..., Any]


def which_workers(verb: Verb) -> Verb:
    """Give a verb an application's name or a pid file."""
    for option in (
        json_option,
        click.option(
            "--pid-file",
            type=click.Path(dir_okay=False, path_type=Path),
            help="The worker with this pid file, instead of all of an application.",
        ),
        click.argument("name", metavar="[APP]", required=False),
    ):
        verb = option(verb)
    return verb


def waiting_option(seconds: float) -> Callable[[Verb], Verb]:
    """Give a verb a limit for how long it waits."""
    return click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(0),
        default=seconds,
        show_default=True,
        metavar="SECONDS",
        help="Wait so long for it.",
    )


@click.command("quiet")
@which_workers
@waiting_option(10)
def quiet(*, name: str | None, pid_file: Path | None, timeout_s: float, as_json: bool) -> None:
    """Let workers take no more records; what they have they finish.

    APP is the application's name (or MODULE:NAME): all its processes on this machine, of this user.
    """
    _signal(name, pid_file, QUIET, ("quiet",), timeout_s, as_json=as_json)


@click.command("resume")
@which_workers
@waiting_option(10)
def resume(*, name: str | None, pid_file: Path | None, timeout_s: float, as_json: bool) -> None:
    """Let quiet workers take records again."""
    _signal(name, pid_file, RESUME, ("running",), timeout_s, as_json=as_json)


@click.command("stop")
@which_workers
@waiting_option(60)
def stop(*, name: str | None, pid_file: Path | None, timeout_s: float, as_json: bool) -> None:
    """Let workers finish what fits in their grace, give back the rest, and end."""
    _signal(name, pid_file, signal.SIGTERM, (GONE,), timeout_s, as_json=as_json)


@click.command("status")
@which_workers
def status(*, name: str | None, pid_file: Path | None, as_json: bool) -> None:
    """How workers stand; what is in flight only of those with a --health-port."""
    rows = [_row(one) for one in _found(name, pid_file)]
    columns = ("app", "pid", "phase", "since", "groups", "running", "waiting", "held", "health")
    print_listing(Listing(rows, columns, "There are no workers."), as_json=as_json)


def _found(name: str | None, pid_file: Path | None) -> list[WorkerProcess]:
    if (name is None) == (pid_file is None):
        raise click.UsageError("say which: the name of an application, or --pid-file")
    if pid_file is not None:
        one = worker_of(pid_file)
        return [] if one is None else [one]
    assert name is not None
    if ":" in name:
        from sharegroup.cli.worker_app import load  # The application's own imports are costly.

        name = load(name).name
    return workers(name)


def _signal(
    name: str | None,
    pid_file: Path | None,
    number: signal.Signals,
    phases: Sequence[str],
    timeout_s: float,
    *,
    as_json: bool,
) -> None:
    """Signal the workers, and wait until they say that they have heard."""
    found = [one for one in _found(name, pid_file) if one.send(number)]
    if not found:
        raise click.ClickException(f"no worker of {name or pid_file} runs here, for this user")
    limit = time.monotonic() + timeout_s
    reached = {one.pid: _wait(one, phases, limit) for one in found}
    rows = [
        {"app": one.facts.get("app"), "pid": one.pid, "phase": reached[one.pid]} for one in found
    ]
    print_listing(Listing(rows, ("app", "pid", "phase"), ""), as_json=as_json)
    late = [str(pid) for pid, phase in reached.items() if phase not in phases]
    if late:
        raise click.ClickException(
            f"{phases[0]} was not reached in {timeout_s:g} s by pid {', '.join(late)}"
        )


def _wait(one: WorkerProcess, phases: Sequence[str], limit: float) -> str:
    """The phase that a worker reaches in time."""
    while True:
        now = worker_of(one.path)
        phase = GONE if now is None or now.pid != one.pid else str(now.facts.get("phase"))
        if phase in phases or phase == GONE or time.monotonic() >= limit:
            return phase
        time.sleep(LOOK_SECONDS)


def _row(one: WorkerProcess) -> dict[str, Any]:
    facts = one.facts
    groups = _asked(facts.get("health")).get("groups", [])
    since_ms = facts.get("since_ms")

    def total(what: str) -> int | None:
        return sum(group[what] for group in groups) if groups else None

    return {
        "app": facts.get("app"),
        "pid": one.pid,
        "phase": facts.get("phase"),
        "since": None if since_ms is None else _moment(since_ms),
        "groups": facts.get("groups"),
        "running": total("running"),
        "waiting": total("waiting"),
        "held": total("held"),
        "health": facts.get("health"),
        "metrics": facts.get("metrics"),
    }


def _asked(health: str | None) -> dict[str, Any]:
    """What the worker says itself, if it has a port to say it."""
    if health is not None:
        with (
            contextlib.suppress(OSError, ValueError),  # It hangs, or ends: the file's word counts.
            urllib.request.urlopen(f"{health}/status", timeout=ASK_SECONDS_MAX) as answer,  # noqa: S310  Its own port.
        ):
            found = json.load(answer)
            if isinstance(found, dict):
                return found
    return {}


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
