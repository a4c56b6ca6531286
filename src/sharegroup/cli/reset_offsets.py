"""``sharegroup groups reset-offsets``: let a share group start elsewhere.

Two questions have no default, as in Kafka's own tool: where to, and whether to do it or only
to show it.  A reset that was meant as a look is not undone.  A plan that was exported can be
looked at, edited, kept, and carried out later with ``--from-file``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sharegroup.cli.asking import Access, ask, cluster_options, json_option, refuse_errors
from sharegroup.cli.group_errors import explained, refuse_unless_empty
from sharegroup.cli.naming import complete_topics, naming_one
from sharegroup.cli.new_offsets import (
    Offsets,
    Target,
    all_partitions,
    csv_text,
    duration_ms,
    moment_ms,
    named_partitions,
    new_offsets,
    read_plan,
)
from sharegroup.cli.output import Listing, in_colour
from sharegroup.client.admin import AdminClient
from sharegroup.errors import KafkaError

SCENARIOS = ("earliest", "latest", "current", "offset", "datetime", "duration", "file")
OPTIONS = (
    "--to-earliest, --to-latest, --to-current, --to-offset, --to-datetime, --by-duration "
    "and --from-file"
)


@click.command("reset-offsets")
@naming_one("group")
@click.option(
    "--topic",
    "topics",
    metavar="TOPIC[:0,1,...]",
    multiple=True,
    shell_complete=complete_topics,
    help="What to reset.",
)
@click.option("--all-topics", is_flag=True, help="All that the group has offsets of.")
@click.option("--to-earliest", "earliest", is_flag=True, help="The first record there is.")
@click.option("--to-latest", "latest", is_flag=True, help="Only what is produced from now on.")
@click.option(
    "--to-current",
    "current",
    is_flag=True,
    help="Where it starts now; all behind that comes again.",
)
@click.option(
    "--to-offset",
    "offset",
    type=click.IntRange(0),
    metavar="OFFSET",
    help="This one, or the nearest there is.",
)
@click.option(
    "--to-datetime",
    "datetime",
    metavar="YYYY-MM-DDThh:mm:ss[.sss][Z]",
    help="What was produced from then on; UTC if not said.",
)
@click.option(
    "--by-duration",
    "duration",
    metavar="PnDTnHnMnS",
    help="What was produced so long ago and since, as PT2H or P1DT12H.",
)
@click.option(
    "--from-file",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Lines of topic,partition,offset, as --export prints them.",
)
@click.option("--export", is_flag=True, help="Print lines of topic,partition,offset.")
@click.option("--dry-run", is_flag=True, help="Only show what would happen.")
@click.option("--execute", is_flag=True, help="Do it.")
@cluster_options
@json_option
def command(*, group: str, access: Access, as_json: bool, **options: Any) -> None:
    """Let a group start elsewhere.

    The group must have no members; it need not exist yet.  Offsets that lie outside of a
    partition's log are moved to its nearer end.
    """
    if [bool(options["topics"]), options["all_topics"], bool(options["file"])].count(True) != 1:
        raise click.UsageError("say one of --topic, --all-topics and --from-file")
    if options["dry_run"] == options["execute"]:
        raise click.UsageError("say one of --dry-run and --execute")
    if options["export"] and as_json:
        raise click.UsageError("say one of --export and --json")
    target = _target(options)

    async def run(admin: AdminClient) -> Offsets:
        await refuse_unless_empty(admin, group)
        if target.kind == "plan":
            partitions = list(target.plan)
        elif options["topics"]:
            partitions = await named_partitions(admin, options["topics"])
        else:
            partitions = await all_partitions(admin, group)
        offsets = await new_offsets(admin, group, partitions, target)
        if options["execute"] and offsets:
            try:
                refuse_errors(await admin.alter_share_group_offsets(group, offsets))
            except KafkaError as error:
                raise await explained(admin, group, error) from error
        return offsets

    offsets = ask(access, run)
    if options["export"]:
        click.echo(csv_text(offsets), nl=False)
    else:
        listing = _listing(group, offsets)
        click.echo(listing.json() if as_json else listing.text(coloured=in_colour()))


def _target(options: dict[str, Any]) -> Target:
    """Where to; exactly one scenario must have been said."""
    # By identity: an offset of 0 is said, though it equals False.
    said = [name for name in SCENARIOS if not any(options[name] is no for no in (None, False))]
    if len(said) != 1:
        raise click.UsageError(f"say one of {OPTIONS}")
    (scenario,) = said
    value = options[scenario]
    match scenario:
        case "offset":
            return Target("offset", value)
        case "datetime":
            return Target("time", moment_ms(value))
        case "duration":
            return Target("ago", duration_ms(value))
        case "file":
            return Target("plan", plan=read_plan(value))
        case "earliest" | "latest" | "current":
            return Target(scenario)
    raise AssertionError(f"no such scenario: {scenario}")


def _listing(group: str, offsets: Offsets) -> Listing:
    rows = [
        {"group": group, "topic": topic, "partition": partition, "new_offset": offset}
        for (topic, partition), offset in sorted(offsets.items())
    ]
    columns = ("group", "topic", "partition", "new_offset")
    return Listing(rows, columns, f"Group {group} has no offsets to reset.")
