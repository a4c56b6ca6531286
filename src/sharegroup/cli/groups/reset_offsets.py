"""``sharegroup groups reset-offsets``: changes the offsets of a share group or consumer group.

As in Kafka's tool, two options have no default: the new offsets, and ``--execute`` or
``--dry-run``, because an unintended reset cannot be undone. An exported plan can be read,
edited, kept, and executed later with ``--from-file``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import click

from sharegroup.cli.common.cluster_access import (
    Access,
    ask,
    cluster_options,
    json_option,
    line_of,
    refuse_errors,
)
from sharegroup.cli.common.log_positions import (
    csv_text,
    parse_duration,
    parse_moment,
    parse_partitions,
    read_plan,
)
from sharegroup.cli.common.name_arguments import complete_topics, naming_one
from sharegroup.cli.common.output import Listing, complain, print_listing
from sharegroup.cli.common.progress import showing_progress
from sharegroup.cli.groups.group_rows import SHARE_OR_CONSUMER, explained
from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.offset_resets import (
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
from sharegroup.client.records import TopicPartition
from sharegroup.errors import KafkaError
from sharegroup.protocol_enums import GroupType

STEP_PARTITIONS = 500
"""Number of partitions that one request resets."""

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
"""The options for the new offsets, with the scenario that each makes; exactly one is given."""


@click.command("reset-offsets")
@naming_one("group")
@click.option(
    "--topic",
    "topics",
    metavar="TOPIC[:0,1,...]",
    multiple=True,
    shell_complete=complete_topics,
    help="Topic, or partitions of a topic, to reset; can be repeated.",
)
@click.option(
    "--all-topics", is_flag=True, help="Reset all topics for which the group has offsets."
)
@click.option(
    "--type",
    "--group-type",
    "group_type",
    type=click.Choice([str(GroupType.SHARE), str(GroupType.CONSUMER)]),
    help="Type of a group that does not exist yet; a group of another type is refused.  "
    "[default: its own, or share]",
)
@click.option("--to-earliest", is_flag=True, help="Start at the first record in the log.")
@click.option("--to-latest", is_flag=True, help="Start at the end of the log.")
@click.option(
    "--to-current",
    is_flag=True,
    help="Keep the offset; all records from this offset on are delivered again.",
)
@click.option(
    "--to-offset",
    type=click.IntRange(0),
    metavar="OFFSET",
    help="Start at this offset, or at the nearest offset in the log.",
)
@click.option(
    "--to-datetime",
    metavar="YYYY-MM-DDThh:mm:ss[.sss][Z]",
    help="Start at the first record with this timestamp or later; UTC if no time zone is given.",
)
@click.option(
    "--by-duration",
    metavar="PnDTnHnMnS",
    help="Start at the first record that is not older than this, for example PT2H or P1DT12H.",
)
@click.option(
    "--shift-by",
    type=int,
    metavar="COUNT",
    help="Move the offset forward by COUNT, or backward if COUNT is negative.",
)
@click.option(
    "--from-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read lines of topic,partition,offset, as printed by --export.",
)
@click.option("--export", is_flag=True, help="Print lines of topic,partition,offset.")
@click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
@click.option("--execute", is_flag=True, help="Make the changes.")
@cluster_options
@json_option
def command(*, group: str, access: Access, as_json: bool, **options: Any) -> None:
    """Change the offsets of a group.

    These are the start offsets of a share group, or the committed offsets of a consumer group.  The
    group must have no members; it does not need to exist.  An offset outside of the log of a
    partition is replaced by the nearest offset in the log.
    """
    scopes = [options[name] for name in ("topics", "all_topics", "from_file") if options[name]]
    if len(scopes) != 1:
        raise click.UsageError("give one of --topic, --all-topics and --from-file")
    if options["dry_run"] == options["execute"]:
        raise click.UsageError("give one of --dry-run and --execute")
    if options["export"] and as_json:
        raise click.UsageError("give only one of --export and --json")
    scenario = _scenario(options)
    group_type: str | None = options["group_type"]
    partitions = parse_partitions(options["topics"]) or None
    results: Plan = {}

    async def run(admin: AdminClient) -> Plan:
        try:
            plan = await admin.reset_group_offsets(
                group, scenario, partitions=partitions, group_type=group_type, dry_run=True
            )
        except KafkaError as error:
            expected = SHARE_OR_CONSUMER if group_type is None else f"a {group_type} group"
            raise await explained(admin, group, error, expected=expected) from error
        refuse_errors(plan)
        if not options["execute"]:
            return plan
        await _carry_out(admin, group, new_offsets(plan), results, group_type)
        return results

    def show(plan: Plan) -> None:
        if options["export"]:
            click.echo(csv_text(new_offsets(plan)), nl=False)
        else:
            print_listing(_listing(group, plan), as_json=as_json)

    try:
        plan = ask(access, run)
    except (click.ClickException, KeyboardInterrupt):
        if results:
            show(results)  # They stay reset, whatever ended the command.
            for error in (error for error in results.values() if isinstance(error, KafkaError)):
                complain(line_of(error))
            complain(
                f"only these {len(new_offsets(results))} partitions are known to be reset; run the "
                "command again for the others"
            )
        raise
    show(plan)
    refuse_errors(plan)


async def _carry_out(
    admin: AdminClient,
    group: str,
    offsets: Mapping[TopicPartition, int],
    results: Plan,
    group_type: str | None,
) -> None:
    """Set the offsets of a plan that was checked, so that a plan with errors changes nothing.

    Many partitions are reset in steps, whose progress a terminal shows.  The result of each step is
    added to ``results``.
    """
    async with showing_progress(
        f"resetting {group}", lambda: len(results), total=lambda: len(offsets), unit="partitions"
    ):
        for start in range(0, len(offsets), STEP_PARTITIONS):
            step = dict(islice(offsets.items(), start, start + STEP_PARTITIONS))
            results |= await admin.reset_group_offsets(group, FromPlan(step), group_type=group_type)


def _scenario(options: Mapping[str, Any]) -> Scenario:
    """Return the scenario of the options; click.UsageError unless exactly one was given."""
    # Compares by identity, because a given offset of 0 equals False.
    given_names = [
        name for name in SCENARIOS if not any(options[name] is missing for missing in (None, False))
    ]
    if len(given_names) != 1:
        *names, last = (f"--{name.replace('_', '-')}" for name in SCENARIOS)
        raise click.UsageError(f"give one of {', '.join(names)} and {last}")
    return SCENARIOS[given_names[0]](options[given_names[0]])


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
