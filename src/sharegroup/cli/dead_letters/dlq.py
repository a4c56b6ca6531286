"""``sharegroup dlq``: inspect, export, redrive and purge dead letters."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

import click

from sharegroup.cli.common.cluster_access import (
    Access,
    Form,
    UnreadableBatches,
    cluster_options,
    json_option,
    listing_options,
    show as show_listing,
    telling_errors,
    unreadable_text,
)
from sharegroup.cli.common.name_arguments import naming_one
from sharegroup.cli.common.output import (
    Listing,
    complain,
    counted,
    plural,
    print_listing,
    printable,
)
from sharegroup.cli.common.tables import leaves_out
from sharegroup.cli.common.verb_groups import VerbGroup
from sharegroup.cli.common.watch import view_of, watch
from sharegroup.cli.dead_letters import dlq_purge, dlq_redrive
from sharegroup.cli.dead_letters.dlq_options import (
    moment_text,
    on_queue,
    selection_options,
    with_queue,
)
from sharegroup.cli.dead_letters.dlq_topics import dead_letter_topics
from sharegroup.dead_letters.letter import Letter
from sharegroup.dead_letters.letter_documents import exported_document, letter_document
from sharegroup.dead_letters.queue import DeadLetterQueue, Deaths, LetterKind, summary
from sharegroup.dead_letters.reasons import REASONS
from sharegroup.dead_letters.selection import Selection
from sharegroup.errors import CorruptMessage, KafkaError
from sharegroup.record_documents import json_line

if TYPE_CHECKING:
    # Imported for its type alone, as in `cluster_access`.
    from sharegroup.client.fetch.record_reading import PartitionRange

SPARE = ("redriven", "handler")
UNREADABLE_SHOWN_MAX = 10
"""The number of unreadable batches that --watch shows at each interval."""
WIDTH = 10
"""The width of the names before the lines of `show`."""


@click.group("dlq", cls=VerbGroup)
def command() -> None:
    """List, show, export, redrive and purge dead letters.

    TOPIC is the dead-letter topic of a worker or a broker.  Reading locks and changes nothing.
    """


@command.command("list")
@naming_one("topic", required=False)
@selection_options
@cluster_options
@listing_options
@leaves_out(SPARE)
def list_(*, topic: str | None, selection: Selection, access: Access, form: Form) -> int:
    """Count dead letters by group, handler, reason and error; without TOPIC, by topic.

    Without TOPIC all dead-letter topics are listed: those whose settings or names say so (the
    default of workers is GROUP.dead), with the number of their offsets.

    In --json are also the times of the first and last letter, the modules of errors, and
    how many letters are claimed: a producer may have written their origin, as in `dlq show`.
    --watch with TOPIC reads all its letters at each interval.
    """
    if topic is None:
        if selection != Selection():
            raise click.UsageError("options that select dead letters need a topic")
        show_listing(access, form, dead_letter_topics)
        return 0
    every_s = form.watch_s
    if every_s is not None:  # Until Ctrl-C.
        _watch_deaths(access, topic, selection, every_s, as_json=form.as_json)
    unreadable = UnreadableBatches()
    deaths_by_kind = with_queue(
        access, topic, lambda queue: summary(queue, selection, unreadable=unreadable)
    )
    listing = _deaths_listing(deaths_by_kind, selection, has_modules=form.as_json)
    print_listing(listing, as_json=form.as_json)
    return unreadable.exit_code


def _watch_deaths(
    access: Access, topic: str, selection: Selection, every_s: float, *, as_json: bool
) -> NoReturn:
    view = view_of(every_s, as_json=as_json)
    has_modules = as_json or not sys.stdout.isatty()

    async def take(queue: DeadLetterQueue) -> Listing:
        failures: list[KafkaError] = []

        def keep(batch: PartitionRange, error: KafkaError) -> None:
            if len(failures) < UNREADABLE_SHOWN_MAX:
                failures.append(CorruptMessage(unreadable_text(batch, error)))

        deaths_by_kind = await summary(queue, selection, unreadable=keep)
        listing = _deaths_listing(deaths_by_kind, selection, has_modules=has_modules)
        return replace(listing, failures=failures)

    def listing() -> Awaitable[Listing]:
        return on_queue(access, topic, take, shows_progress=False, tell=view.note)

    with telling_errors(access):
        asyncio.run(watch(view, listing, every_s))


def _deaths_listing(
    deaths_by_kind: Mapping[LetterKind, Deaths], selection: Selection, *, has_modules: bool
) -> Listing:
    """Return the rows of `dlq list`, with the modules of errors or without.

    Without what only JSON has, the table has up to 80 columns with usual names.
    """
    rows = [
        {
            "group": kind.group or None,
            "handler": kind.handler or None,
            "reason": kind.reason,
            "error_class": (kind.error_class if has_modules else _last_name(kind.error_class))
            or None,
            "letters": deaths.letters,
            "claimed": deaths.claimed,
            "redriven": deaths.redriven,
            "first_seen": moment_text(deaths.first_ms),
            "last_seen": moment_text(deaths.last_ms),
            "last_message": deaths.last_message or None,
        }
        for kind, deaths in deaths_by_kind.items()
    ]
    columns = ("group", "handler", "reason", "error_class", "letters", "redriven")
    nothing = "There are no dead letters." if selection == Selection() else "None matches."
    return Listing(rows, columns, nothing, spare=SPARE)


def _last_name(error_class: object) -> str:
    return str(error_class or "").rpartition(".")[2]


@command.command("show")
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
def show(*, topic: str, selection: Selection, limit: int, access: Access, as_json: bool) -> int:
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
        rows = [letter_document(letter, redriven=redriven) for letter, redriven in shown]
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
        f"{story.failures} failed, {_known(death.delivery_count)} "
        f"{plural(death.delivery_count or 0, 'delivery')} of the last, "
        f"sent back {counted(story.redrives, 'time')} before"
        f"{', and once more from here' * redriven}",
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


command.add_command(dlq_redrive.command)


@command.command("export")
@naming_one("topic")
@selection_options
@click.option("--limit", type=click.IntRange(1), help="Maximum number of dead letters.")
@click.option(
    "--output", type=click.File("wb"), default="-", help="Output file.  [default: standard output]"
)
@cluster_options
def export_(
    *, topic: str, selection: Selection, limit: int | None, output: BinaryIO, access: Access
) -> int:
    """Write each dead letter with all its headers as one line of JSON.

    `sharegroup produce --json` reads these lines; key, value and headers stay the same bytes.
    The reason and the history of each dead letter are in the field "dead".
    """

    unreadable = UnreadableBatches()

    async def export(queue: DeadLetterQueue) -> int:
        count = 0
        async for chunk in queue.chunks(selection, complete=True, unreadable=unreadable):
            for letter in chunk.letters:
                if count == limit:
                    return count
                document = exported_document(letter, redriven=letter.offset in chunk.redriven)
                output.write(json_line(document))
                count += 1
        return count

    count = with_queue(access, topic, export, shows_progress=not output.isatty())
    output.flush()
    if output is not sys.stdout.buffer:
        complain(f"wrote {counted(count, 'dead letter')}")
    return unreadable.exit_code


command.add_command(dlq_purge.command)
