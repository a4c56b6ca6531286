"""``sharegroup dlq purge``: delete dead letters."""

from __future__ import annotations

from collections.abc import Iterable

import click

from sharegroup.cli.common.cluster_access import Access, cluster_options, json_option
from sharegroup.cli.common.name_arguments import naming_one
from sharegroup.cli.common.output import Listing, complain, print_listing
from sharegroup.cli.dead_letters.dlq_options import redriven_option, selection_options, with_queue
from sharegroup.dead_letters.purge import Purge, plan_purge, purge
from sharegroup.dead_letters.queue import DeadLetterQueue
from sharegroup.dead_letters.selection import Selection


@click.command("purge")
@naming_one("topic")
@selection_options
@redriven_option
@click.option("--all", "everything", is_flag=True, help="Delete all present dead letters.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, without deleting it.")
@click.option("--execute", is_flag=True, help="Delete the dead letters.")
@cluster_options
@json_option
def command(
    *,
    topic: str,
    selection: Selection,
    everything: bool,
    dry_run: bool,
    execute: bool,
    access: Access,
    as_json: bool,
) -> None:
    """Delete the oldest dead letters, up to the first one that does not match.

    Records can only be deleted at the start of a log.  Matching dead letters after one that does
    not match are kept, and counted in the column BEHIND.

    \b
        sharegroup dlq purge orders.dead --redriven --execute
        sharegroup dlq purge orders.dead --until 30d --dry-run
    """
    if everything != selection.is_everything:
        raise click.UsageError("give options that select dead letters, or --all")
    if dry_run == execute:
        raise click.UsageError("give one of --dry-run and --execute")

    async def work(queue: DeadLetterQueue) -> list[Purge]:
        plan = await plan_purge(queue, selection)
        if execute:
            await purge(queue, plan)
        return plan

    plan = with_queue(access, topic, work)
    print_listing(_listing(topic, plan), as_json=as_json)
    behind = sum(partition_purge.behind for partition_purge in plan)
    if behind and not as_json:
        complain(
            f"{behind} matching dead letters are not deleted, because they are behind dead letters "
            "that do not match"
        )


def _listing(topic: str, plan: Iterable[Purge]) -> Listing:
    rows = [
        {
            "topic": topic,
            "partition": partition_purge.partition,
            "deleted": partition_purge.letters,
            "before_offset": partition_purge.before,
            "behind": partition_purge.behind,
        }
        for partition_purge in plan
    ]
    columns = ("topic", "partition", "deleted", "before_offset", "behind")
    return Listing(rows, columns, "There are no partitions to delete from.")
