"""``sharegroup dlq purge``: delete dead letters."""

from __future__ import annotations

from collections.abc import Iterable

import click

from sharegroup.cli.cluster_access import Access, cluster_options, json_option
from sharegroup.cli.dlq_options import redriven_option, selection_options, with_queue
from sharegroup.cli.name_arguments import naming_one
from sharegroup.cli.output import Listing, complain, print_listing
from sharegroup.worker.dead_letters.purge import Purge, plan_purge, purge
from sharegroup.worker.dead_letters.queue import DeadLetterQueue
from sharegroup.worker.dead_letters.selection import Selection


@click.command("purge")
@naming_one("topic")
@selection_options
@redriven_option
@click.option("--all", "everything", is_flag=True, help="All that is there now.")
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@click.option("--execute", is_flag=True, help="Do it.")
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
    """Delete the oldest letters, up to the first one that does not match.

    A log can only be cut at its beginning. So matching letters behind one that does not match
    are kept, and counted in the column BEHIND.

    \b
        sharegroup dlq purge orders.dead --redriven --execute
        sharegroup dlq purge orders.dead --until 30d --dry-run
    """
    if everything != selection.is_everything:
        raise click.UsageError("say which letters, or --all")
    if dry_run == execute:
        raise click.UsageError("say one of --dry-run and --execute")

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
            f"{behind} letters that match are not deleted, because they lie behind letters that "
            "do not match"
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
    return Listing(rows, columns, "There is no partition to delete from.")
