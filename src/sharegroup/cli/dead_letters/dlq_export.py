"""``sharegroup dlq export``: writes complete dead letters as lines of JSON."""

from __future__ import annotations

import sys
from typing import BinaryIO

import click

from sharegroup.cli.common.cluster_access import Access, cluster_options
from sharegroup.cli.common.name_arguments import naming_one
from sharegroup.cli.common.output import complain
from sharegroup.cli.common.unreadable_batches import UnreadableBatches
from sharegroup.cli.dead_letters.dlq_options import (
    letter_row,
    record_row,
    redriven_option,
    selection_options,
    with_queue,
)
from sharegroup.cli.records.formats.writing import as_json, json_line
from sharegroup.dead_letters.queue import DeadLetterQueue
from sharegroup.dead_letters.selection import Selection


@click.command("export")
@naming_one("topic")
@selection_options
@redriven_option
@click.option("--limit", type=click.IntRange(1), help="Maximum number of dead letters.")
@click.option(
    "--output", type=click.File("wb"), default="-", help="Output file.  [default: standard output]"
)
@cluster_options
def command(
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
                dead = letter_row(letter, redriven=letter.offset in chunk.redriven)
                document = as_json(record_row(letter, letter.all_headers))
                other_facts = {name: value for name, value in dead.items() if name not in document}
                output.write(json_line({**document, "dead": other_facts}))
                count += 1
        return count

    count = with_queue(access, topic, export, shows_progress=not output.isatty())
    output.flush()
    if output is not sys.stdout.buffer:
        complain(f"wrote {count} dead letters")
    return unreadable.exit_code
