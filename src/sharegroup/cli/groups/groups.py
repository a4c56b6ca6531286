"""``sharegroup groups``: list, describe, inspect, reset and delete share groups.

The columns are those of Kafka's ``kafka-share-groups.sh``, so that existing scripts can read them.
Groups of other types are listed, because all types share one id space, and consumer groups are
described, with the columns of ``kafka-consumer-groups.sh``. They are never changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import click

from sharegroup.cli.common.cluster_access import (
    Access,
    Form,
    ask,
    cluster_options,
    json_option,
    listing_options,
    refuse_errors,
    show,
)
from sharegroup.cli.common.name_arguments import (
    complete_topics,
    naming_many,
    naming_one,
)
from sharegroup.cli.common.output import Listing, Row, done, print_listing
from sharegroup.cli.common.tables import leaves_out
from sharegroup.cli.common.verb_groups import VerbsAsOptions
from sharegroup.cli.groups import inspect_group, reset_offsets
from sharegroup.cli.groups.group_rows import (
    Described,
    addresses_of,
    consumer_offset_rows,
    explained,
    member_rows,
    share_offset_rows,
    state_rows,
)
from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.types import (
    ConsumerGroupDescription,
    GroupState,
    ShareGroupDescription,
)
from sharegroup.errors import GroupIdNotFound, KafkaError
from sharegroup.protocol_enums import GroupType

STATES = tuple(state for state in GroupState if state is not GroupState.UNKNOWN)
CONSUMER_TYPES = (GroupType.CONSUMER, GroupType.CLASSIC)
TYPES = tuple(group_type for group_type in GroupType if group_type is not GroupType.UNKNOWN)

LONG = {
    "offsets": ("leader_epoch",),
    "members": ("member_epoch",),
    "state": ("group_epoch", "assignment_epoch"),
}
"""The columns that only ``--verbose`` shows; JSON always has them."""
COLUMNS = {
    "offsets": ("group", "topic", "partition", "leader_epoch", "start_offset", "lag"),
    "consumer_offsets": (
        *("group", "topic", "partition", "leader_epoch", "current_offset", "log_end_offset", "lag"),
        *("consumer_id", "host", "client_id"),
    ),
    "members": (
        *("group", "consumer_id", "host", "client_id", "partitions", "member_epoch"),
        "assignment",
    ),
    "state": ("group", "coordinator", "state", "group_epoch", "assignment_epoch", "members"),
}
SPARE_OF_LIST = ("protocol",)
SPARE = {
    "offsets": ("leader_epoch",),
    "consumer_offsets": ("leader_epoch", "host", "consumer_id", "client_id", "log_end_offset"),
    "members": ("member_epoch", "host", "client_id", "partitions"),
    "state": ("assignment_epoch", "group_epoch", "coordinator"),
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
@leaves_out(SPARE_OF_LIST)
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
        columns = ("group", "type", "protocol", "state")
        return Listing(rows, columns, "There are no groups.", spare=SPARE_OF_LIST)

    show(access, form, groups)


@command.command("describe")
@naming_many("group", required=False)
@click.option("--all-groups", is_flag=True, help="Describe every share group.")
@click.option(
    "--type",
    "group_type",
    type=click.Choice([str(GroupType.SHARE), *map(str, CONSUMER_TYPES)]),
    help="With --all-groups: describe every group of this type.  [default: share]",
)
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
@leaves_out(dict.fromkeys(name for names in SPARE.values() for name in names))
def describe(  # One option each.
    *,
    groups: tuple[str, ...],
    all_groups: bool,
    group_type: str | None,
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

    Consumer groups of both protocols are described, too: their committed offsets and lags, with
    the member that reads each partition.
    """
    if bool(groups) == all_groups:
        raise click.UsageError("give group names or --all-groups")
    if group_type is not None and not all_groups:
        raise click.UsageError("--type is for --all-groups: the type of a named group is known")

    async def described(admin: AdminClient) -> Listing:
        wanted = GroupType(group_type or GroupType.SHARE)
        names = (
            [group.group_id for group in await admin.list_groups(types_filter=(wanted,))]
            if all_groups
            else groups
        )
        found, failures = await _found(admin, names, wanted if all_groups else None)
        types = {type(group) for group in found}
        if len(types) > 1:
            raise click.UsageError(
                "share groups and consumer groups have different columns: describe them separately"
            )
        is_share = ShareGroupDescription in types or not types
        table_name = view if is_share or view != "offsets" else "consumer_offsets"
        shown = [name for name in COLUMNS[table_name] if verbose or name not in LONG[view]]
        rows, later_failures = await _rows(admin, found, view)
        # A group of --all-groups that is unknown by now was deleted since it was described.
        failures += [error for error in later_failures if not (all_groups and _is_unknown(error))]
        nothing = f"There are no {view} to show."
        # The name of a single group is in the command line.
        spare = (*SPARE[table_name], *(("group",) if len(groups) == 1 else ()))
        return Listing(rows, shown, nothing, failures, spare=spare)

    show(access, form, described)


async def _found(
    admin: AdminClient, names: Iterable[str], wanted: GroupType | None
) -> tuple[list[Described], list[KafkaError]]:
    """Describe groups of type ``wanted``, or of the type of each if it is None.

    Also return the errors. With ``wanted`` an unknown group was deleted since it was listed.
    """
    results: dict[str, Described | KafkaError] = {}
    if wanted in (None, GroupType.SHARE):
        results |= await admin.describe_share_groups(names)
    others: Sequence[str] = list(names)
    if wanted is None:
        types = await _types_of(admin, [name for name in others if _is_unknown(results[name])])
        others = [name for name, kind in types.items() if kind in CONSUMER_TYPES]
    if others and wanted is not GroupType.SHARE:
        # These replace the errors that the groups gave as share groups.
        results |= await admin.describe_consumer_groups(others)
    failures = [
        await explained(admin, name, error)
        for name, error in results.items()
        if isinstance(error, KafkaError) and not (wanted is not None and _is_unknown(error))
    ]
    found = [group for group in results.values() if not isinstance(group, KafkaError)]
    return found, failures


async def _types_of(admin: AdminClient, names: Collection[str]) -> dict[str, GroupType]:
    """Return the types of those of the groups that exist."""
    if not names:
        return {}
    return {
        group.group_id: group.type for group in await admin.list_groups() if group.group_id in names
    }


def _is_unknown(result: object) -> bool:
    return isinstance(result, GroupIdNotFound)


async def _rows(
    admin: AdminClient, groups: Sequence[Described], view: str
) -> tuple[list[Row], list[KafkaError]]:
    if view == "members":
        return member_rows(groups), []
    if view == "state":
        return state_rows(groups, await addresses_of(admin)), []
    shared = [group.group_id for group in groups if isinstance(group, ShareGroupDescription)]
    consuming = [group for group in groups if isinstance(group, ConsumerGroupDescription)]
    if consuming:
        return await consumer_offset_rows(admin, consuming)
    return await share_offset_rows(admin, shared)


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


# A broker would also delete groups of other types. The verbs below refuse to, so a mistyped name
# cannot delete a consumer group.


@command.command("delete")
@naming_many("group", required=False)
@click.option("--all-groups", is_flag=True, help="Delete every share group without members.")
@cluster_options
@json_option
def delete(*, groups: tuple[str, ...], all_groups: bool, access: Access, as_json: bool) -> None:
    """Delete groups without members.

    Their offsets and delivery states are deleted; their settings are kept, as in Kafka.
    """
    if bool(groups) == all_groups:
        raise click.UsageError("give group names or --all-groups")
    results = ask(access, lambda admin: _delete(admin, None if all_groups else groups))
    deleted = [name for name, error in results.items() if error is None]
    if deleted or as_json or not results:
        text = f"deleted group {', '.join(deleted)}" if deleted else "There are no share groups."
        failed = {name: str(error) for name, error in results.items() if error is not None}
        done(text, as_json=as_json, deleted=deleted, failed=failed)
    refuse_errors(results)


async def _delete(
    admin: AdminClient, names: tuple[str, ...] | None
) -> dict[str, KafkaError | None]:
    if names is None:
        names = tuple(group.group_id for group in await admin.list_share_groups())
    results = await admin.delete_share_groups(names)
    return {name: await _outcome(admin, name, error) for name, error in results.items()}


async def _outcome(admin: AdminClient, name: str, error: KafkaError | None) -> KafkaError | None:
    return None if error is None else await explained(admin, name, error)


@command.command("delete-offsets")
@naming_one("group")
@click.option(
    "--topic",
    "topics",
    metavar="TOPIC",
    multiple=True,
    required=True,
    shell_complete=complete_topics,
    help="Topic whose offsets are deleted; can be repeated.",
)
@cluster_options
@json_option
def delete_offsets(*, group: str, topics: tuple[str, ...], access: Access, as_json: bool) -> None:
    """Delete the offsets of a group for some topics.

    The group must have no members.  If it subscribes to such a topic again, its setting
    share.auto.offset.reset determines where it starts.
    """

    async def run(admin: AdminClient) -> dict[str, KafkaError | None]:
        try:
            return await admin.delete_share_group_offsets(group, topics)
        except KafkaError as error:
            raise await explained(admin, group, error) from error

    results = ask(access, run)
    rows = [
        {"group": group, "topic": topic, "status": f"Error: {error}" if error else "Successful"}
        for topic, error in sorted(results.items())
    ]
    listing = Listing(rows, ("topic", "status"), f"Group {group} has no offsets for these topics.")
    print_listing(listing, as_json=as_json)
    refuse_errors(results)
