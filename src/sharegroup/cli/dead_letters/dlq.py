"""``sharegroup dlq``: inspect, export, redrive and purge dead letters."""

from __future__ import annotations

import click

from sharegroup.cli.common.cluster_access import Access, cluster_options, json_option
from sharegroup.cli.common.name_arguments import naming_one
from sharegroup.cli.common.output import Listing, print_listing
from sharegroup.cli.common.unreadable_batches import UnreadableBatches
from sharegroup.cli.dead_letters import dlq_export, dlq_purge, dlq_redrive, dlq_show
from sharegroup.cli.dead_letters.dlq_options import (
    moment_text,
    redriven_option,
    selection_options,
    with_queue,
)
from sharegroup.dead_letters.queue import summary
from sharegroup.dead_letters.selection import Selection


@click.group("dlq")
def command() -> None:
    """List, show, export, redrive and purge dead letters.

    TOPIC is the dead-letter topic of a worker or a broker.  Reading locks and changes nothing.
    """


@command.command("list")
@naming_one("topic")
@selection_options
@redriven_option
@cluster_options
@json_option
def list_(*, topic: str, selection: Selection, access: Access, as_json: bool) -> int:
    """Count dead letters by group, handler, reason and error.

    In --json are also the times of the first and last letter, the modules of errors, and
    how many letters are claimed: a producer may have written their origin, as in `dlq show`.
    """
    unreadable = UnreadableBatches()
    deaths_by_kind = with_queue(
        access, topic, lambda queue: summary(queue, selection, unreadable=unreadable)
    )
    rows = [
        {
            "group": kind.group or None,
            "handler": kind.handler or None,
            "reason": kind.reason,
            "error_class": kind.error_class or None,
            "letters": deaths.letters,
            "claimed": deaths.claimed,
            "redriven": deaths.redriven,
            "first_seen": moment_text(deaths.first_ms),
            "last_seen": moment_text(deaths.last_ms),
            "last_message": deaths.last_message or None,
        }
        for kind, deaths in deaths_by_kind.items()
    ]
    if not as_json:
        # Without what only JSON has, the table has up to 80 columns with usual names.
        rows = [row | {"error_class": _last_name(row["error_class"])} for row in rows]
    columns = ("group", "handler", "reason", "error_class", "letters", "redriven")
    nothing = "There are no dead letters." if selection == Selection() else "None matches."
    print_listing(Listing(rows, columns, nothing), as_json=as_json)
    return unreadable.exit_code


def _last_name(error_class: object) -> str:
    return str(error_class or "").rpartition(".")[2]


command.add_command(dlq_show.command)
command.add_command(dlq_export.command)
command.add_command(dlq_redrive.command)
command.add_command(dlq_purge.command)
