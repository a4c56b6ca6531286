"""``sharegroup worker``: runs an application, and controls running workers."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import click

from sharegroup.cli.common.cluster_access import telling_errors
from sharegroup.cli.common.options import gathered
from sharegroup.cli.common.verb_groups import VerbGroup
from sharegroup.cli.worker import worker_infrastructure, worker_processes
from sharegroup.cli.worker.worker_app import (
    Overrides,
    access_of,
    is_module,
    load,
    override_options,
    source_folder,
)
from sharegroup.cli.worker.worker_supervisor import (
    Several,
    check as check_several,
    several_options,
    supervise,
    taken_supervisor,
)
from sharegroup.durations import seconds
from sharegroup.errors import InvalidConfig, MissingExtra
from sharegroup.worker.app import App
from sharegroup.worker.lifecycle.program import Surroundings, run, say
from sharegroup.worker.lifecycle.reload import WATCHER, reload
from sharegroup.worker.telemetry import logs

RUN = "run"


class _MisusedProcess(click.ClickException):
    """A wrong command line in a supervised process: one line for each attempt, without usage."""

    exit_code = click.UsageError.exit_code


class RunByDefault(VerbGroup):
    """A group of verbs with the default verb ``run``: the first word may be an application."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert ``run`` unless the first word is a verb or a help option."""
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            meant = self.suggestion(ctx, args[0])
            if meant and ":" not in args[0] and not is_module(args[0]):
                raise click.UsageError(f"No such command {args[0]!r}{meant}", ctx)
            args = [RUN, *args]
        return super().parse_args(ctx, args)


class Concurrency(click.ParamType):  # type: ignore[type-arg]  # Generic since click 8.4.
    """The parameter type of ``--concurrency``: a number from 1, or ``auto``."""

    name = "N|auto"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | Literal["auto"]:
        """Return the value as the option of the application takes it."""
        if value == "auto":
            return "auto"
        if not str(value).isdigit() or int(value) < 1:
            self.fail(f"expected a number of 1 or more, or auto; got {value!r}", param, ctx)
        return int(value)


class Length(click.ParamType):  # type: ignore[type-arg]  # Generic since click 8.4.
    """A parameter type for durations; the value is in seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the duration in seconds; a number without a unit is seconds."""
        try:
            return seconds(float(value) if _is_number(value) else value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.group("worker", cls=RunByDefault)
def command() -> None:
    """Run the handlers of an application, and control running workers.

    \b
        sharegroup worker orders.app:app          runs it
        sharegroup worker plan orders.app:app     what it needs of the cluster
        sharegroup worker quiet orders-service    its processes on this machine
    """


port_options = gathered(
    "around",
    Surroundings,
    click.option(
        "--health-port",
        type=click.IntRange(0, 65535),
        help="Port of /live, /ready and /status; 0: a free port.",
    ),
    click.option(
        "--metrics-port",
        type=click.IntRange(0, 65535),
        help="Port of /metrics for Prometheus; may be the same port.",
    ),
    click.option("--host", default="127.0.0.1", show_default=True, help="Address of these ports."),
    click.option(
        "--pid-file", type=click.Path(dir_okay=False, path_type=Path), help="Additional pid file."
    ),
)
"""Adds the options of ports and files to a verb, which is called with ``around``."""


@command.command(RUN)
@click.argument("app_name", metavar="APP")
@click.option(
    "-c",
    "--concurrency",
    type=Concurrency(),
    help="Concurrency of every handler.  [default: as declared]",
)
@click.option(
    "-g", "--groups", metavar="GROUP,...", help="Run only the handlers of these share groups."
)
@click.option(
    "--grace", type=Length(), help="Time to finish records when stopping.  [default: as declared]"
)
@click.option("--no-prepare", is_flag=True, help="Do not create missing topics and settings.")
@several_options
@override_options
@port_options
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
)
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@click.option("--reload", "reloads", is_flag=True, help="Restart when a Python file changes.")
@click.option(
    "--reload-dir",
    "folders",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    multiple=True,
    help="Folder to watch.  [default: the folder of the application's package]",
)
def run_(
    *,
    app_name: str,
    reloads: bool,
    folders: tuple[Path, ...],
    several: Several,
    around: Surroundings,
    log_level: str,
    log_format: Literal["text", "json"],
    **changes: Any,
) -> int:
    """Run an application until SIGTERM or Ctrl-C; a second signal ends the grace time.

    APP is MODULE:NAME, imported from the current folder, or MODULE if it contains one App.
    Prints one line when the worker is ready, and one when it has stopped:

    \b
        ready app=orders-service pid=4711 groups=billing
        stopped app=orders-service handled=480 finished=12 interrupted=0 released=3 of=orders-0:3

    SIGUSR1 makes the worker quiet, SIGUSR2 resumes it.  The exit code is 0 if it stopped as
    requested.

    With -n, this process starts and replaces worker processes.  SIGHUP then replaces all, one at a
    time, so they run new code.
    """
    check_several(several, reloads=reloads)
    # The watcher sets the variable for the process that it starts with the same command line.
    if reloads and WATCHER not in os.environ:
        return _reloading(app_name, folders)
    supervisor = taken_supervisor()
    number = None if supervisor is None else supervisor[0].number
    logs.configure(log_level, log_format, process=number)
    watcher = int(os.environ.get(WATCHER, "0")) or None
    around = replace(around, module=app_name, watcher=watcher, supervisor=supervisor)
    if supervisor is None and several.processes is not None:
        return supervise(several.processes, several, around)
    try:
        app = _narrowed(app_name, **changes)
    except click.UsageError as misuse:
        if supervisor is None:
            raise
        raise _MisusedProcess(f"process {number}: {misuse.format_message()}") from misuse
    return _run(app, around)


command.add_command(worker_infrastructure.plan_)
command.add_command(worker_infrastructure.apply_)
command.add_command(worker_infrastructure.check)
command.add_command(worker_processes.quiet)
command.add_command(worker_processes.resume)
command.add_command(worker_processes.stop)
command.add_command(worker_processes.status)


def _narrowed(
    app_name: str,
    *,
    overrides: Overrides,
    concurrency: int | Literal["auto"] | None,
    groups: str | None,
    grace: float | None,
    no_prepare: bool,
) -> App:
    """Load an application, with what the command line says instead of its declarations."""
    app = load(app_name)
    overrides.apply_to(app)
    try:
        app.narrow(groups.split(",") if groups else (), concurrency=concurrency)
    except InvalidConfig as error:
        raise click.UsageError(str(error)) from error
    if grace is not None:
        app.grace_seconds = grace
    if no_prepare:
        app.prepare = False
    return app


def _run(app: App, around: Surroundings) -> int:
    try:
        with telling_errors(access_of(app)):
            return run(app, around)
    except MissingExtra as error:
        raise click.ClickException(str(error)) from error


def _reloading(app_name: str, folders: tuple[Path, ...]) -> int:
    """Run the command line in another process, and restart it when a watched file changes."""
    watched = folders or (source_folder(app_name),)
    command_line = [sys.executable, "-m", "sharegroup", *sys.argv[1:]]
    try:
        return asyncio.run(reload(command_line, watched, say))
    except MissingExtra as error:
        raise click.ClickException(str(error)) from error


def _is_number(text: Any) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
