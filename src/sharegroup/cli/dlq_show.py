"""``sharegroup dlq show``: single letters, with everything that is known of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from sharegroup.cli.asking import Access, cluster_options, json_option
from sharegroup.cli.dlq_options import (
    letter_row,
    moment_text,
    redriven_option,
    selection_options,
    with_queue,
)
from sharegroup.cli.naming import naming_one
from sharegroup.cli.output import printable
from sharegroup.worker.dead_letters.letter import Letter
from sharegroup.worker.dead_letters.queue import DeadLetterQueue
from sharegroup.worker.dead_letters.selection import Selection
from sharegroup.worker.decisions.reasons import REASONS

WIDTH = 10


@click.command("show")
@naming_one("topic")
@selection_options
@redriven_option
@click.option(
    "--limit", type=click.IntRange(1), default=1, show_default=True, help="Up to so many."
)
@cluster_options
@json_option
def command(*, topic: str, selection: Selection, limit: int, access: Access, as_json: bool) -> int:
    """Print letters: the record, why it is here, its attempts, the traceback.

    Where a broker's letter lacks its record, the record is looked for in its own topic.  Exit
    code 1: none matches.
    """

    async def letters(queue: DeadLetterQueue) -> list[tuple[Letter, bool]]:
        found: list[tuple[Letter, bool]] = []
        async for chunk in queue.chunks(selection, complete=True):
            found += [(one, one.offset in chunk.redriven) for one in chunk.letters]
            if len(found) > limit:
                break
        return found

    matching = with_queue(access, topic, letters)
    found = matching[:limit]
    if as_json:
        rows = [letter_row(letter, redriven=redriven) for letter, redriven in found]
        click.echo(json.dumps(rows, indent=2))
    elif found:
        click.echo("\n\n".join("\n".join(_lines(*one)) for one in found))
        if len(matching) > limit:
            click.echo(f"More match than the {limit} shown; see --limit.", err=True)
    else:
        click.echo("None matches.")
    return 0 if found else 1


def _lines(letter: Letter, redriven: bool) -> Iterator[str]:
    death, story = letter.death, letter.story
    yield f"{letter.topic} {letter.partition}:{letter.offset}  {moment_text(letter.timestamp_ms)}"
    yield _line("reason", f"{death.reason}: {REASONS.get(death.reason, '')}")
    if death.error_class:
        yield _line("error", f"{death.error_class}: {death.error_message}")
    elif death.message:
        yield _line("message", death.message)
    if story.origin is not None:
        place = story.origin
        when = "" if place.timestamp_ms < 0 else f"  {moment_text(place.timestamp_ms)}"
        yield _line("record", f"{place.topic} {place.partition}:{place.offset}{when}")
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
    for one in story.attempts:
        error = f"{one.error}: {one.message}"
        yield _line("", f"{one.number}.  {moment_text(one.at_ms)}  {error}")
    yield from _record(letter)
    if death.traceback:
        yield ""
        yield from (printable(line) for line in death.traceback.splitlines())


def _record(letter: Letter) -> Iterator[str]:
    if letter.lacks_its_record and not letter.has_payload:
        why = f" ({letter.death.not_copied})" if letter.death.not_copied else ""
        yield _line("value", f"not in the letter, and gone from its topic{why}")
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
