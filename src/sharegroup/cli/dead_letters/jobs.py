"""``sharegroup jobs``: list, show, abort and resume jobs: redrives and purges."""

from __future__ import annotations

import asyncio
import json
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
from sharegroup.cli.common.output import Listing, complain, done, printable
from sharegroup.cli.common.running import Stop, lacks_broker, run, telling_waits
from sharegroup.cli.common.tables import leaves_out
from sharegroup.cli.common.verb_groups import VerbGroup
from sharegroup.cli.dead_letters.dlq_options import moment_text
from sharegroup.cli.dead_letters.job_running import run_job, sending_options
from sharegroup.cli.dead_letters.purge_output import print_purge_job
from sharegroup.cli.dead_letters.redrive_output import print_redrive_job
from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.jobs import Job, Jobs
from sharegroup.jobs.purge_job import PURGE
from sharegroup.jobs.redrive_job import REDRIVE

T = TypeVar("T")
PRINTERS = {REDRIVE: print_redrive_job, PURGE: print_purge_job}
"""What prints the result of a job, by its kind."""
COLUMNS = ("id", "kind", "topic", "state", "done", "remaining", "started_by", "updated")
SPARE = ("kind", "started_by", "remaining")
WIDTH = 12
"""The width of the names before the lines of `show`."""


@click.group("jobs", cls=VerbGroup)
def command() -> None:
    """List, show, abort and resume jobs: redrives and purges of dead letters.

    `sharegroup dlq redrive` and `sharegroup dlq purge` start them.  They are kept in the topic
    __sharegroup.jobs.
    """


@command.command("list")
@cluster_options
@listing_options
@leaves_out(SPARE)
def list_(*, access: Access, form: Form) -> None:
    """List jobs, the newest first, with state and progress.

    A running job whose time of update stays the same for 30 seconds has lost its runner: resume it.
    """
    options = sending_options(access)

    async def listing(_: AdminClient) -> Listing:
        async with Jobs(**options) as jobs:
            found = await jobs.list()
        if not found.is_current:
            complain("the open transaction of a job hides the newest changes; ask again soon")
        if found.unreadable:
            complain(f"{found.unreadable} records of the topic of jobs are none, and are left out")
        return Listing(
            [job_row(job) for job in found.jobs], COLUMNS, "There are no jobs.", spare=SPARE
        )

    show_listing(access, form, listing)


@command.command("show")
@click.argument("job_id", metavar="ID")
@cluster_options
@json_option
def show(*, job_id: str, access: Access, as_json: bool) -> None:
    """Print a job with its filter, progress and result."""
    job = _ask(access, lambda jobs: jobs.show(job_id))
    row = job_row(job)
    if as_json:
        click.echo(json.dumps(row))
        return
    for name, value in row.items():
        text = json.dumps(value) if isinstance(value, dict) else str(value)
        if value not in (None, {}):
            click.echo(printable(f"{name:<{WIDTH}}{text}"))


@command.command("abort")
@click.argument("job_id", metavar="ID")
@click.option("--now", "at_once", is_flag=True, help="Do not wait for the runner: fence it.")
@cluster_options
@json_option
def abort(*, job_id: str, at_once: bool, access: Access, as_json: bool) -> None:
    """Abort a job; what it has sent or deleted stays so.

    Its runner ends it after the transaction that is under way.  A job without a runner is aborted
    at once.
    """
    job = _ask(access, lambda jobs: jobs.abort(job_id, at_once=at_once))
    done(f"job {job.id} is {job.state}", as_json=as_json, id=job.id, state=job.state)


@command.command("resume")
@click.argument("job_id", metavar="ID")
@click.option("--detach", is_flag=True, help="Leave the job to another runner, such as a console.")
@cluster_options
@json_option
def resume(*, job_id: str, detach: bool, access: Access, as_json: bool) -> int:
    """Run a job that failed, was aborted, or lost its runner, from where it stopped.

    A runner that it still has can write nothing any more, and says so.
    """

    async def work(stop: Stop) -> tuple[Job, int]:
        async with Jobs(**sending_options(access)) as jobs:
            resumed = await jobs.resume(job_id)
            if detach:
                return resumed, 0
            return await run_job(stop, access, jobs, resumed, total=resumed.progress.counted)

    with telling_errors(access):
        job, code = run(work)
    if as_json:
        click.echo(json.dumps(job_row(job)))
    elif job.request.kind in PRINTERS and not detach:
        PRINTERS[job.request.kind](job, as_json=False)
    else:
        click.echo(f"job {job.id} is {job.state}")
    return code


def job_row(job: Job) -> dict[str, Any]:
    """Return a job for JSON."""
    request = job.request
    return {
        "id": job.id,
        "kind": request.kind,
        "topic": request.topic,
        "state": job.state,
        "filter": dict(request.filter),
        "options": dict(request.options),
        "counted": job.progress.counted,
        "done": job.progress.done,
        "remaining": job.progress.remaining,
        "started_by": job.started_by,
        "started": moment_text(job.created_ms),
        "updated": moment_text(job.updated_ms),
        "ended": None if job.ended_ms is None else moment_text(job.ended_ms),
        "runner": job.runner,
        "error": job.error,
        "resumes": job.resumes,
        "result": dict(job.result),
    }


def _ask(access: Access, question: Callable[[Jobs], Awaitable[T]]) -> T:
    async def ask() -> T:
        async with (
            Jobs(**sending_options(access)) as jobs,
            telling_waits(access.bootstrap_servers, lambda: lacks_broker(jobs.metrics)),
        ):
            return await question(jobs)

    with telling_errors(access):
        return asyncio.run(ask())
