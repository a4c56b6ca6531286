"""``sharegroup dlq redrive``: send dead letters back."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace

import click

from sharegroup.cli.common.cluster_access import (
    Access,
    cluster_options,
    json_option,
    telling_errors,
)
from sharegroup.cli.common.name_arguments import naming_one
from sharegroup.cli.common.options import FiniteRange, gathered
from sharegroup.cli.common.output import complain
from sharegroup.cli.common.progress import showing_progress
from sharegroup.cli.common.running import Stop, run, telling_waits, until_stopped
from sharegroup.cli.dead_letters.dlq_options import lacks_queue_broker, redrive_selection_options
from sharegroup.cli.dead_letters.job_running import letters_in, run_job, sending_options
from sharegroup.cli.dead_letters.redrive_output import (
    print_redrive_job,
    print_redriven,
    redriven_text,
)
from sharegroup.client.produce.producer import Producer
from sharegroup.dead_letters.queue import DeadLetterQueue
from sharegroup.dead_letters.redrive import Redrive
from sharegroup.dead_letters.redrive_copies import RedriveOptions
from sharegroup.dead_letters.redriven import Redriven
from sharegroup.dead_letters.selection import Selection
from sharegroup.errors import KafkaError
from sharegroup.jobs import Job, Jobs, redrive_request

GC_THRESHOLDS = (400_000, 20, 100)
"""The first is several times the number of objects in a slice of a job, so few collections run."""


redrive_options = gathered(
    "options",
    RedriveOptions,
    click.option(
        "--to",
        type=click.Choice(["own", "original"]),
        default="own",
        show_default=True,
        help="Target: the group's own topic, or the original topic of the record.",
    ),
    click.option(
        "--max-redrives",
        "redrives_max",
        type=click.IntRange(1),
        default=3,
        show_default=True,
        help="Skip dead letters that were redriven this number of times.",
    ),
    click.option("--limit", type=click.IntRange(1), help="Maximum number of dead letters."),
    click.option(
        "--rate",
        type=FiniteRange(min=0, min_open=True),
        help="Maximum number of dead letters per second.",
    ),
    click.option(
        "--confirm",
        "confirmed",
        metavar="TOPIC",
        multiple=True,
        callback=lambda _ctx, _option, topics: frozenset(topics),
        help="Target topic to which claimed dead letters may be sent; can be repeated.",
    ),
    click.option("--again", is_flag=True, help="Include dead letters that were redriven before."),
    click.option("--dry-run", is_flag=True, help="Show what would be sent, without sending it."),
)


@click.command("redrive")
@naming_one("topic")
@redrive_selection_options
@redrive_options
@click.option(
    "--no-job",
    is_flag=True,
    help="Send without transactions, for users who may not write to the topic of jobs.",
)
@cluster_options
@json_option
def command(
    *,
    topic: str,
    selection: Selection,
    options: RedriveOptions,
    no_job: bool,
    access: Access,
    as_json: bool,
) -> int:
    """Send dead letters back to the group that could not process them.

    They are sent to the group's own topic, which only its workers read, so no other group gets
    them twice.  A dead letter whose group has no such topic is not sent.  The others are sent, the
    dead letters that are not sent are listed, and the exit code is 1.

    A dead letter of a worker or of Apache Kafka is a claim: each producer of TOPIC can write one
    that names any group and topic.  Such dead letters are only sent to targets that you confirm:
    without --confirm the command lists them by target.  Dead letters that a broker of sharegroup
    wrote need it only for an original topic that the record itself names.

    Redriven dead letters are recorded in TOPIC.redriven, and a second redrive skips them.
    A redrive is a job (`sharegroup jobs list`), which sends in transactions: readers of committed
    records get each dead letter once.  Ctrl-C stops after the dead letters that are being sent, and
    `sharegroup jobs resume ID` sends the others, also after a crash.  With --no-job those that were
    being sent may be sent twice, with the same redrive id.

    \b
        sharegroup dlq redrive orders.dead --error-class TimeoutError --dry-run
        sharegroup dlq redrive billing.dead --confirm billing.retry --rate 50
    """
    options = replace(options, selection=selection)
    _collect_seldom()
    with telling_errors(access):
        if options.dry_run or no_job:
            done, code = run(lambda stop: _redrive(stop, topic, options, access))
            print_redriven(done, dry_run=options.dry_run, as_json=as_json)
        else:
            job, code = run(lambda stop: _redrive_as_job(stop, topic, options, access))
            print_redrive_job(job, as_json=as_json)
    return code


async def _redrive_as_job(
    stop: Stop, topic: str, options: RedriveOptions, access: Access
) -> tuple[Job, int]:
    letters = await letters_in(access, topic)
    # How many letters a selection matches is known only when all of them are read.
    total = min(letters, options.limit or letters) if options.selection.is_everything else None
    async with Jobs(**sending_options(access)) as jobs:
        # Without conditions all letters of the topic are meant, as --dry-run shows.
        job = await jobs.start(redrive_request(topic, options, everything=True))
        return await run_job(stop, access, jobs, job, total=total)


def _collect_seldom() -> None:
    """Let the garbage collector run less often, because letters form no reference cycles.

    With the default thresholds, collections took a quarter of the time of a redrive.
    """
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


async def _redrive(
    stop: Stop, topic: str, options: RedriveOptions, access: Access
) -> tuple[Redriven, int]:
    queue = DeadLetterQueue(topic, **access.client_options())
    producer = Producer(**sending_options(access))
    try:
        async with telling_waits(access.bootstrap_servers, lambda: lacks_queue_broker(queue)):
            # `_send_back` stops by itself after a signal; this ends it if a broker keeps it
            # waiting.
            done = await until_stopped(_send_back(stop, queue, producer, options), stop)
    finally:
        await producer.close(timeout=0)
    if done is None:
        # `_send_back` has reported what was sent until it was cancelled.
        raise click.Abort
    if done.interrupted:
        return done, stop.code
    return done, 1 if done.refused else 0


async def _send_back(
    stop: Stop, queue: DeadLetterQueue, producer: Producer, options: RedriveOptions
) -> Redriven:
    async with queue:
        sending_back = Redrive(queue, producer, options)
        letters = sum(log_range.end - log_range.first for log_range in queue.ranges)
        # How many letters a selection matches is known only when all of them are read.
        total = min(letters, options.limit or letters) if options.selection.is_everything else None
        try:
            async with showing_progress(
                f"redriving {queue.topic}",
                lambda: _done_count(sending_back.done),
                total=lambda: total,
                unit="dead letters",
            ):
                return await sending_back.run(stop)
        except (KafkaError, asyncio.CancelledError):
            # Report the records sent so far.
            complain(redriven_text(sending_back.done, dry_run=options.dry_run))
            raise


def _done_count(done: Redriven) -> int:
    refused = sum(refusal.letters for refusal in done.refused)
    return sum(done.sent.values()) + sum(done.left.values()) + refused
