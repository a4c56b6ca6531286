"""The share partitions of a group at a place, and their runs in the state topic, for verbs."""

from __future__ import annotations

from collections.abc import Sequence

from sharegroup.cli.common.cluster_access import Access, refuse_errors
from sharegroup.cli.groups.group_rows import SHARE_ONLY, explained
from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.client.settings.client_config import ReadingConfig, config_from
from sharegroup.errors import KafkaError, UnknownTopicOrPartition
from sharegroup.share_runs.share_runs import ShownSharePartition

Place = tuple[str | None, int | None]
"""A topic and a partition; None: all of them."""

DURABLE_ONLY = (
    "These are the runs in __share_group_state: a record that a member holds looks as if nobody "
    "had it, and its member and lock are unknown."
)


def no_share_partitions(group: str) -> str:
    """Return what is said in place of an empty listing of a group's share partitions."""
    return f"Group {group!r} has no share partitions yet, or none that the user may DESCRIBE."


async def share_partitions_at(admin: AdminClient, group: str, place: Place) -> list[TopicPartition]:
    """Return the share partitions of the group at this place; raise if the place has none."""
    offsets = (await admin.list_share_group_offsets({group: None}))[group]
    if isinstance(offsets, KafkaError):
        raise await explained(admin, group, offsets, expected=SHARE_ONLY)
    if not offsets:  # Brokers answer so for a group that does not exist, too.
        described = (await admin.describe_share_groups([group]))[group]
        if isinstance(described, KafkaError):
            raise await explained(admin, group, described, expected=SHARE_ONLY)
    refuse_errors(offsets)
    topic, number = place
    wanted = [
        partition
        for partition in offsets
        if topic in (None, partition.topic) and number in (None, partition.partition)
    ]
    if topic is not None and not wanted:
        where = topic if number is None else f"{topic}:{number}"
        topics = ", ".join(sorted({partition.topic for partition in offsets})) or "none"
        raise UnknownTopicOrPartition(
            f"group {group!r} has no share partition {where}; its topics are: {topics} "
            "(without those that the user may not DESCRIBE)"
        )
    return wanted


async def stored_runs(
    access: Access,
    admin: AdminClient,
    group: str,
    wanted: Sequence[TopicPartition],
    *,
    runs_max: int,
) -> list[ShownSharePartition]:
    """Return the runs of the wanted share partitions from the state topic."""
    # Imported here because it loads parts of the broker, which the other verbs do not need.
    from sharegroup.share_runs.durable_runs import durable_runs

    reading = Cluster(config_from(ReadingConfig, access.client_options(ReadingConfig)))
    try:
        return await durable_runs(admin, reading, group, wanted, runs_max=runs_max)
    finally:
        reading.close()
