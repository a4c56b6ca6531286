"""``sharegroup worker plan | apply | check``: what an application needs of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from sharegroup.cli.asking import json_option, line_of, telling_errors
from sharegroup.cli.output import Listing, print_listing
from sharegroup.cli.worker_app import access_of, app_options
from sharegroup.client.admin import AdminClient
from sharegroup.errors import KafkaError
from sharegroup.worker.app import App
from sharegroup.worker.infrastructure import Applied, Change, Kind, apply, plan
from sharegroup.worker.transport.kafka import open_admin

T = TypeVar("T")

SAME, FAILED, DRIFT = 0, 1, 2

COLUMNS = ("kind", "resource", "name", "setting", "now", "wanted", "why")
NOTHING = "Everything is as declared."

former_option = click.option(
    "--former-group",
    "former",
    metavar="GROUP",
    multiple=True,
    help="A share group that the application does not have any more: its topics are surplus.",
)


class Misused(click.UsageError):
    """Misuse of a command whose exit code 2 has a meaning of its own."""

    exit_code = FAILED


class MisuseIsFailure(click.Command):
    """Such a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise Misused(error.format_message(), ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run it."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise Misused(error.format_message(), ctx) from error


@click.command("plan")
@app_options
@former_option
@json_option
def plan_(*, app: App, app_name: str, former: tuple[str, ...], as_json: bool) -> None:  # noqa: ARG001
    """Show what differs between the cluster and what APP's handlers need.

    missing is made when a worker starts, drift by apply, surplus is deleted by apply --prune, and
    refused needs a decision: partitions can't be taken away.
    """
    found = _ask(app, lambda admin: plan(app, admin, former=former))
    print_listing(Listing([_row(one) for one in found], COLUMNS, NOTHING), as_json=as_json)


@click.command("apply")
@app_options
@former_option
@click.option("--prune", is_flag=True, help="Delete what is surplus, with all its records.")
@json_option
def apply_(  # One option each.
    *,
    app: App,
    app_name: str,  # noqa: ARG001
    former: tuple[str, ...],
    prune: bool,
    as_json: bool,
) -> None:
    """Make the cluster as APP's handlers need it; nothing is deleted without --prune."""

    async def work(admin: AdminClient) -> tuple[list[Change], Sequence[Applied]]:
        planned = await plan(app, admin, former=former)
        return planned, await apply(admin, planned, prune=prune)

    planned, results = _ask(app, work)
    errors = {id(one): error for one, error in results}
    rows = [{**_row(one), "status": _status(one, errors)} for one in planned]
    print_listing(Listing(rows, (*COLUMNS[:-1], "status"), NOTHING), as_json=as_json)
    failed = [f"{one}: {line_of(error)}" for one, error in results if error is not None]
    refused = [str(one) for one in planned if one.kind is Kind.REFUSED]
    if failed or refused:
        raise click.ClickException("\n       ".join((*failed, *refused)))


@click.command("check", cls=MisuseIsFailure)
@app_options
@former_option
@json_option
def check(*, app: App, app_name: str, former: tuple[str, ...], as_json: bool) -> int:  # noqa: ARG001
    """As plan, for scripts: exit code 0 the same, 2 something differs, 1 not known.

    What is surplus is listed, and is no difference: it harms nobody.
    """
    found = _ask(app, lambda admin: plan(app, admin, former=former))
    print_listing(Listing([_row(one) for one in found], COLUMNS, NOTHING), as_json=as_json)
    return DRIFT if any(one.kind is not Kind.SURPLUS for one in found) else SAME


def _ask(app: App, question: Callable[[AdminClient], Awaitable[T]]) -> T:
    async def run() -> T:
        async with open_admin(app) as admin:
            return await question(admin)

    with telling_errors(access_of(app)):
        return asyncio.run(run())


def _row(change: Change) -> dict[str, Any]:
    return {
        "kind": str(change.kind),
        "resource": change.resource,
        "name": change.name,
        "setting": change.setting,
        "now": change.now,
        "wanted": change.wanted,
        "why": change.why,
    }


def _status(change: Change, errors: Mapping[int, KafkaError | None]) -> str:
    """What became of a change; ``errors`` of those that were tried, by identity."""
    if id(change) not in errors:
        return "refused" if change.kind is Kind.REFUSED else "kept"
    error = errors[id(change)]
    if error is not None:
        return f"{type(error).__name__}: {error}"
    if change.kind is Kind.SURPLUS:
        return "deleted"
    return "created" if change.topic is not None else "set"
