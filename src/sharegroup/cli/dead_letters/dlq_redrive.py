"""``sharegroup dlq redrive``: send dead letters back."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import click

from sharegroup.cli.common.cluster_access import (
    Access,
    cluster_options,
    json_option,
    telling_errors,
)
from sharegroup.cli.common.name_arguments import naming_one
from sharegroup.cli.common.options import FiniteRange, gathered
from sharegroup.cli.common.output import complain, counted, printable, terminal_width
from sharegroup.cli.common.progress import showing_progress
from sharegroup.cli.common.running import Stop, run, telling_waits, until_stopped
from sharegroup.cli.common.tables import table
from sharegroup.cli.dead_letters.dlq_options import lacks_queue_broker, redrive_selection_options
from sharegroup.client.produce.producer import Producer
from sharegroup.client.settings.client_config import ProducerConfig
from sharegroup.dead_letters.letter import LETTER_BYTES_MAX
from sharegroup.dead_letters.queue import DeadLetterQueue
from sharegroup.dead_letters.redrive import Redrive
from sharegroup.dead_letters.redrive_copies import RedriveOptions
from sharegroup.dead_letters.redriven import WHY_LEFT, Redriven
from sharegroup.dead_letters.selection import Selection
from sharegroup.errors import KafkaError

GC_THRESHOLDS = (100_000, 20, 100)
BATCH_BYTES = 256 * 1024
PLACES_SHOWN_MAX = 8
"""Maximum number of runs of letters that a table cell shows; ``--json`` shows more."""


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
@cluster_options
@json_option
def command(
    *,
    topic: str,
    selection: Selection,
    options: RedriveOptions,
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
    Ctrl-C stops after the dead letters that are being sent.  An interrupted redrive loses no dead
    letters; those that were being sent may be sent twice, with the same redrive id.

    \b
        sharegroup dlq redrive orders.dead --error-class TimeoutError --dry-run
        sharegroup dlq redrive billing.dead --confirm billing.retry --rate 50
    """
    options = replace(options, selection=selection)
    _collect_seldom()
    with telling_errors(access):
        done, code = run(lambda stop: _redrive(stop, topic, options, access))
    click.echo(json.dumps(_facts(done, options)) if as_json else _text(done, options))
    return code


def _collect_seldom() -> None:
    """Let the garbage collector run less often, because letters form no reference cycles.

    With the default thresholds, collections took a quarter of the time of a redrive.
    """
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


async def _redrive(
    stop: Stop, topic: str, options: RedriveOptions, access: Access
) -> tuple[Redriven, int]:
    sending = {
        # A letter has more headers than the record sent back, so this limit is large enough.
        "request_bytes_max": LETTER_BYTES_MAX,
        "batch_bytes": BATCH_BYTES,
        "max_block_ms": access.timeout_ms,
        "delivery_timeout_ms": access.timeout_ms,
        **access.client_options(ProducerConfig),
    }
    queue = DeadLetterQueue(topic, **access.client_options())
    producer = Producer(**sending)
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
            complain(_text(sending_back.done, options))  # Report the records sent so far.
            raise


def _done_count(done: Redriven) -> int:
    refused = sum(refusal.letters for refusal in done.refused)
    return sum(done.sent.values()) + sum(done.left.values()) + refused


def _facts(done: Redriven, options: RedriveOptions) -> dict[str, Any]:
    return {
        "sent": done.sent,
        "left": done.left,
        "refused": [
            {
                "target": refused.target,
                "reason": refused.reason,
                "letters": refused.letters,
                "at": list(refused.places()),
                "at_complete": refused.all_told,
            }
            for refused in done.refused
        ],
        "without_headers": done.without_headers,
        "dry_run": options.dry_run,
        "interrupted": done.interrupted,
    }


def _text(done: Redriven, options: RedriveOptions) -> str:
    verb = "would send" if options.dry_run else "sent"
    lines = [
        f"{verb} {counted(count, 'record')} back to {target}"
        for target, count in sorted(done.sent.items())
    ] or [f"{verb} nothing back"]
    if done.without_headers:
        lines.append(f"{done.without_headers} of them without their headers, which no longer exist")
    lines += [f"left {count}: {WHY_LEFT[reason]}" for reason, count in sorted(done.left.items())]
    lines += _refused_lines(done)
    if done.interrupted:
        lines.append("interrupted; run the same command again to continue")
    return "\n".join(lines)


def _refused_lines(done: Redriven) -> Iterator[str]:
    """Yield the refused letters as a table by target, and each reason below it."""
    if not done.refused:
        return
    yield f"could not send {done.refused.letters}, which are kept:"
    rows = []
    reasons: dict[str, None] = {}
    for refused in done.refused:
        at = " ".join(islice(refused.places(), PLACES_SHOWN_MAX))
        shown_all = refused.all_told and len(refused.runs) <= PLACES_SHOWN_MAX
        rows.append(
            [printable(refused.target), str(refused.letters), at + ("" if shown_all else " ...")]
        )
        reasons[refused.reason] = None
    yield table(rows, ("target", "letters", "at"), width=terminal_width())
    yield from map(printable, reasons)
