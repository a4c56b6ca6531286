"""``sharegroup schedules``: list, pause, resume and run the schedules of an application."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from sharegroup.cli.common.cluster_access import (
    Access,
    Form,
    cluster_options,
    json_option,
    listing_options,
    show as show_listing,
    telling_errors,
)
from sharegroup.cli.common.output import Listing, complain, done
from sharegroup.cli.common.tables import leaves_out
from sharegroup.cli.common.verb_groups import VerbGroup
from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.settings.client_config import ProducerConfig
from sharegroup.schedules import CommandResult, Schedules, StoredSchedule
from sharegroup.schedules.schedule import moment_text

T = TypeVar("T")
COLUMNS = (
    *("name", "when", "next", "last_run", "runs", "paused_by"),
    *("missed", "topic", "revision"),
)
SPARE = ("missed", "topic", "revision", "runs")
NOTHING = "There are no schedules."

app_argument = click.argument("app_name", metavar="APP_NAME")
name_argument = click.argument("name", metavar="SCHEDULE")


@click.group("schedules", cls=VerbGroup)
def command() -> None:
    """List, pause, resume and run the schedules of an application.

    APP_NAME is the name of the App, not its module: the schedules are in the topic
    APP_NAME.schedules.  The running workers carry the commands out.
    """


@command.command("list")
@app_argument
@cluster_options
@listing_options
@leaves_out(SPARE)
def list_(*, app_name: str, access: Access, form: Form) -> None:
    """List the schedules, with the times of their next and last runs in UTC."""

    async def listing(_: AdminClient) -> Listing:
        async with _schedules(app_name, access) as schedules:
            found = await schedules.list()
        return Listing(
            [_row(schedule) for schedule in found.schedules], COLUMNS, NOTHING, spare=SPARE
        )

    show_listing(access, form, listing)


@command.command("pause")
@app_argument
@name_argument
@cluster_options
@json_option
def pause(*, app_name: str, name: str, access: Access, as_json: bool) -> int:
    """Make no runs of a schedule until it is resumed."""
    return _commanded(app_name, access, lambda schedules: schedules.pause(name), as_json=as_json)


@command.command("resume")
@app_argument
@name_argument
@cluster_options
@json_option
def resume(*, app_name: str, name: str, access: Access, as_json: bool) -> int:
    """Make runs of a paused schedule again; those of the pause are not made."""
    return _commanded(app_name, access, lambda schedules: schedules.resume(name), as_json=as_json)


@command.command("run")
@app_argument
@name_argument
@cluster_options
@json_option
def run(*, app_name: str, name: str, access: Access, as_json: bool) -> int:
    """Make one run of a schedule now, also if it is paused."""
    return _commanded(app_name, access, lambda schedules: schedules.run(name), as_json=as_json)


def _commanded(
    app_name: str,
    access: Access,
    give: Callable[[Schedules], Awaitable[CommandResult]],
    *,
    as_json: bool,
) -> int:
    """Give a command; exit code 1 if no worker has carried it out."""
    result = _ask(app_name, access, give)
    if result.is_forgotten:
        complain(
            "the worker that owns the schedule has dropped this command: the schedule is gone, or "
            "the clock of this machine is an hour behind. List the schedules, check the clock, and "
            "give the command again"
        )
    elif not result.is_done:
        complain(
            f"no worker of {app_name} has carried this out yet; the next one that owns the "
            "schedule does, but a command to run it expires after an hour. Is one running?"
        )
    facts = {"schedule": result.name, "command": result.intent, "done": result.is_done}
    state = "done" if result.is_done else "forgotten" if result.is_forgotten else "waiting"
    done(f"{result.intent} {result.name}: {state}", as_json=as_json, **facts)
    return 0 if result.is_done else 1


def _ask(app_name: str, access: Access, question: Callable[[Schedules], Awaitable[T]]) -> T:
    async def work() -> T:
        async with _schedules(app_name, access) as schedules:
            return await question(schedules)

    with telling_errors(access):
        return asyncio.run(work())


def _schedules(app_name: str, access: Access) -> Schedules:
    options = {
        "max_block_ms": access.timeout_ms,
        "delivery_timeout_ms": access.timeout_ms,
        **access.client_options(ProducerConfig),
    }
    return Schedules(app_name, **options)


def _row(schedule: StoredSchedule) -> dict[str, Any]:
    definition, next_ms, last_ms = schedule.definition, schedule.next_due_ms, schedule.last_run_ms
    return {
        "name": schedule.name,
        "when": str(definition.timing),
        "next": None if next_ms is None else moment_text(next_ms),
        "last_run": None if last_ms is None else moment_text(last_ms),
        "runs": schedule.runs,
        "paused_by": schedule.paused_by,
        "missed": str(definition.missed),
        "topic": definition.topic,
        "revision": definition.revision,
    }
