"""``sharegroup dlq purge``: delete the oldest dead letters."""

from __future__ import annotations

from collections.abc import Sequence

import click

from sharegroup.cli.common.cluster_access import (
    Access,
    cluster_options,
    json_option,
    telling_errors,
)
from sharegroup.cli.common.name_arguments import naming_one
from sharegroup.cli.common.running import Stop, run
from sharegroup.cli.dead_letters.dlq_options import selection_options, with_queue
from sharegroup.cli.dead_letters.job_running import letters_in, run_job, sending_options
from sharegroup.cli.dead_letters.purge_output import print_purge_job, print_purges
from sharegroup.dead_letters.purge import Purge, plan_purge, purge
from sharegroup.dead_letters.queue import DeadLetterQueue
from sharegroup.dead_letters.selection import Selection
from sharegroup.jobs import Job, JobRequest, Jobs, purge_request
from sharegroup.jobs.job import EVERYTHING


@click.command("purge")
@naming_one("topic")
@selection_options
@click.option("--all", "everything", is_flag=True, help="Delete all present dead letters.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, without deleting it.")
@click.option("--execute", is_flag=True, help="Delete the dead letters.")
@click.option(
    "--no-job",
    is_flag=True,
    help="Delete without a job, for users who may not write to the topic of jobs.",
)
@cluster_options
@json_option
def command(
    *,
    topic: str,
    selection: Selection,
    everything: bool,
    dry_run: bool,
    execute: bool,
    no_job: bool,
    access: Access,
    as_json: bool,
) -> int:
    """Delete the oldest dead letters, up to the first one that does not match.

    Records can only be deleted at the start of a log.  Matching dead letters after one that does
    not match are kept, and counted in the column BEHIND.

    A purge is a job (`sharegroup jobs list`), which deletes partition by partition.  Ctrl-C stops
    after a partition, and `sharegroup jobs resume ID` deletes the others, also after a crash.

    \b
        sharegroup dlq purge orders.dead --redriven --execute
        sharegroup dlq purge orders.dead --until 30d --dry-run
    """
    if everything != selection.is_everything:
        raise click.UsageError("give options that select dead letters, or --all")
    if dry_run == execute:
        raise click.UsageError("give one of --dry-run and --execute")
    if dry_run or no_job:
        plan = with_queue(access, topic, lambda queue: _purge(queue, selection, executes=execute))
        print_purges(topic, plan, as_json=as_json)
        return 0
    request = purge_request(topic, selection, everything=everything)
    with telling_errors(access):
        job, code = run(lambda stop: _purge_as_job(stop, access, request))
    print_purge_job(job, as_json=as_json)
    return code


async def _purge(
    queue: DeadLetterQueue, selection: Selection, *, executes: bool
) -> Sequence[Purge]:
    plan = await plan_purge(queue, selection)
    if executes:
        await purge(queue, plan)
    return plan


async def _purge_as_job(stop: Stop, access: Access, request: JobRequest) -> tuple[Job, int]:
    letters = await letters_in(access, request.topic)
    # How many letters a selection matches is known only when all of them are read.
    total = letters if request.filter_text == EVERYTHING else None
    async with Jobs(**sending_options(access)) as jobs:
        job = await jobs.start(request)
        return await run_job(stop, access, jobs, job, total=total)
