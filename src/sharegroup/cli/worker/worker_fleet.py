"""``sharegroup worker status | quiet | resume | stop`` over a cluster (`sharegroup.fleet`)."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

import click

from sharegroup.cli.common.cluster_access import Access, Form, ask
from sharegroup.cli.common.output import Listing, complain, print_listing, printable
from sharegroup.cli.common.watch import view_of, watch
from sharegroup.cli.worker.worker_app import load
from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.fleet.commands import EVERYBODY, Intent, Target, TargetKind
from sharegroup.fleet.fleet import WORKERS_MAX, Fleet, Outcome, SeenWorker, Steered, silent_text
from sharegroup.fleet.fleet_topics import apps_of
from sharegroup.login import login
from sharegroup.suggestions import did_you_mean

DEFAULT_TIMEOUT_MS = 10_000
LOST = "lost"
SPARE = ("python", "version", "groups", "pid", "host", "since")
COLUMNS = (
    "app", "worker", "host", "pid", "phase", "since", "heard", "groups", "running", "waiting",
    "held", "version", "python",
)  # fmt: skip
STEERED_COLUMNS = ("app", "worker", "host", "pid", "phase", "outcome")
STEERED_SPARE = ("pid", "host", "app")
NEXT_STEPS: Mapping[Outcome, str] = {
    Outcome.EXPIRED: "it read the command too late and did nothing; give it again",
    Outcome.UNDER_WAY: "it has taken the command, and its handlers have not finished",
    Outcome.STOPPED: "it stopped meanwhile",
    Outcome.UNHEARD: "no answer, and it does not carry the command out any more; look at its log",
}


@dataclass(frozen=True, slots=True)
class Which:
    """The workers that a command line names."""

    name: str | None
    pid_file: Path | None
    access: Access | None
    """The cluster whose workers are meant; None: those of this machine."""
    target: Target

    @classmethod
    def of(  # One option each.
        cls,
        *,
        name: str | None,
        pid_file: Path | None,
        host: str | None,
        worker_id: str | None,
        **cluster: Any,
    ) -> Self:
        """Return what the options of a command line name; raises UsageError if they contradict."""
        is_cluster = any(value is not None for value in cluster.values())
        if is_cluster and pid_file is not None:
            raise click.UsageError("--pid-file is a file of this machine; leave out the cluster")
        if not is_cluster and (host is not None or worker_id is not None):
            raise click.UsageError(
                "--host and --worker are for workers of a cluster: name it with "
                "--bootstrap-server, --profile or --command-config"
            )
        if host is not None and worker_id is not None:
            raise click.UsageError("give --host or --worker, not both")
        target = EVERYBODY
        if host is not None:
            target = Target(TargetKind.HOST, host)
        elif worker_id is not None:
            target = Target(TargetKind.WORKER, worker_id)
        access = Access.of(timeout_ms=DEFAULT_TIMEOUT_MS, **cluster) if is_cluster else None
        return cls(name, pid_file, access, target)

    @property
    def app_name(self) -> str | None:
        """The name of the application, also if MODULE:NAME was given."""
        return None if self.name is None else app_name(self.name)


class Order(NamedTuple):
    """What a command line asks for, and how long it waits for answers."""

    intent: Intent
    target: Target
    wait_s: float


def app_name(name: str) -> str:
    """Return the name of an application that is given as such, or as MODULE:NAME."""
    return load(name).name if ":" in name else name


def show_fleet(access: Access, app: str | None, target: Target, form: Form) -> None:
    """Print the workers of an application, or of all, once or repeatedly."""
    every_s = form.watch_s
    view = None if every_s is None else view_of(every_s, as_json=form.as_json)
    options = access.client_options()

    async def work(admin: AdminClient) -> Listing:
        async with AsyncExitStack() as stack:
            fleets: dict[str, Fleet] = {}

            async def states() -> Listing:
                names = await _announced(admin, app)
                for name in names:
                    if name not in fleets:
                        fleet = Fleet(name, **options)
                        fleets[name] = await stack.enter_async_context(fleet)
                return await _states([fleets[name] for name in names], target)

            if view is not None and every_s is not None:
                await watch(view, states, every_s)
            return await states()

    listing = ask(access, work, tell=None if view is None else view.note)
    print_listing(listing, as_json=form.as_json)


async def _states(fleets: Sequence[Fleet], target: Target) -> Listing:
    rows = []
    now_ms = time.time_ns() // 1_000_000
    for fleet in fleets:
        workers = await fleet.workers()
        if workers.left_out:
            complain(f"{fleet.app} has more than {WORKERS_MAX} workers; the others are left out")
        rows += [
            _row(fleet.app, seen, now_ms)
            for seen in workers.listed()
            if target.includes(seen.identity)
        ]
    nothing = "There are no workers that announce themselves."
    return Listing(rows, COLUMNS, nothing, spare=SPARE)


async def _announced(admin: AdminClient, app: str | None) -> list[str]:
    """Return the applications whose workers announce themselves, or this one if it is one."""
    apps = apps_of(await admin.list_topics())
    if app is None:
        return apps
    if app not in apps:
        raise click.ClickException(
            printable(
                f"the workers of {app} do not announce themselves in this cluster, or this user "
                "cannot see their topics: expected App(..., announce=True) and the topics that "
                f"sharegroup worker apply creates{did_you_mean(app, apps)}"
            )
        )
    return [app]


def _row(app: str, seen: SeenWorker, now_ms: int) -> dict[str, Any]:
    who, beat = seen.identity, seen.beat
    return {
        "app": app,
        "worker": who.worker_id,
        "host": who.host,
        "pid": who.pid,
        "phase": LOST if seen.is_lost(now_ms) else beat.phase,
        "since": moment(who.since_ms),
        "heard": moment(seen.heard_ms),
        "groups": list(who.groups),
        "running": beat.running,
        "waiting": beat.waiting,
        "held": beat.held,
        "version": who.versions.sharegroup,
        "python": who.versions.python,
    }


def steer_fleet(access: Access, app: str, order: Order, *, as_json: bool) -> None:
    """Give a command to workers of an application, and print what became of it at each."""

    options = access.client_options()

    async def work(admin: AdminClient) -> Sequence[Steered]:
        await _announced(admin, app)
        async with Fleet(app, **options) as fleet:
            return await fleet.steer(
                order.intent, order.target, by=login(), wait_seconds=order.wait_s
            )

    results = ask(access, work)
    if not results:
        who = "" if order.target.kind is TargetKind.ALL else f" ({order.target})"
        raise click.ClickException(
            printable(
                f"no worker of {app}{who} is listed in this cluster; list them with: sharegroup "
                f"worker status {app} --bootstrap-server {access.bootstrap_servers}"
            )
        )
    rows = [
        {
            "app": app,
            "worker": worker.identity.worker_id,
            "host": worker.identity.host,
            "pid": worker.identity.pid,
            "phase": _phase(order.intent, worker, outcome),
            "outcome": str(outcome),
        }
        for worker, outcome in results
    ]
    listing = Listing(rows, STEERED_COLUMNS, "", spare=STEERED_SPARE)
    print_listing(listing, as_json=as_json)
    _say_failures(results)


def _phase(intent: Intent, worker: SeenWorker, outcome: Outcome) -> str:
    if outcome is Outcome.LOST:
        return LOST
    is_gone = outcome is Outcome.STOPPED or (outcome is Outcome.DONE and intent is Intent.STOP)
    return "stopped" if is_gone else worker.beat.phase


def _say_failures(results: Sequence[Steered]) -> None:
    """Name the workers that were lost before; fail if another one has not done what was asked."""
    lost = [worker for worker, outcome in results if outcome is Outcome.LOST]
    if lost:
        silent = silent_text(lost, time.time_ns() // 1_000_000)
        complain(f"not heard since before the command: {silent}")
    counts = Counter(outcome for _, outcome in results if outcome in NEXT_STEPS)
    if counts:
        raise click.ClickException(
            "\n       ".join(
                f"{count} of {len(results)} workers {outcome}: {NEXT_STEPS[outcome]}"
                for outcome, count in counts.items()
            )
        )


def moment(ms: object) -> str | None:
    """Return a time as text; None for one that another program may have written."""
    if not isinstance(ms, int):
        return None
    with contextlib.suppress(OSError, OverflowError, ValueError):
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
    return None
