"""Share groups and consumer groups behind one set of functions.

All types of groups share one id space, so an id alone does not tell which request a group needs.
The coordinator is asked for a share group first, then for a consumer group of either protocol.
That works without a list of all groups, and on brokers without share groups.

The offset of a group in a partition is the start offset of a share group, and the committed offset
of a consumer group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import assert_never

from sharegroup.client.admin.calls import call, several
from sharegroup.client.admin.consumer_groups import (
    alter_consumer_group_offsets,
    describe_consumer_groups,
    list_consumer_group_offsets,
)
from sharegroup.client.admin.groups import (
    alter_share_group_offsets,
    describe_share_groups,
    list_share_group_offsets,
)
from sharegroup.client.admin.types import (
    CommittedOffset,
    ConsumerGroupDescription,
    ShareGroupDescription,
    SharePartitionOffset,
)
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.errors import (
    GroupIdNotFound,
    KafkaError,
    NonEmptyGroup,
    UnknownMemberId,
    UnsupportedVersion,
)

GroupDescription = ShareGroupDescription | ConsumerGroupDescription

MEMBERS_NAMED_MAX = 10
"""The number of members that an error names; a group may have thousands."""


@call
async def describe_share_and_consumer_groups(
    cluster: Cluster, group_ids: Iterable[str], *, timeout: float | None = None
) -> dict[str, ShareGroupDescription | ConsumerGroupDescription | KafkaError]:
    """Describe share groups, and consumer groups of both protocols, by the type that each has.

    GroupIdNotFound if a group does not exist or has another type.
    """
    requested = several(group_ids)
    shared = await describe_share_groups(cluster, requested)
    others = [
        name
        for name, described in shared.items()
        # A broker without share groups does not know the request.
        if isinstance(described, GroupIdNotFound | UnsupportedVersion)
    ]
    return {**shared, **await describe_consumer_groups(cluster, others)}


async def list_group_offsets(
    cluster: Cluster, group_id: str, *, is_share: bool
) -> dict[TopicPartition, int | KafkaError | None]:
    """Return the offsets of a group by partition; None in a partition where it has none."""
    listed: (
        Mapping[TopicPartition, SharePartitionOffset | CommittedOffset | KafkaError] | KafkaError
    )
    if is_share:
        listed = (await list_share_group_offsets(cluster, {group_id: None}))[group_id]
    else:
        listed = (await list_consumer_group_offsets(cluster, {group_id: None}))[group_id]
    if isinstance(listed, KafkaError):
        raise listed
    return {where: _offset(found) for where, found in listed.items()}


def _offset(
    found: SharePartitionOffset | CommittedOffset | KafkaError,
) -> int | KafkaError | None:
    match found:
        case SharePartitionOffset():
            return found.start_offset
        case CommittedOffset():
            return found.offset
        case KafkaError():
            return found
        case _:
            assert_never(found)


async def alter_group_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int], *, is_share: bool
) -> dict[TopicPartition, KafkaError | None]:
    """Set the offsets of a group without members, and return the errors by partition."""
    if is_share:
        return await alter_share_group_offsets(cluster, group_id, offsets)
    results = await alter_consumer_group_offsets(cluster, group_id, offsets)
    # A commit of no member in a group that has members, as Java's Admin translates it, too.
    refusal = NonEmptyGroup(f"group {group_id!r} has members since a moment; stop them first")
    return {
        where: refusal if isinstance(error, UnknownMemberId) else error
        for where, error in results.items()
    }


def member_names(group: GroupDescription) -> str:
    """Return the members of a group as an error names them: client id, member id and host."""
    names = [
        f"{member.client_id!r} ({member.member_id}) at {member.host}"
        for member in group.members[:MEMBERS_NAMED_MAX]
    ]
    others = len(group.members) - len(names)
    return ", ".join(names) + (f" and {others} others" if others else "")
