"""``sharegroup dlq redrive``: send dead letters back."""

from __future__ import annotations

import gc
import json
from typing import Any, Literal

import click

from sharegroup.cli.asking import Access, cluster_options, json_option, telling_errors
from sharegroup.cli.dlq_options import selection_options
from sharegroup.cli.naming import naming_one
from sharegroup.cli.output import complain
from sharegroup.cli.running import Stop, run
from sharegroup.client.config import ProducerConfig
from sharegroup.client.producer import Producer
from sharegroup.errors import KafkaError
from sharegroup.worker.dead_letters.queue import DeadLetterQueue
from sharegroup.worker.dead_letters.redrive import WHY_LEFT, Redrive, Redriven, RedriveOptions
from sharegroup.worker.dead_letters.selection import Selection
from sharegroup.worker.dead_letters.topics import LETTER_BYTES_MAX

GC_THRESHOLDS = (100_000, 20, 100)
BATCH_BYTES = 256 * 1024


@click.command("redrive")
@naming_one("topic")
@selection_options
@click.option(
    "--to",
    type=click.Choice(["own", "original"]),
    default="own",
    show_default=True,
    help="The topic of the group alone, or the one that the record came from.",
)
@click.option(
    "--max-redrives",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Leave what was sent back so often.",
)
@click.option("--limit", type=click.IntRange(1), help="Up to so many.")
@click.option(
    "--rate", type=click.FloatRange(min=0, min_open=True), help="Up to so many in a second."
)
@click.option("--again", is_flag=True, help="Also what was sent back before.")
@click.option("--dry-run", is_flag=True, help="Only say what would happen.")
@cluster_options
@json_option
def command(
    *,
    topic: str,
    selection: Selection,
    to: Literal["own", "original"],
    max_redrives: int,
    limit: int | None,
    rate: float | None,
    again: bool,
    dry_run: bool,
    access: Access,
    as_json: bool,
) -> int:
    """Send dead letters back to the group that gave them up.

    They go to the group's own topic, which its workers read and nobody else: no other group
    sees them twice.  What was sent back is noted in TOPIC.redriven, and a second redrive leaves
    it.  Ctrl-C ends it after what is under way; whatever ends it, nothing is lost, and at most
    what was under way is sent twice, with the same redrive id.

    \b
        sharegroup dlq redrive orders.dead --error-class TimeoutError --dry-run
        sharegroup dlq redrive orders.dead --where 'total < 100' --rate 50
    """
    options = RedriveOptions(
        selection=selection, to=to, redrives_max=max_redrives, limit=limit, rate=rate,
        again=again, dry_run=dry_run,
    )  # fmt: skip
    _collect_seldom()
    with telling_errors(access):
        done, code = run(lambda stop: _redrive(stop, topic, options, access))
    click.echo(json.dumps(_facts(done, options)) if as_json else _text(done, options))
    return code


def _collect_seldom() -> None:
    """Letters make no cycles, and thousands of them under way made a quarter of the time go to
    looking for some."""
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


async def _redrive(
    stop: Stop, topic: str, options: RedriveOptions, access: Access
) -> tuple[Redriven, int]:
    sending = {
        # A letter was written with more beside it than is sent back: what fits, fits again.
        "request_bytes_max": LETTER_BYTES_MAX,
        "batch_bytes": BATCH_BYTES,
        "max_block_ms": access.timeout_ms,
        "delivery_timeout_ms": access.timeout_ms,
        **access.client_options(ProducerConfig),
    }
    async with (
        DeadLetterQueue(topic, **access.client_options()) as queue,
        Producer(**sending) as producer,
    ):
        sending_back = Redrive(queue, producer, options)
        try:
            done = await sending_back.run(stop)
        except KafkaError:
            complain(_text(sending_back.done, options))  # What was done was done.
            raise
    return done, stop.code if done.interrupted else 0


def _facts(done: Redriven, options: RedriveOptions) -> dict[str, Any]:
    return {
        "sent": done.sent,
        "left": done.left,
        "without_headers": done.without_headers,
        "dry_run": options.dry_run,
        "interrupted": done.interrupted,
    }


def _text(done: Redriven, options: RedriveOptions) -> str:
    verb = "would send" if options.dry_run else "sent"
    lines = [
        f"{verb} {count} records back to {target}" for target, count in sorted(done.sent.items())
    ] or [f"{verb} nothing back"]
    if done.without_headers:
        lines.append(f"{done.without_headers} of them without their headers, which are gone")
    lines += [f"left {count}: {WHY_LEFT[why]}" for why, count in sorted(done.left.items())]
    if done.interrupted:
        lines.append("interrupted; the same command goes on")
    return "\n".join(lines)
