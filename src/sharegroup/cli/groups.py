"""``sharegroup groups``: list, describe, inspect, reset and delete share groups.

The columns are those of Kafka's ``kafka-share-groups.sh``, so that existing scripts can read them.
Groups of other types are listed, because all types share one id space, but never changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from sharegroup.cli import delete_groups, inspect_group, reset_offsets
from sharegroup.cli.cluster_access import (
    Access,
    Form,
    cluster_options,
    listing_options,
    refuse_errors,
    show,
)
from sharegroup.cli.group_errors import explained
from sharegroup.cli.name_arguments import naming_many
from sharegroup.cli.output import Listing, Row
from sharegroup.cli.verbs_as_options import VerbsAsOptions
from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.types import GroupState, ShareGroupDescription, SharePartitionOffset
from sharegroup.client.records import TopicPartition
from sharegroup.errors import GroupIdNotFound, KafkaError
from sharegroup.protocol_enums import GroupType

STATES = tuple(state for state in GroupState if state is not GroupState.UNKNOWN)
TYPES = tuple(group_type for group_type in GroupType if group_type is not GroupType.UNKNOWN)

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


@click.group("groups", cls=VerbsAsOptions)
def command() -> None:
    """List, describe, inspect, reset and delete share groups.

    The syntax of Kafka's tools works as well:

    \b
        sharegroup groups --describe --group billing --members
    """


command.add_command(inspect_group.command)
command.add_command(reset_offsets.command)
command.add_command(delete_groups.delete)
command.add_command(delete_groups.delete_offsets)


@command.command("list")
@click.option(
    "--state",
    "states",
    is_flag=False,
    flag_value="",
    metavar="[STATE,...]",
    help="List only groups in these states.",
)
@click.option(
    "--type",
    "--group-type",
    "types",
    metavar="TYPE,...",
    help=f"List only groups of these types: {', '.join(TYPES)}.",
)
@cluster_options
@listing_options
def list_(*, states: str | None, types: str | None, access: Access, form: Form) -> None:
    """List the id, type and state of groups of every type."""
    chosen_states = _chosen(states, STATES, "--state")
    chosen_types = _chosen(types, TYPES, "--type")

    async def groups(admin: AdminClient) -> Listing:
        listings = await admin.list_groups(states_filter=chosen_states, types_filter=chosen_types)
        rows = [
            {
                "group": group.group_id,
                "type": group.type,
                "protocol": group.protocol_type,
                "state": group.state,
            }
            for group in listings
        ]
        return Listing(rows, ("group", "type", "protocol", "state"), "There are no groups.")

    show(access, form, groups)


@command.command("describe")
@naming_many("group", required=False)
@click.option("--all-groups", is_flag=True, help="Describe every share group.")
@click.option("--offsets", "view", flag_value="offsets", default=True, help="[default]")
@click.option(
    "--members", "view", flag_value="members", help="Show the members and their assignments."
)
@click.option(
    "--state", "view", flag_value="state", help="Show the coordinator, the state and the epochs."
)
@click.option("--verbose", is_flag=True, help="Include epochs.")
@cluster_options
@listing_options
def describe(  # One option each.
    *,
    groups: tuple[str, ...],
    all_groups: bool,
    view: str,
    verbose: bool,
    access: Access,
    form: Form,
) -> None:
    """Show the offsets, the members or the state of groups.

    \b
    --offsets  start offset and lag of each partition
    --members  members of the group and the partitions assigned to them
    --state    coordinator, state and epochs of the group
    """
    if bool(groups) == all_groups:
        raise click.UsageError("give group names or --all-groups")
    columns = [name for name in COLUMNS[view] if verbose or name not in LONG[view]]

    async def described(admin: AdminClient) -> Listing:
        names = (
            [group.group_id for group in await admin.list_share_groups()] if all_groups else groups
        )
        results = await admin.describe_share_groups(names)
        failures = [
            await explained(admin, name, error)
            for name, error in results.items()
            # A group may be deleted between the two requests.
            if isinstance(error, KafkaError)
            and not (all_groups and isinstance(error, GroupIdNotFound))
        ]
        descriptions = [
            group for group in results.values() if isinstance(group, ShareGroupDescription)
        ]
        rows = await _rows(admin, descriptions, view)
        return Listing(rows, columns, f"There are no {view} to show.", failures)

    show(access, form, described)


async def _rows(
    admin: AdminClient, groups: Sequence[ShareGroupDescription], view: str
) -> list[Row]:
    if view == "members":
        return _members(groups)
    if view == "state":
        return _states(groups, await _addresses(admin))
    return await _offsets(admin, [group.group_id for group in groups])


async def _offsets(admin: AdminClient, names: Iterable[str]) -> list[Row]:
    results = await admin.list_share_group_offsets(dict.fromkeys(names))
    refuse_errors(results)
    rows: list[Row] = []
    for name, partitions in results.items():
        assert not isinstance(partitions, KafkaError)
        refuse_errors(partitions)
        rows += [
            {
                "group": name,
                "topic": partition.topic,
                "partition": partition.partition,
                "leader_epoch": result.leader_epoch,
                "start_offset": result.start_offset,
                "lag": result.lag,
            }
            for partition, result in sorted(partitions.items())
            if isinstance(result, SharePartitionOffset)
        ]
    return rows


def _members(groups: Iterable[ShareGroupDescription]) -> list[Row]:
    return [
        {
            "group": group.group_id,
            "consumer_id": member.member_id,
            "host": member.host,
            "client_id": member.client_id,
            "rack": member.rack_id,
            "partitions": len(member.assignment),
            "member_epoch": member.member_epoch,
            "subscribed_topics": list(member.subscribed_topics),
            "assignment": _by_topic(member.assignment),
        }
        for group in groups
        for member in sorted(group.members, key=lambda described: described.member_id)
    ]


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        numbers.setdefault(topic, []).append(number)
    return numbers


def _states(groups: Iterable[ShareGroupDescription], addresses: dict[int, str]) -> list[Row]:
    return [
        {
            "group": group.group_id,
            "coordinator": f"{addresses.get(group.coordinator_id, '?')} ({group.coordinator_id})",
            "coordinator_id": group.coordinator_id,
            "state": group.state,
            "group_epoch": group.group_epoch,
            "assignment_epoch": group.assignment_epoch,
            "members": len(group.members),
        }
        for group in groups
    ]


async def _addresses(admin: AdminClient) -> dict[int, str]:
    cluster = await admin.describe_cluster()
    return {node.node_id: f"{node.host}:{node.port}" for node in cluster.nodes}


def _chosen(text: str | None, known: Sequence[str], option: str) -> list[str]:
    """Split a list at its commas and return the words in Kafka's spelling.

    Raises click.BadParameter for a word that is not in ``known``.
    """
    spelling = {word.lower(): word for word in known}
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    for word in words:
        if word.lower() not in spelling:
            expected = ", ".join(known)
            raise click.BadParameter(f"{word!r}: expected {expected}", param_hint=option)
    return [spelling[word.lower()] for word in words]
