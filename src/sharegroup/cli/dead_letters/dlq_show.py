"""``sharegroup dlq show``: prints single dead letters with all their details."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from sharegroup.cli.common.cluster_access import (
    Access,
    UnreadableBatches,
    cluster_options,
    json_option,
)
from sharegroup.cli.common.name_arguments import naming_one
from sharegroup.cli.common.output import printable
from sharegroup.cli.dead_letters.dlq_options import (
    letter_row,
    moment_text,
    selection_options,
    with_queue,
)
from sharegroup.dead_letters.letter import Letter
from sharegroup.dead_letters.queue import DeadLetterQueue
from sharegroup.dead_letters.reasons import REASONS
from sharegroup.dead_letters.selection import Selection

WIDTH = 10


@click.command("show")
@naming_one("topic")
@selection_options
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Maximum number of dead letters.",
)
@cluster_options
@json_option
def command(*, topic: str, selection: Selection, limit: int, access: Access, as_json: bool) -> int:
    """Print dead letters with their record, reason, attempts and traceback.

    If a broker's dead letter does not contain its record, the record is read from its own topic.
    Exit code 1: no dead letter matches, or a batch of letters cannot be read.
    """

    unreadable = UnreadableBatches()

    async def letters(queue: DeadLetterQueue) -> list[tuple[Letter, bool]]:
        letters_found: list[tuple[Letter, bool]] = []
        async for chunk in queue.chunks(selection, complete=True, unreadable=unreadable):
            letters_found += [(letter, letter.offset in chunk.redriven) for letter in chunk.letters]
            # One more than is shown, to tell that there are more.
            if len(letters_found) > limit:
                break
        return letters_found

    matching = with_queue(access, topic, letters)
    shown = matching[:limit]
    if as_json:
        rows = [letter_row(letter, redriven=redriven) for letter, redriven in shown]
        click.echo(json.dumps(rows, indent=2))
    elif shown:
        click.echo("\n\n".join("\n".join(_lines(*marked_letter)) for marked_letter in shown))
        if len(matching) > limit:
            click.echo(f"More dead letters match than the {limit} shown; see --limit.", err=True)
    else:
        click.echo("None matches.")
    return unreadable.exit_code if shown else 1


def _lines(letter: Letter, redriven: bool) -> Iterator[str]:
    death, story = letter.death, letter.story
    yield f"{letter.topic} {letter.partition}:{letter.offset}  {moment_text(letter.timestamp_ms)}"
    yield _line("reason", f"{death.reason}: {REASONS[death.reason]}")
    if death.error_class:
        yield _line("error", f"{death.error_class}: {death.error_message}")
    elif death.message:
        yield _line("message", death.message)
    if not letter.is_vouched:
        yield _line("claimed", "each producer of this topic can write such a dead letter")
    elif letter.is_origin_claimed:
        yield _line("claimed", "the record and its attempts are from the headers of a producer")
    if story.origin is not None:
        origin = story.origin
        timestamp_text = "" if origin.timestamp_ms < 0 else f"  {moment_text(origin.timestamp_ms)}"
        yield _line("record", f"{origin.topic} {origin.partition}:{origin.offset}{timestamp_text}")
    for name, text in (
        ("group", death.group),
        ("handler", death.handler),
        ("member", death.member),
    ):
        if text:
            yield _line(name, text)
    yield _line(
        "tried",
        f"{story.failures} failed, {_known(death.delivery_count)} deliveries of the last, "
        f"sent back {story.redrives} times before{', and once more from here' * redriven}",
    )
    for attempt in story.attempts:
        error = f"{attempt.error}: {attempt.message}"
        yield _line("", f"{attempt.number}.  {moment_text(attempt.at_ms)}  {error}")
    yield from _record(letter)
    if death.traceback:
        yield ""
        # At the first column a traceback could contain what looks like another line of the letter.
        yield from (printable(f"  {line}") for line in death.traceback.splitlines())


def _record(letter: Letter) -> Iterator[str]:
    if letter.lacks_its_record and not letter.has_payload:
        not_copied_text = f" ({letter.death.not_copied})" if letter.death.not_copied else ""
        yield _line("value", f"not in the dead letter, and no longer in its topic{not_copied_text}")
        return
    yield _line("key", _text(letter.key))
    yield _line("value", _text(letter.value))
    for name, content in letter.headers:
        yield _line("header", f"{name}={_text(content)}")


def _line(name: str, text: str) -> str:
    return printable(f"{name:<{WIDTH}}{text}".rstrip())


def _text(content: bytes | None) -> str:
    return "null" if content is None else content.decode(errors="backslashreplace")


def _known(number: Any) -> str:
    return "unknown" if number is None else str(number)
