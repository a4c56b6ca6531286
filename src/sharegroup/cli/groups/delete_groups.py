"""``sharegroup groups delete`` and ``delete-offsets``: delete share groups and their offsets.

A broker would also delete groups of other types. These verbs refuse to, so that a mistyped name
cannot delete a consumer group.
"""

from __future__ import annotations

import click

from sharegroup.cli.common.cluster_access import (
    Access,
    ask,
    cluster_options,
    json_option,
    refuse_errors,
)
from sharegroup.cli.common.name_arguments import complete_topics, naming_many, naming_one
from sharegroup.cli.common.output import Listing, done, print_listing
from sharegroup.cli.groups.group_errors import explained
from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.errors import KafkaError


@click.command("delete")
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


@click.command("delete-offsets")
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
