"""The rows of ``sharegroup groups describe``, and the likely causes of errors about groups.

The rows are offsets, members and states of groups of every type.

Share groups and consumer groups have different offsets. A share group has a start offset: all
records before it are settled. A consumer group has a committed offset, which is the next record of
the member that reads the partition. Its lag is the distance to the end of the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sharegroup.cli.common.output import Row
from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.groups_of_any_type import MEMBERS_NAMED_MAX
from sharegroup.client.admin.types import (
    CommittedOffset,
    ConsumerGroupDescription,
    ConsumerMemberDescription,
    ShareGroupDescription,
    ShareMemberDescription,
    SharePartitionOffset,
)
from sharegroup.client.fetch.offsets import ListedOffset, OffsetSpec
from sharegroup.client.records import TopicPartition
from sharegroup.errors import GroupIdNotFound, GroupSubscribedToTopic, KafkaError, NonEmptyGroup

Described = ShareGroupDescription | ConsumerGroupDescription
DescribedMember = ShareMemberDescription | ConsumerMemberDescription


async def share_offset_rows(
    admin: AdminClient, names: Iterable[str]
) -> tuple[list[Row], list[KafkaError]]:
    """Return the start offset and lag of share groups by partition, and the errors of others."""
    results = await admin.list_share_group_offsets(dict.fromkeys(names))
    failures = _errors(results)
    rows: list[Row] = []
    for name, partitions in results.items():
        if isinstance(partitions, KafkaError):
            continue  # It was described before, so it was deleted or lost its coordinator since.
        failures += _errors(partitions)
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
    return rows, failures


def _errors(results: Mapping[Any, object]) -> list[KafkaError]:
    return [error for error in results.values() if isinstance(error, KafkaError)]


def member_rows(groups: Iterable[Described]) -> list[Row]:
    """Return the members of groups of any type, with their partitions."""
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
        for member in sorted(_members_of(group), key=lambda described: described.member_id)
    ]


def _members_of(group: Described) -> Sequence[DescribedMember]:
    return group.members


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        numbers.setdefault(topic, []).append(number)
    return numbers


def state_rows(groups: Iterable[Described], addresses: dict[int, str]) -> list[Row]:
    """Return the coordinator, the state and the epochs of groups of any type."""
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


async def addresses_of(admin: AdminClient) -> dict[int, str]:
    """Return the address of each broker by its id."""
    cluster = await admin.describe_cluster()
    return {node.node_id: f"{node.host}:{node.port}" for node in cluster.nodes}


async def consumer_offset_rows(
    admin: AdminClient, groups: Iterable[ConsumerGroupDescription]
) -> tuple[list[Row], list[KafkaError]]:
    """Return the committed offset, the lag and the member of consumer groups by partition.

    Also returns the errors of groups and partitions that have no row for one.

    A partition is listed if it has a committed offset or is assigned to a member. A partition
    whose topic was deleted has no end, and so no lag.
    """
    described = {group.group_id: group for group in groups}
    results = await admin.list_consumer_group_offsets(dict.fromkeys(described))
    failures = _errors(results)
    committed: dict[tuple[str, TopicPartition], CommittedOffset | None] = {}
    readers: dict[tuple[str, TopicPartition], ConsumerMemberDescription] = {}
    for name, group in described.items():
        offsets = results[name]
        if isinstance(offsets, KafkaError):
            continue
        for member in group.members:
            for partition in member.assignment:
                committed[name, partition] = None
                readers[name, partition] = member
        failures += _errors(offsets)
        for partition, offset in offsets.items():
            if isinstance(offset, CommittedOffset):
                committed[name, partition] = offset
    partitions = {partition for _, partition in committed}
    ends = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    rows = [
        _consumer_row(name, partition, committed[name, partition], ends[partition], reader)
        for name, partition in sorted(committed)
        for reader in [readers.get((name, partition))]
    ]
    return rows, failures


def _consumer_row(
    group: str,
    partition: TopicPartition,
    committed: CommittedOffset | None,
    end: ListedOffset | KafkaError,
    reader: ConsumerMemberDescription | None,
) -> Row:
    current_offset = None if committed is None else committed.offset
    end_offset = end.offset if isinstance(end, ListedOffset) else None
    has_lag = current_offset is not None and end_offset is not None
    return {
        "group": group,
        "topic": partition.topic,
        "partition": partition.partition,
        "leader_epoch": None if committed is None else committed.leader_epoch,
        "current_offset": current_offset,
        "log_end_offset": end_offset,
        "lag": max(0, (end_offset or 0) - (current_offset or 0)) if has_lag else None,
        "consumer_id": None if reader is None else reader.member_id,
        "host": None if reader is None else reader.host,
        "client_id": None if reader is None else reader.client_id,
    }


SHARE_ONLY = "a share group"
SHARE_OR_CONSUMER = "a share group or consumer group"


async def explained(
    admin: AdminClient, group_id: str, error: KafkaError, *, expected: str = SHARE_OR_CONSUMER
) -> KafkaError:
    """Return the error with its cause: the members of the group, or the type of the group.

    ``expected`` names the types of groups that the verb takes.
    """
    if isinstance(error, NonEmptyGroup | GroupSubscribedToTopic):
        group = (await admin.describe_share_and_consumer_groups([group_id]))[group_id]
        if not isinstance(group, KafkaError) and group.members:
            return type(error)(f"group {group_id!r} has the members {_members_named(group)}")
    if isinstance(error, GroupIdNotFound):
        for listed in await admin.list_groups():
            if listed.group_id == group_id:
                return GroupIdNotFound(
                    f"group {group_id!r} is a {listed.type} group, not {expected}"
                )
        return GroupIdNotFound(f"there is no group {group_id!r}")
    return error


def _members_named(group: Described) -> str:
    names = [
        f"{member.client_id}@{member.host}" for member in _members_of(group)[:MEMBERS_NAMED_MAX]
    ]
    others = len(group.members) - len(names)
    return ", ".join(names) + (f" and {others} others" if others else "")
