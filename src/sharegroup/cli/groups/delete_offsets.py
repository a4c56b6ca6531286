"""``sharegroup groups delete-offsets``: deletes the offsets of a group for some topics.

A share group loses all its state in a topic, in one step. A consumer group loses the committed
offsets of partitions.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from sharegroup.cli.common.cluster_access import (
    Access,
    ask,
    cluster_options,
    json_option,
    refuse_errors,
)
from sharegroup.cli.common.log_positions import parse_partitions
from sharegroup.cli.common.name_arguments import complete_topics, naming_one
from sharegroup.cli.common.output import Listing, print_listing
from sharegroup.cli.groups.group_rows import explained
from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.types import CommittedOffset, ShareGroupDescription
from sharegroup.client.records import TopicPartition
from sharegroup.errors import (
    GroupSubscribedToTopic,
    InvalidRequest,
    KafkaError,
    UnknownTopicOrPartition,
)

Results = dict[tuple[str, int | None], KafkaError | None]
"""By topic and partition; a share group has a result for each topic, with None as partition."""


@click.command("delete-offsets")
@naming_one("group")
@click.option(
    "--topic",
    "topics",
    metavar="TOPIC[:0,1,...]",
    multiple=True,
    required=True,
    shell_complete=complete_topics,
    help="Topic, or partitions of a topic, whose offsets are deleted; can be repeated.",
)
@cluster_options
@json_option
def command(*, group: str, topics: tuple[str, ...], access: Access, as_json: bool) -> None:
    """Delete the offsets of a group for some topics.

    The members of the group must not read these topics; a share group must have no members.  If it
    subscribes to such a topic again, a share group starts where its setting
    share.auto.offset.reset says, and a consumer group where auto.offset.reset of its members says.

    Partitions can be named for consumer groups only: the state of a share group is deleted for
    whole topics.
    """
    places = parse_partitions(topics)

    async def run(admin: AdminClient) -> Results:
        try:
            return await _delete_offsets(admin, group, places)
        except KafkaError as error:
            raise await explained(admin, group, error) from error

    results = ask(access, run)
    rows = [
        {
            "group": group,
            "topic": topic,
            "partition": partition,
            "status": f"Error: {error}" if error else "Successful",
        }
        for (topic, partition), error in sorted(results.items(), key=_place)
    ]
    has_partitions = any(partition is not None for _, partition in results)
    columns = ("topic", "partition", "status") if has_partitions else ("topic", "status")
    listing = Listing(rows, columns, f"Group {group} has no offsets for these topics.")
    print_listing(listing, as_json=as_json)
    refuse_errors(results)


def _place(result: tuple[tuple[str, int | None], object]) -> tuple[str, int]:
    (topic, partition), _ = result
    return topic, -1 if partition is None else partition


async def _delete_offsets(
    admin: AdminClient, group: str, places: Sequence[str | TopicPartition]
) -> Results:
    described = (await admin.describe_share_and_consumer_groups([group]))[group]
    if isinstance(described, KafkaError):
        raise described
    if not isinstance(described, ShareGroupDescription):
        return await _delete_committed_offsets(admin, group, places)
    topics = [place for place in places if isinstance(place, str)]
    if len(topics) < len(places):
        raise InvalidRequest(
            f"group {group!r} is a share group, whose state is deleted for whole topics: give "
            "--topic TOPIC without partitions"
        )
    results = await admin.delete_share_group_offsets(group, topics)
    return {(topic, None): error for topic, error in results.items()}


async def _delete_committed_offsets(
    admin: AdminClient, group: str, places: Sequence[str | TopicPartition]
) -> Results:
    listed = (await admin.list_consumer_group_offsets({group: None}))[group]
    if isinstance(listed, KafkaError):
        raise listed
    committed = [
        partition
        for partition, offset in listed.items()
        if not (isinstance(offset, CommittedOffset) and offset.offset is None)
    ]
    results: Results = {}
    chosen: list[TopicPartition] = []
    for place in places:
        found = [partition for partition in committed if place in (partition, partition.topic)]
        chosen += found
        if not found:
            topic, partition = (place, None) if isinstance(place, str) else place
            where = f"topic {topic!r}" + ("" if partition is None else f" partition {partition}")
            results[topic, partition] = UnknownTopicOrPartition(
                f"{where}: group {group!r} has no offset there to delete"
            )
    errors = await admin.delete_consumer_group_offsets(group, chosen) if chosen else {}
    # Of all partitions of a topic that a member reads.
    read = next((e for e in errors.values() if isinstance(e, GroupSubscribedToTopic)), None)
    cause = None if read is None else await explained(admin, group, read)
    return results | {
        where: cause if isinstance(error, GroupSubscribedToTopic) else error
        for where, error in errors.items()
    }
