"""``sharegroup worker quiet | resume | stop | status``: on this machine, or in a cluster.

Without a cluster the workers are found by their pid files and get signals.  With one, they are
found by their heartbeats and get commands (`worker_fleet`).
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from sharegroup.cli.common.cluster_access import (
    Form,
    json_option,
    listing_options,
    profile_option,
)
from sharegroup.cli.common.options import Verb, gathered
from sharegroup.cli.common.output import Listing, Row, complain, print_listing, printable
from sharegroup.cli.common.tables import leaves_out
from sharegroup.cli.common.watch import view_of, watch
from sharegroup.cli.worker.worker_fleet import (
    Order,
    Which,
    app_name,
    moment,
    show_fleet,
    steer_fleet,
)
from sharegroup.fleet.commands import Intent
from sharegroup.http_documents import get_document
from sharegroup.json_documents import typed_fields
from sharegroup.suggestions import did_you_mean
from sharegroup.worker.lifecycle.pid_files import WorkerProcess, worker_of, workers
from sharegroup.worker.lifecycle.signals import QUIET, RESUME

LOOK_SECONDS = 0.05
ASK_SECONDS_MAX = 1.0
GONE = "stopped"
SPARE = ("health", "since", "groups")
COUNTS = ("running", "waiting", "held")
"""The numbers of records that the health port has for each group."""


class Signalled(NamedTuple):
    """A signal, and the phase that a worker reaches by it."""

    number: signal.Signals
    phase: str


SIGNALS: Mapping[Intent, Signalled] = {
    Intent.QUIET: Signalled(QUIET, "quiet"),
    Intent.RESUME: Signalled(RESUME, "running"),
    Intent.STOP: Signalled(signal.SIGTERM, GONE),
}


which_workers = gathered(
    "which",
    Which.of,
    click.argument("name", metavar="[APP]", required=False),
    click.option(
        "--pid-file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Pid file of one worker, instead of all workers of an application.",
    ),
    click.option(
        "--bootstrap-server",
        "--bootstrap",
        "bootstrap_servers",
        metavar="HOST:PORT,...",
        help="Brokers of a cluster: the workers that announce themselves there, on all machines.",
    ),
    profile_option,
    click.option(
        "--command-config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="File with client properties for the cluster, as for Kafka's tools.",
    ),
    click.option("--host", metavar="HOST", help="In a cluster: only the workers of this host."),
    click.option(
        "--worker", "worker_id", metavar="ID", help="In a cluster: only the worker with this id."
    ),
)
"""Adds the argument and the options that name workers to a verb, which is called with ``which``."""


def waiting_option(seconds: float) -> Callable[[Verb], Verb]:
    """Create the option ``--timeout``, which limits how long a verb waits."""
    return click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(0),
        default=seconds,
        show_default=True,
        metavar="SECONDS",
        help="Timeout in seconds.",
    )


@click.command("quiet")
@which_workers
@waiting_option(10)
@json_option
def quiet(*, which: Which, timeout_s: float, as_json: bool) -> None:
    """Tell workers to acquire no more records and to finish their records.

    APP is the name of the application (or MODULE:NAME).  The command applies to all its processes
    of this user on this machine; with --bootstrap-server, --profile or --command-config, to those
    of all machines that announce themselves in the cluster (App(announce=True)).
    """
    _tell(which, Intent.QUIET, timeout_s, as_json=as_json)


@click.command("resume")
@which_workers
@waiting_option(10)
@json_option
def resume(*, which: Which, timeout_s: float, as_json: bool) -> None:
    """Tell quiet workers to acquire records again."""
    _tell(which, Intent.RESUME, timeout_s, as_json=as_json)


@click.command("stop")
@which_workers
@waiting_option(60)
@json_option
def stop(*, which: Which, timeout_s: float, as_json: bool) -> None:
    """Tell workers to stop; records that are not finished within the grace time are released."""
    _tell(which, Intent.STOP, timeout_s, as_json=as_json)


@click.command("status")
@which_workers
@listing_options
@leaves_out(SPARE)
def status(*, which: Which, form: Form) -> None:
    """Show the state of workers; without APP, of all workers of this user on this machine.

    Records in flight are only known of workers with --health-port.  With --bootstrap-server,
    --profile or --command-config, it shows the workers that announce themselves in the cluster
    (App(announce=True)), with their last heartbeats; "lost" is one that was not heard for 30 s.
    """
    if which.access is not None:
        show_fleet(which.access, which.app_name, which.target, form)
        return
    every_s = form.watch_s
    if every_s is not None:
        view = view_of(every_s, as_json=form.as_json)
        asyncio.run(watch(view, lambda: _states(which.name, which.pid_file), every_s))
    listing = asyncio.run(_states(which.name, which.pid_file))
    print_listing(listing, as_json=form.as_json)
    if not form.as_json:
        _tell_unknown(listing.rows)


async def _states(name: str | None, pid_file: Path | None) -> Listing:
    """Return a row for each worker; their health ports are asked together."""
    everything = name is None and pid_file is None
    found = workers() if everything else _found(name, pid_file)
    rows = await asyncio.gather(*(asyncio.to_thread(_row, worker) for worker in found))
    columns = ("app", "pid", "phase", "since", "groups", "running", "waiting", "held", "health")
    nothing = "There are no workers." if name is None else _no_workers(name)
    return Listing(rows, columns, nothing, spare=SPARE)


def _no_workers(name: str) -> str:
    names = sorted({str(worker.facts.get("app")) for worker in workers()})
    others = did_you_mean(name, names) or f"; running: {', '.join(names) or 'none'}"
    return printable(f"There are no workers of {name} of this user on this machine{others}")


def _tell_unknown(rows: Sequence[Row]) -> None:
    """Say on standard error why rows have no numbers of records."""
    unknown = [row for row in rows if row[COUNTS[0]] is None and row["phase"] != "starting"]
    for why, pids in (
        ("no --health-port", [row["pid"] for row in unknown if row["health"] is None]),
        ("no answer of the health port", [row["pid"] for row in unknown if row["health"]]),
    ):
        if pids:
            names = ", ".join(map(str, pids))
            complain(f"RUNNING, WAITING and HELD of pid {names} are unknown: {why}")


def _found(name: str | None, pid_file: Path | None) -> list[WorkerProcess]:
    if (name is None) == (pid_file is None):
        raise click.UsageError("give the name of an application, or --pid-file")
    if pid_file is not None:
        worker = worker_of(pid_file)
        return [] if worker is None else [worker]
    assert name is not None, "one of both was given"
    return workers(app_name(name))


def _tell(which: Which, intent: Intent, timeout_s: float, *, as_json: bool) -> None:
    """Tell workers what to do, and wait until they have done it."""
    if which.access is None:
        _signal(which, SIGNALS[intent], timeout_s, as_json=as_json)
        return
    name = which.app_name
    if name is None:
        raise click.UsageError("give the name of an application")
    steer_fleet(which.access, name, Order(intent, which.target, timeout_s), as_json=as_json)


def _signal(which: Which, how: Signalled, timeout_s: float, *, as_json: bool) -> None:
    """Send a signal to the workers, and wait until they report one of the phases."""
    number, phase_wanted = how
    # A process that ended since its pid file was read needs no signal any more.
    found = _found(which.name, which.pid_file)
    signalled = [worker for worker in found if worker.send(number)]
    if not signalled:
        raise click.ClickException(
            f"no worker of {which.name or which.pid_file} of this user is running on this machine; "
            "for those of a cluster, name it with --bootstrap-server or --profile"
        )
    limit = time.monotonic() + timeout_s
    # One limit for all of them: they finish their records at the same time.
    reached = {worker.pid: _wait(worker, phase_wanted, limit) for worker in signalled}
    rows = [
        {"app": worker.facts.get("app"), "pid": worker.pid, "phase": reached[worker.pid]}
        for worker in signalled
    ]
    print_listing(Listing(rows, ("app", "pid", "phase"), ""), as_json=as_json)
    late = [str(pid) for pid, phase in reached.items() if phase != phase_wanted]
    if late:
        raise click.ClickException(
            f"{phase_wanted} was not reached in {timeout_s:g} s by pid {', '.join(late)}"
        )


def _wait(worker: WorkerProcess, phase_wanted: str, limit: float) -> str:
    """Wait until a worker reaches a phase or stops; return its phase at the limit."""
    while True:
        now = worker_of(worker.path)
        # Another process may have the pid file by now.
        phase = GONE if now is None or now.pid != worker.pid else str(now.facts.get("phase"))
        if phase in (phase_wanted, GONE) or time.monotonic() >= limit:
            return phase
        time.sleep(LOOK_SECONDS)


def _row(worker: WorkerProcess) -> dict[str, Any]:
    facts = worker.facts
    counts = _asked(facts.get("health"))
    return {
        "app": facts.get("app"),
        "pid": worker.pid,
        "phase": facts.get("phase"),
        "since": moment(facts.get("since_ms")),
        "groups": facts.get("groups"),
        **{name: sum(group[name] for group in counts) if counts else None for name in COUNTS},
        "health": facts.get("health"),
        "metrics": facts.get("metrics"),
    }


def _asked(health: str | None) -> list[dict[str, Any]]:
    """Return the counts of a worker's groups; none without a health port or an answer of it."""
    if health is None:
        return []
    # A worker that hangs or ends does not answer, and later another program may have its port.
    # What the pid file says is enough then.
    with contextlib.suppress(OSError, ValueError):  # Also a URL that is none.
        _, document = get_document(f"{health}/status", timeout_s=ASK_SECONDS_MAX)
        groups = typed_fields(document, {"groups": list})["groups"]
        return [typed_fields(group, dict.fromkeys(COUNTS, int)) for group in groups]
    return []
