"""Common parts of the verbs of ``sharegroup dlq``: options that select letters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import TypeVar

import click

from sharegroup.cli.common.cluster_access import Access, telling_errors
from sharegroup.cli.common.log_positions import moment_ms
from sharegroup.cli.common.options import PARTITION_MAX, gathered, is_number
from sharegroup.cli.common.progress import showing_progress
from sharegroup.cli.common.running import lacks_broker, telling_waits
from sharegroup.dead_letters.expression import Expression, ExpressionError
from sharegroup.dead_letters.queue import DeadLetterQueue
from sharegroup.dead_letters.reasons import REASONS
from sharegroup.dead_letters.selection import Selection
from sharegroup.ids import OFFSET_MAX
from sharegroup.record_documents import rfc3339

T = TypeVar("T")


def _moment(_: click.Context, option: click.Parameter, text: str | None) -> int | None:
    return moment_ms(text, option.opts[0])


def _key(_: click.Context, __: click.Parameter, text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _headers(
    _: click.Context, __: click.Parameter, texts: tuple[str, ...]
) -> tuple[tuple[str, bytes | None], ...]:
    parts = (text.partition("=") for text in texts)
    return tuple((name, value.encode() if separator else None) for name, separator, value in parts)


def _expression(_: click.Context, __: click.Parameter, text: str | None) -> Expression | None:
    try:
        return None if text is None else Expression(text)
    except ExpressionError as error:
        raise click.BadParameter(str(error), param_hint="--where") from error


def _places(
    _: click.Context, __: click.Parameter, texts: tuple[str, ...]
) -> frozenset[tuple[int, int]]:
    return frozenset(map(_place, texts))


def _place(text: str) -> tuple[int, int]:
    partition, _, offset = text.partition(":")
    if not (is_number(partition, PARTITION_MAX) and is_number(offset, OFFSET_MAX)):
        raise click.BadParameter(f"{text!r}: expected PARTITION:OFFSET", param_hint="--at")
    return int(partition), int(offset)


_SELECTING = (
    click.option(
        "--error-class",
        metavar="CLASS",
        help="Class of the exception: its name, its name with the module, or a pattern like "
        "psycopg.*.",
    ),
    click.option(
        "--reason",
        type=click.Choice(list(map(str, REASONS))),
        help="Reason for which the record became a dead letter.",
    ),
    click.option("--group", metavar="GROUP", help="Group that could not process the record."),
    click.option("--handler", metavar="NAME", help="Name of the handler, or a pattern."),
    click.option(
        "--since",
        "since_ms",
        metavar="WHEN",
        callback=_moment,
        help="Only dead letters written at this time or later; '2h' means 2 hours ago.",
    ),
    click.option(
        "--until",
        "until_ms",
        metavar="WHEN",
        callback=_moment,
        help="Only dead letters written before this time.",
    ),
    click.option("--key", metavar="TEXT", callback=_key, help="Key of the record."),
    click.option(
        "--header",
        "headers",
        metavar="NAME[=VALUE]",
        multiple=True,
        callback=_headers,
        help="Header of the dead letter.",
    ),
    click.option(
        "--where",
        metavar="EXPR",
        callback=_expression,
        help="Condition on the JSON value of the record: total < 0 and customer.id == 7.",
    ),
    click.option(
        "--at",
        "places",
        metavar="PARTITION:OFFSET",
        multiple=True,
        callback=_places,
        help="Position of one dead letter; can be repeated.",
    ),
)
"""Options that are the fields of a `Selection`."""

redrive_selection_options = gathered("selection", Selection, *_SELECTING)
"""Adds the options that select letters to a verb, which is called with ``selection``."""

selection_options = gathered(
    "selection",
    Selection,
    *_SELECTING,
    click.option(
        "--redriven/--not-redriven",
        default=None,
        help="Only dead letters that were redriven before, or only the others.",
    ),
)
"""The same with ``--redriven``."""


def with_queue(
    access: Access,
    topic: str,
    work: Callable[[DeadLetterQueue], Awaitable[T]],
    *,
    shows_progress: bool = True,
) -> T:
    """Run ``work`` on the dead-letter queue of a topic; errors become one line.

    ``shows_progress`` must be False if the work prints on a terminal meanwhile.
    """
    with telling_errors(access):
        return asyncio.run(on_queue(access, topic, work, shows_progress=shows_progress))


async def on_queue(
    access: Access,
    topic: str,
    work: Callable[[DeadLetterQueue], Awaitable[T]],
    *,
    shows_progress: bool,
    tell: Callable[[str], None] | None = None,
) -> T:
    """Return the result of ``work`` on a new dead-letter queue, which has the letters until now.

    ``tell`` shows on a terminal that no broker answers; None: as a line on standard error.
    """
    queue = DeadLetterQueue(topic, **access.client_options())
    async with (
        telling_waits(access.bootstrap_servers, lambda: lacks_queue_broker(queue), tell),
        (
            showing_progress(f"reading {topic}", lambda: received_bytes(queue), unit="bytes")
            if shows_progress
            else nullcontext()
        ),
        queue,
    ):
        return await work(queue)


def lacks_queue_broker(queue: DeadLetterQueue) -> bool:
    """Whether no broker answers the client that reads the letters."""
    return lacks_broker(queue.cluster.metrics.read())


def received_bytes(queue: DeadLetterQueue) -> float:
    """Return the number of bytes that were received so far, letters and all other responses."""
    groups = queue.cluster.metrics.read().values()
    return sum(group.get("incoming-byte-total", 0) for group in groups)


def moment_text(milliseconds: int) -> str:
    """Format a timestamp for people; a value outside the dates stays a number."""
    try:
        return rfc3339(milliseconds)
    except OverflowError:
        return f"{milliseconds} ms"
