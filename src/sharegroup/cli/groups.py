"""``sharegroup groups``: list, describe, reset and delete share groups.

The columns are those of Kafka's own ``kafka-share-groups.sh``, which people's scripts know.
"""

from __future__ import annotations

import click

from sharegroup.cli import reset_offsets
from sharegroup.cli.asking import (
    ask,
    bootstrap_option,
    json_option,
    naming_members,
    refuse_errors,
    timeout_option,
)
from sharegroup.cli.output import Row, done, listing
from sharegroup.client.admin import AdminClient
from sharegroup.client.admin_types import ShareGroupDescription, SharePartitionOffset
from sharegroup.errors import KafkaError

LONG = {
    "offsets": ("leader_epoch",),
    "members": ("member_epoch",),
    "state": ("group_epoch", "assignment_epoch"),
}
"""The columns that only ``--verbose`` shows; JSON always has them."""
COLUMNS = {
    "offsets": ("group", "topic", "partition", "leader_epoch", "start_offset", "lag"),
    "members": (
        *("group", "consumer_id", "host", "client_id", "partitions", "member_epoch"),
        "assignment",
    ),
    "state": ("group", "coordinator", "state", "group_epoch", "assignment_epoch", "members"),
}


@click.group("groups")
def command() -> None:
    """List, describe, reset and delete share groups."""


command.add_command(reset_offsets.command)


@command.command("list")
@click.option("--state", "states", metavar="STATE,...", help="Only groups in these states.")
@bootstrap_option
@timeout_option
@json_option
def list_(*, states: str | None, bootstrap: str, timeout_ms: int, as_json: bool) -> None:
    """Id and state of every share group."""
    wanted = [state.strip().capitalize() for state in states.split(",")] if states else []

    async def groups(admin: AdminClient) -> list[Row]:
        found = await admin.list_share_groups(states_filter=wanted)
        return [{"group": group.group_id, "state": group.state} for group in found]

    rows = ask(bootstrap, timeout_ms, groups)
    empty = "There are no share groups."
    listing(rows, columns=("group", "state"), as_json=as_json, empty=empty)


@command.command("describe")
@click.argument("group", nargs=-1)
@click.option("--all-groups", is_flag=True, help="Every share group.")
@click.option("--offsets", "view", flag_value="offsets", default=True, help="[default]")
@click.option("--members", "view", flag_value="members", help="Who is in it, with what.")
@click.option("--state", "view", flag_value="state", help="State and epochs.")
@click.option("--verbose", is_flag=True, help="Epochs as well.")
@bootstrap_option
@timeout_option
@json_option
def describe(  # One option each.
    *,
    group: tuple[str, ...],
    all_groups: bool,
    view: str,
    verbose: bool,
    bootstrap: str,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Where GROUP... stands in each partition, or its members, or its state."""
    if bool(group) == all_groups:
        raise click.UsageError("name groups, or give --all-groups")

    async def rows_of(admin: AdminClient) -> list[Row]:
        names = [one.group_id for one in await admin.list_share_groups()] if all_groups else group
        described = await admin.describe_share_groups(names)
        refuse_errors(described)
        groups = [one for one in described.values() if isinstance(one, ShareGroupDescription)]
        if view == "members":
            return _members(groups)
        if view == "state":
            return _states(groups)
        return await _offsets(admin, names)

    rows = ask(bootstrap, timeout_ms, rows_of)
    columns = [name for name in COLUMNS[view] if verbose or name not in LONG[view]]
    listing(rows, columns=columns, as_json=as_json, empty=f"There are no {view} to show.")


@command.command("delete")
@click.argument("group", nargs=-1, required=True)
@bootstrap_option
@timeout_option
@json_option
def delete(*, group: tuple[str, ...], bootstrap: str, timeout_ms: int, as_json: bool) -> None:
    """Delete GROUP..., which must have no members, and all that is known of its records."""

    async def run(admin: AdminClient) -> dict[str, KafkaError | None]:
        results = await admin.delete_share_groups(group)
        return {
            name: None if error is None else await naming_members(admin, name, error)
            for name, error in results.items()
        }

    results = ask(bootstrap, timeout_ms, run)
    deleted = [name for name, error in results.items() if error is None]
    if deleted:
        done(f"deleted group {', '.join(deleted)}", as_json=as_json, deleted=deleted)
    refuse_errors(results)


@command.command("delete-offsets")
@click.argument("group")
@click.option("--topic", "topics", multiple=True, required=True, help="Can be given repeatedly.")
@bootstrap_option
@timeout_option
@json_option
def delete_offsets(
    *, group: str, topics: tuple[str, ...], bootstrap: str, timeout_ms: int, as_json: bool
) -> None:
    """Forget where GROUP, which must have no members, stands in topics."""

    async def run(admin: AdminClient) -> dict[str, KafkaError | None]:
        try:
            return await admin.delete_share_group_offsets(group, topics)
        except KafkaError as error:
            raise await naming_members(admin, group, error) from error

    results = ask(bootstrap, timeout_ms, run)
    deleted = [topic for topic, error in results.items() if error is None]
    if deleted:
        text = f"group {group} forgot topic {', '.join(deleted)}"
        done(text, as_json=as_json, group=group, deleted=deleted)
    refuse_errors(results)


async def _offsets(admin: AdminClient, names: list[str] | tuple[str, ...]) -> list[Row]:
    results = await admin.list_share_group_offsets(dict.fromkeys(names))
    refuse_errors(results)
    rows: list[Row] = []
    for name, partitions in results.items():
        assert not isinstance(partitions, KafkaError)
        refuse_errors(partitions)
        rows += [
            {
                "group": name,
                "topic": where.topic,
                "partition": where.partition,
                "leader_epoch": found.leader_epoch,
                "start_offset": found.start_offset,
                "lag": found.lag,
            }
            for where, found in sorted(partitions.items())
            if isinstance(found, SharePartitionOffset)
        ]
    return rows


def _members(groups: list[ShareGroupDescription]) -> list[Row]:
    return [
        {
            "group": group.group_id,
            "consumer_id": member.member_id,
            "host": member.host,
            "client_id": member.client_id,
            "partitions": len(member.assignment),
            "member_epoch": member.member_epoch,
            "assignment": ",".join(f"{topic}:{number}" for topic, number in member.assignment),
        }
        for group in groups
        for member in group.members
    ]


def _states(groups: list[ShareGroupDescription]) -> list[Row]:
    return [
        {
            "group": group.group_id,
            "coordinator": group.coordinator_id,
            "state": group.state,
            "group_epoch": group.group_epoch,
            "assignment_epoch": group.assignment_epoch,
            "members": len(group.members),
        }
        for group in groups
    ]
