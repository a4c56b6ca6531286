"""``sharegroup retries``: list, run and cancel the records of a group that wait for a retry."""

from __future__ import annotations

import json
from typing import Any

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
from sharegroup.cli.common.log_positions import parse_moment
from sharegroup.cli.common.options import gathered
from sharegroup.cli.common.output import Listing, complain, printable
from sharegroup.cli.common.running import Stop, run
from sharegroup.cli.common.tables import leaves_out
from sharegroup.cli.common.verb_groups import VerbGroup
from sharegroup.cli.dead_letters.dlq_options import moment_text
from sharegroup.cli.dead_letters.job_running import run_job, sending_options
from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.dead_letters.expression import Expression, ExpressionError
from sharegroup.jobs import Job, Jobs, JobState, steering_request
from sharegroup.waiting.control_records import Intent
from sharegroup.waiting.waiting_filter import WaitingFilter, WaitingRecord
from sharegroup.waiting.waiting_records import Outcome, Steered, WaitingRecords

COLUMNS = ("id", "origin_topic", "failures", "error_class", "due", "topic", "partition", "offset")
SPARE = ("offset", "partition", "topic")
LISTED_MAX = 1_000
DONE_TEXTS = {Intent.RUN: "run now", Intent.CANCEL: "cancelled"}


def _ids(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> frozenset[str]:
    return frozenset(texts)


def _key(_: click.Context, __: click.Parameter, text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _moment(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
    return None if text is None else round(parse_moment(text).timestamp() * 1000)


def _expression(_: click.Context, __: click.Parameter, text: str | None) -> Expression | None:
    try:
        return None if text is None else Expression(text)
    except ExpressionError as error:
        raise click.BadParameter(str(error), param_hint="--where") from error


selecting = gathered(
    "selection",
    WaitingFilter,
    click.option(
        "--id", "ids", metavar="ID", multiple=True, callback=_ids,
        help="Id of a record; can be repeated.",
    ),
    click.option(
        "--error-class", metavar="CLASS",
        help="Class of the last failure: its name, its name with the module, or a pattern.",
    ),
    click.option("--topic", metavar="TOPIC", help="Topic that the record came from."),
    click.option(
        "--due-after", "due_after_ms", metavar="TIME", callback=_moment,
        help="Only records that are due at this time or later.",
    ),
    click.option(
        "--due-before", "due_before_ms", metavar="TIME", callback=_moment,
        help="Only records that are due before this time.",
    ),
    click.option(
        "--failures", "failures_min", type=click.IntRange(1),
        help="Only records that have failed this number of times or more.",
    ),
    click.option("--key", metavar="TEXT", callback=_key, help="Key of the record."),
    click.option(
        "--where", metavar="EXPR", callback=_expression,
        help="Condition on the JSON value of the record: total < 0 and customer.id == 7.",
    ),
)  # fmt: skip


@click.group("retries", cls=VerbGroup)
def command() -> None:
    """List, run and cancel records that wait for a retry.

    These are the records in the retry topics of a group: after a failure, or sent with a delay.  To
    run or cancel them, the handlers of the group are declared with steering=True.
    """


@command.command("list")
@click.argument("group")
@selecting
@click.option(
    "--limit", type=click.IntRange(1), default=LISTED_MAX, show_default=True,
    help="Maximum number of records.",
)  # fmt: skip
@cluster_options
@listing_options
@leaves_out(SPARE)
def list_(*, group: str, selection: WaitingFilter, limit: int, access: Access, form: Form) -> None:
    """List the records of a group that wait, with their ids, and when they are due."""
    options = access.client_options()

    async def listing(_: AdminClient) -> Listing:
        rows: list[dict[str, Any]] = []
        async with WaitingRecords(group, **options) as waiting:
            async for record in waiting.records(selection):
                if len(rows) == limit:
                    complain(f"only the first {limit} are listed; see --limit, or give conditions")
                    break
                rows.append(waiting_row(record))
        return Listing(rows, COLUMNS, "No such record waits.", spare=SPARE)

    show_listing(access, form, listing)


@command.command("run")
@click.argument("group")
@selecting
@click.option("--dry-run", is_flag=True, help="Only count the records.")
@cluster_options
@json_option
def run_now(
    *, group: str, selection: WaitingFilter, dry_run: bool, access: Access, as_json: bool
) -> int:
    """Give waiting records to their handlers now.

    With ids alone each outcome is printed.  With other conditions it is a job (`sharegroup jobs`).
    """
    return _steer(group, Intent.RUN, selection, access, dry_run=dry_run, as_json=as_json)


@command.command("cancel")
@click.argument("group")
@selecting
@click.option("--dry-run", is_flag=True, help="Only count the records.")
@cluster_options
@json_option
def cancel(
    *, group: str, selection: WaitingFilter, dry_run: bool, access: Access, as_json: bool
) -> int:
    """Make waiting records dead letters with the reason cancelled; they do not run.

    With ids alone each outcome is printed.  With other conditions it is a job (`sharegroup jobs`).
    """
    return _steer(group, Intent.CANCEL, selection, access, dry_run=dry_run, as_json=as_json)


def _steer(
    group: str,
    intent: Intent,
    selection: WaitingFilter,
    access: Access,
    *,
    dry_run: bool,
    as_json: bool,
) -> int:
    if selection.is_everything:
        raise click.UsageError(
            "without a condition this would be for all waiting records of the group; give --id or "
            "another condition (sharegroup retries list shows what waits)"
        )
    with telling_errors(access):
        if dry_run:
            count = run(lambda _: _count(group, selection, access))
            return _tell_count(intent, count, as_json=as_json)
        if selection == WaitingFilter(ids=selection.ids):
            outcomes, by_id = run(lambda _: _by_ids(group, intent, selection.ids, access)), True
        else:
            job, code = run(lambda stop: _as_job(stop, group, intent, selection, access))
            by_id = False
    if by_id:
        return _tell_outcomes(outcomes, as_json=as_json)
    return _tell_job(intent, job, code, as_json=as_json)


async def _count(group: str, selection: WaitingFilter, access: Access) -> int:
    async with WaitingRecords(group, **access.client_options()) as waiting:
        return len([record async for record in waiting.records(selection)])


async def _by_ids(
    group: str, intent: Intent, ids: frozenset[str], access: Access
) -> dict[str, Steered]:
    async with WaitingRecords(group, **sending_options(access)) as waiting:
        return dict(await waiting.steer(intent, ids))


async def _as_job(
    stop: Stop, group: str, intent: Intent, selection: WaitingFilter, access: Access
) -> tuple[Job, int]:
    async with Jobs(**sending_options(access)) as jobs:
        request = steering_request(group, intent, selection)
        plan = await jobs.plan(request)
        job = await jobs.start(request, counted=plan.count)
        return await run_job(stop, access, jobs, job, total=plan.count, unit="records")


def _tell_count(intent: Intent, count: int, *, as_json: bool) -> int:
    if as_json:
        click.echo(json.dumps({"job": None, "outcomes": {}, "records": count, "dry_run": True}))
    else:
        verb = {Intent.RUN: "run", Intent.CANCEL: "cancel"}[intent]
        click.echo(f"would {verb} {count} {'record' if count == 1 else 'records'}")
    return 0


def _tell_outcomes(outcomes: dict[str, Steered], *, as_json: bool) -> int:
    if as_json:
        by_id = {record_id: steered._asdict() for record_id, steered in outcomes.items()}
        row = {"job": None, "outcomes": by_id, "records": len(by_id), "dry_run": False}
        click.echo(json.dumps(row))
    else:
        for record_id, (outcome, member, why) in sorted(outcomes.items()):
            detail = f" by {member}" if member else f": {why}" if why else ""
            click.echo(printable(f"{record_id}  {outcome}{detail}"))
    return 0 if all(steered.outcome is Outcome.DONE for steered in outcomes.values()) else 1


def _tell_job(intent: Intent, job: Job, code: int, *, as_json: bool) -> int:
    counts = dict(job.result.get("outcomes", {}))
    if as_json:
        done = job.progress.done
        row = {"job": job.id, "outcomes": counts, "records": done, "dry_run": False}
        click.echo(json.dumps(row))
    else:
        click.echo(f"{counts.pop(Outcome.DONE, 0)} {DONE_TEXTS[intent]}")
        for outcome, count in sorted(counts.items()):
            click.echo(f"{count} {outcome}")
        if job.state is not JobState.DONE:
            complain(f"job {job.id} is {job.state}; sharegroup jobs resume {job.id} goes on")
    return code


def waiting_row(record: WaitingRecord) -> dict[str, Any]:
    """Return a waiting record for JSON."""
    story = record.story
    return {
        "id": record.id,
        "origin_topic": record.origin_topic or None,
        "failures": story.failures,
        "error_class": record.error_class or None,
        "error_message": story.attempts[-1].message if story.attempts else None,
        "due": None if story.due_ms is None else moment_text(story.due_ms),
        "topic": record.place.topic,
        "partition": record.place.partition,
        "offset": record.place.offset,
    }
