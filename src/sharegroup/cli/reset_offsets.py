"""``sharegroup groups reset-offsets``: let a share group start elsewhere.

Two questions have no default, as in Kafka's own tool: where to, and whether to do it or only
to show it.  A reset that was meant as a look is not undone.  A plan that was exported can be
looked at, edited, kept, and carried out later with ``--from-file``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from sharegroup.cli.asking import Access, ask, cluster_options, json_option, refuse_errors
from sharegroup.cli.group_errors import explained
from sharegroup.cli.naming import complete_topics, naming_one
from sharegroup.cli.output import Listing, print_listing
from sharegroup.cli.reset_plans import (
    csv_text,
    parse_duration,
    parse_moment,
    parse_partitions,
    read_plan,
)
from sharegroup.client.admin import AdminClient
from sharegroup.client.offset_resets import (
    ByDuration,
    FromPlan,
    OffsetChange,
    Plan,
    Scenario,
    ShiftBy,
    ToCurrent,
    ToDatetime,
    ToEarliest,
    ToLatest,
    ToOffset,
    new_offsets,
)
from sharegroup.errors import KafkaError

SCENARIOS: Mapping[str, Callable[[Any], Scenario]] = {
    "to_earliest": lambda _: ToEarliest(),
    "to_latest": lambda _: ToLatest(),
    "to_current": lambda _: ToCurrent(),
    "to_offset": ToOffset,
    "to_datetime": lambda text: ToDatetime(parse_moment(text)),
    "by_duration": lambda text: ByDuration(parse_duration(text)),
    "shift_by": ShiftBy,
    "from_file": lambda path: FromPlan(read_plan(path)),
}
"""The options of which exactly one says where to, and what each means."""


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
@click.option("--to-earliest", is_flag=True, help="The first record there is.")
@click.option("--to-latest", is_flag=True, help="Only what is produced from now on.")
@click.option(
    "--to-current",
    is_flag=True,
    help="Where it starts now; all behind that comes again.",
)
@click.option(
    "--to-offset",
    type=click.IntRange(0),
    metavar="OFFSET",
    help="This one, or the nearest there is.",
)
@click.option(
    "--to-datetime",
    metavar="YYYY-MM-DDThh:mm:ss[.sss][Z]",
    help="What was produced from then on; UTC if not said.",
)
@click.option(
    "--by-duration",
    metavar="PnDTnHnMnS",
    help="What was produced so long ago and since, as PT2H or P1DT12H.",
)
@click.option(
    "--shift-by",
    type=int,
    metavar="COUNT",
    help="So many on from where it starts now; back if below 0.",
)
@click.option(
    "--from-file",
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
    scopes = [options[name] for name in ("topics", "all_topics", "from_file") if options[name]]
    if len(scopes) != 1:
        raise click.UsageError("say one of --topic, --all-topics and --from-file")
    if options["dry_run"] == options["execute"]:
        raise click.UsageError("say one of --dry-run and --execute")
    if options["export"] and as_json:
        raise click.UsageError("say one of --export and --json")
    scenario = _scenario(options)
    partitions = parse_partitions(options["topics"]) or None

    async def run(admin: AdminClient) -> Plan:
        try:
            plan = await admin.reset_group_offsets(
                group, scenario, partitions=partitions, dry_run=True
            )
        except KafkaError as error:
            raise await explained(admin, group, error) from error
        refuse_errors(plan)
        if options["execute"]:
            # What was found good, no other: a plan that fails in part is not carried out in part.
            done = await admin.reset_group_offsets(group, FromPlan(new_offsets(plan)))
            refuse_errors(done)
        return plan

    plan = ask(access, run)
    if options["export"]:
        click.echo(csv_text(new_offsets(plan)), nl=False)
    else:
        print_listing(_listing(group, plan), as_json=as_json)


def _scenario(options: Mapping[str, Any]) -> Scenario:
    """Where to; exactly one scenario must have been said."""
    # By identity: an offset of 0 is said, though it equals False.
    said = [name for name in SCENARIOS if not any(options[name] is no for no in (None, False))]
    if len(said) != 1:
        *names, last = (f"--{name.replace('_', '-')}" for name in SCENARIOS)
        raise click.UsageError(f"say one of {', '.join(names)} and {last}")
    return SCENARIOS[said[0]](options[said[0]])


def _listing(group: str, plan: Plan) -> Listing:
    rows = [
        {
            "group": group,
            "topic": topic,
            "partition": partition,
            "old_offset": change.old_offset,
            "new_offset": change.new_offset,
        }
        for (topic, partition), change in sorted(plan.items(), key=lambda item: item[0])
        if isinstance(change, OffsetChange)
    ]
    columns = ("group", "topic", "partition", "new_offset")
    return Listing(rows, columns, f"Group {group} has no offsets to reset.")
