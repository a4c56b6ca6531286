"""``sharegroup worker plan | apply | check``: the topics and settings an application needs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from sharegroup.cli.common.cluster_access import json_option, line_of, telling_errors
from sharegroup.cli.common.output import Listing, print_listing
from sharegroup.cli.common.running import lacks_broker, telling_waits
from sharegroup.cli.common.tables import leaves_out
from sharegroup.cli.worker.worker_app import access_of, app_options
from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.errors import KafkaError
from sharegroup.schedules import Schedules
from sharegroup.worker.app import App
from sharegroup.worker.infrastructure import Applied, Change, ChangeKind, apply, plan
from sharegroup.worker.infrastructure.rights import RequiredAcl, acls_of
from sharegroup.worker.infrastructure.wanted import Totals, announced_topics, totals
from sharegroup.worker.transport.kafka import client_options, open_admin

T = TypeVar("T")

SAME, FAILED, DRIFT = 0, 1, 2

SPARE = ("why",)
COLUMNS = ("kind", "resource", "name", "setting", "now", "wanted", "why")
NOTHING = "There are no differences."
ACL_COLUMNS = ("operation", "resource", "name", "pattern", "why")
NO_ACLS = "The application has no handlers, so its workers need no ACLs."

former_option = click.option(
    "--former-group",
    "former",
    metavar="GROUP",
    multiple=True,
    help="Share group that the application no longer has; its topics are surplus.",
)


def _principal(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is not None and not all(value.partition(":")):
        raise click.BadParameter(f"a principal is like User:billing, not {value!r}")
    return value


acls_option = click.option(
    "--acls-for",
    metavar="PRINCIPAL",
    callback=_principal,
    help="User of the workers, such as User:billing: also compare the ACLs that it needs.",
)


class Misused(click.UsageError):
    """Wrong usage of a command whose exit code 2 has another meaning; its exit code is 1."""

    exit_code = FAILED


class MisuseIsFailure(click.Command):
    """A command that exits with code 1 on wrong usage, because its code 2 means a difference."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line; wrong usage becomes `Misused`."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise Misused(error.format_message(), ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; wrong usage becomes `Misused`."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise Misused(error.format_message(), ctx) from error


@click.command("plan")
@app_options
@former_option
@acls_option
@click.option(
    "--acls",
    is_flag=True,
    help="Show the ACLs that the user of the workers needs instead; the cluster is not asked.",
)
@json_option
@leaves_out(SPARE)
def plan_(
    *,
    app: App,
    app_name: str,  # noqa: ARG001
    former: tuple[str, ...],
    acls_for: str | None,
    acls: bool,
    as_json: bool,
) -> None:
    """Show what differs between the cluster and what APP's handlers need.

    A starting worker creates what is missing.  apply corrects drift, and apply --prune deletes
    surplus.  refused needs a decision, because partitions cannot be removed, or a schedule differs
    without a new revision.  warning is a topic with fewer replicas, or a smaller
    min.insync.replicas, than the cluster allows, or a schedule that a starting worker declares.
    unknown is not visible to this user.  The last line has the numbers of topics and groups that
    APP needs.
    """
    if acls:
        rows = [_acl_row(acl) for acl in acls_of(app)]
        print_listing(Listing(rows, ACL_COLUMNS, NO_ACLS, spare=SPARE), as_json=as_json)
        return
    changes = _ask(app, _planning(app, former, acls_for))
    print_listing(Listing([_row(change) for change in changes], COLUMNS, NOTHING), as_json=as_json)
    if not as_json:
        click.echo(f"{app.name} needs {_totals(app)}.")


@click.command("apply")
@app_options
@former_option
@acls_option
@click.option(
    "--prune",
    is_flag=True,
    help="Delete surplus topics with all their records, and surplus schedules.",
)
@json_option
def apply_(  # One option each.
    *,
    app: App,
    app_name: str,  # noqa: ARG001
    former: tuple[str, ...],
    acls_for: str | None,
    prune: bool,
    as_json: bool,
) -> None:
    """Create and change what APP's handlers need in the cluster; --prune also deletes."""

    async def work(
        admin: AdminClient, schedules: Schedules
    ) -> tuple[list[Change], Sequence[Applied]]:
        planned = await plan(app, admin, former=former, acls_for=acls_for, schedules=schedules)
        return planned, await apply(admin, planned, prune=prune, schedules=schedules)

    planned, results = _ask(app, work)
    errors = {id(change): error for change, error in results}
    rows = [{**_row(change), "status": _status(change, errors)} for change in planned]
    print_listing(Listing(rows, (*COLUMNS[:-1], "status"), NOTHING), as_json=as_json)
    failed = [f"{change}: {line_of(error)}" for change, error in results if error is not None]
    refused = [str(change) for change in planned if change.kind is ChangeKind.REFUSED]
    if failed or refused:
        raise click.ClickException("\n       ".join((*failed, *refused)))


@click.command("check", cls=MisuseIsFailure)
@app_options
@former_option
@acls_option
@json_option
@leaves_out(SPARE)
def check(
    *,
    app: App,
    app_name: str,  # noqa: ARG001
    former: tuple[str, ...],
    acls_for: str | None,
    as_json: bool,
) -> int:
    """Like plan, for scripts: exit code 0: no difference, 2: a difference, 1: unknown.

    Surplus topics and schedules and warnings are listed, but are not differences.
    """
    changes = _ask(app, _planning(app, former, acls_for))
    print_listing(_listing(changes), as_json=as_json)
    kinds = {change.kind for change in changes} - {ChangeKind.SURPLUS, ChangeKind.WARNING}
    if kinds == {ChangeKind.UNKNOWN}:
        return FAILED
    return DRIFT if kinds else SAME


def _planning(
    app: App, former: tuple[str, ...], acls_for: str | None
) -> Callable[[AdminClient, Schedules], Awaitable[list[Change]]]:
    async def work(admin: AdminClient, schedules: Schedules) -> list[Change]:
        return await plan(app, admin, former=former, acls_for=acls_for, schedules=schedules)

    return work


def _ask(app: App, question: Callable[[AdminClient, Schedules], Awaitable[T]]) -> T:
    async def run() -> T:
        async with (
            open_admin(app) as admin,
            telling_waits(access.bootstrap_servers, lambda: lacks_broker(admin.metrics())),
            Schedules(app.name, **client_options(app)) as schedules,
        ):
            return await question(admin, schedules)

    access = access_of(app)
    with telling_errors(access):
        return asyncio.run(run())


def _listing(changes: Sequence[Change]) -> Listing:
    return Listing([_row(change) for change in changes], COLUMNS, NOTHING, spare=SPARE)


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


def _totals(app: App) -> Totals:
    fleet = announced_topics(app.name) if app.announce else ()
    return totals(app.route_list, app.topic_list, fleet)


def _acl_row(acl: RequiredAcl) -> dict[str, Any]:
    return {
        "operation": acl.operation.name,
        "resource": acl.resource_type.name,
        "name": acl.name,
        "pattern": acl.pattern.name,
        "why": acl.why,
    }


def _status(change: Change, errors: Mapping[int, KafkaError | None]) -> str:
    """Return the result of a change; ``errors`` has those that were tried, by ``id``."""
    if id(change) not in errors:
        untouched = (ChangeKind.REFUSED, ChangeKind.WARNING, ChangeKind.UNKNOWN)
        return str(change.kind) if change.kind in untouched else "kept"
    error = errors[id(change)]
    if error is not None:
        return f"{type(error).__name__}: {error}"
    if change.kind is ChangeKind.SURPLUS:
        return "deleted"
    is_new = change.topic is not None or change.acl is not None
    return "created" if is_new else "set"
