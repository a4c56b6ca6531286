"""``sharegroup groups``: list, describe, inspect, pause, reset and delete groups.

All types of groups share one id space, so the verbs find out the type of a group in the cluster.
The columns are those of Kafka's ``kafka-share-groups.sh`` for share groups, and those of
``kafka-consumer-groups.sh`` for consumer groups, so that existing scripts can read them. Groups of
Kafka Streams are only listed: their offsets and their internal topics have to change together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

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
from sharegroup.cli.common.name_arguments import naming_many
from sharegroup.cli.common.options import Verb
from sharegroup.cli.common.output import Listing, Row, done
from sharegroup.cli.common.tables import leaves_out
from sharegroup.cli.common.verb_groups import VerbsAsOptions
from sharegroup.cli.groups import delete_offsets, inspect_group, pause_groups, reset_offsets
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
    GroupListing,
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
    """List, describe, inspect, pause, reset and delete groups: share groups and consumer groups.

    The syntax of Kafka's tools works as well:

    \b
        sharegroup groups --describe --group billing --members
    """


command.add_command(inspect_group.command)
command.add_command(pause_groups.pause)
command.add_command(pause_groups.resume)
command.add_command(reset_offsets.command)
command.add_command(delete_offsets.command)


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
@click.option(
    "--protocol", metavar="PROTOCOL", help="List only groups with this protocol type: consumer, ..."
)
@click.option("--share", "kind", flag_value="share", help="List only share groups.")
@click.option(
    "--consumer",
    "kind",
    flag_value="consumer",
    help="List only consumer groups, of both protocols, and groups with offsets alone.",
)
@cluster_options
@listing_options
@leaves_out(SPARE_OF_LIST)
def list_(  # One option each.
    *,
    states: str | None,
    types: str | None,
    protocol: str | None,
    kind: str | None,
    access: Access,
    form: Form,
) -> None:
    """List the id, type and state of groups of every type."""
    chosen_states = _chosen(states, STATES, "--state")
    chosen_types = _chosen(types, TYPES, "--type")
    if kind is not None and (chosen_types or protocol is not None):
        raise click.UsageError(f"--{kind} excludes --type and --protocol")

    async def groups(admin: AdminClient) -> Listing:
        listings = [
            group
            for group in await _listed(admin, kind, chosen_states, chosen_types)
            if protocol in (None, group.protocol_type)
        ]
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


async def _listed(
    admin: AdminClient, kind: str | None, states: Sequence[str], types: Sequence[str]
) -> Sequence[GroupListing]:
    match kind:
        case "share":
            return await admin.list_share_groups(states_filter=states)
        case "consumer":
            return await admin.list_consumer_groups(states_filter=states)
        case _:
            return await admin.list_groups(states_filter=states, types_filter=types)


def type_of_all_option(verb: str) -> Callable[[Verb], Verb]:
    """Add ``--type`` to a verb with ``--all-groups``, which is called with ``group_type``."""
    return click.option(
        "--type",
        "--group-type",
        "group_type",
        type=click.Choice([str(GroupType.SHARE), *map(str, CONSUMER_TYPES)]),
        help=f"With --all-groups: {verb.lower()} every group of this type.  [default: share]",
    )


def _type_of_all(
    groups: Sequence[str], *, all_groups: bool, group_type: str | None
) -> GroupType | None:
    """Return the type for ``--all-groups``; None if groups are named. UsageError for a mixture."""
    if bool(groups) == all_groups:
        raise click.UsageError("give group names or --all-groups")
    if group_type is not None and not all_groups:
        raise click.UsageError("--type is for --all-groups: the type of a named group is known")
    return GroupType(group_type or GroupType.SHARE) if all_groups else None


@command.command("describe")
@naming_many("group", required=False)
@click.option("--all-groups", is_flag=True, help="Describe every group of one type.")
@type_of_all_option("Describe")
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
    --offsets  offset and lag of each partition
    --members  members of the group and the partitions assigned to them
    --state    coordinator, state and epochs of the group

    The offset is the start offset of a share group.  Consumer groups, of both protocols, have
    committed offsets, with the member that reads each partition.
    """
    wanted = _type_of_all(groups, all_groups=all_groups, group_type=group_type)

    async def described(admin: AdminClient) -> Listing:
        names = (
            groups
            if wanted is None
            else [group.group_id for group in await admin.list_groups(types_filter=(wanted,))]
        )
        found, failures = await _found(admin, names, wanted)
        types = {type(group) for group in found}
        if len(types) > 1:
            raise click.UsageError(
                "share groups and consumer groups have different columns: describe them separately"
            )
        is_share = ShareGroupDescription in types or not types
        table_name = view if is_share or view != "offsets" else "consumer_offsets"
        shown = [name for name in COLUMNS[table_name] if verbose or name not in LONG[view]]
        if is_share:
            await pause_groups.tell_paused(admin, [group.group_id for group in found])
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
    results: Mapping[str, Described | KafkaError]
    if wanted is None:
        results = await admin.describe_share_and_consumer_groups(names)
    elif wanted is GroupType.SHARE:
        results = await admin.describe_share_groups(names)
    else:
        results = await admin.describe_consumer_groups(names)
    failures = [
        await explained(admin, name, error)
        for name, error in results.items()
        if isinstance(error, KafkaError) and not (wanted is not None and _is_unknown(error))
    ]
    found = [group for group in results.values() if not isinstance(group, KafkaError)]
    return found, failures


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


@command.command("delete")
@naming_many("group", required=False)
@click.option(
    "--all-groups", is_flag=True, help="Delete every group of one type that has no members."
)
@type_of_all_option("Delete")
@cluster_options
@json_option
def delete(
    *,
    groups: tuple[str, ...],
    all_groups: bool,
    group_type: str | None,
    access: Access,
    as_json: bool,
) -> None:
    """Delete groups without members.

    Their offsets and delivery states are deleted; their settings are kept, as in Kafka.  With
    --all-groups groups that have members are kept, and reported as errors.
    """
    kind = _type_of_all(groups, all_groups=all_groups, group_type=group_type)
    results = ask(access, lambda admin: _delete(admin, groups, kind))
    deleted = [name for name, error in results.items() if error is None]
    if deleted or as_json or not results:
        nothing = f"There are no {kind} groups."
        text = f"deleted group {', '.join(deleted)}" if deleted else nothing
        failed = {name: str(error) for name, error in results.items() if error is not None}
        done(text, as_json=as_json, deleted=deleted, failed=failed)
    refuse_errors(results)


async def _delete(
    admin: AdminClient, names: Sequence[str], all_of: GroupType | None
) -> dict[str, KafkaError | None]:
    if all_of is not None:
        names = [group.group_id for group in await admin.list_groups(types_filter=(all_of,))]
    # The request would delete a group of any type, also one whose other parts stay behind.
    described = await admin.describe_share_and_consumer_groups(names)
    unknown = {name: error for name, error in described.items() if isinstance(error, KafkaError)}
    known = [name for name in described if name not in unknown]
    results = {**unknown, **await admin.delete_groups(known)}
    return {name: await _outcome(admin, name, results[name]) for name in described}


async def _outcome(admin: AdminClient, name: str, error: KafkaError | None) -> KafkaError | None:
    return None if error is None else await explained(admin, name, error)
