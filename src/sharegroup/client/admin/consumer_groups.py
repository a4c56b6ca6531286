"""Requests about consumer groups of both protocols, and about classic groups in general.

A group that reads topics uses the newer protocol (KIP-848, type ``consumer``) or the classic one
with protocol type ``consumer``.  Both have the same description, and its ``type`` tells which it
is.  Classic groups of other protocol types (workers of Kafka Connect) are described without an
assignment, because only their own protocol defines its format.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_describe.v1.response import Assignment, Member
from kio.schema.consumer_protocol_assignment.v0.data import ConsumerProtocolAssignment
from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
from kio.schema.describe_groups.v6.response import DescribedGroupMember
from kio.schema.offset_commit.v9.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_delete.v0.request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kio.schema.offset_fetch.v9.request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kio.schema.types import GroupId as KioGroupId, TopicName as KioTopicName
from kio.static.primitive import i32

from sharegroup.client.admin.calls import by_item, call, known, operations_of, outcome
from sharegroup.client.admin.groups import (
    Answered,
    ask_about_group,
    ask_coordinator,
    by_group,
    list_groups,
    offsets_by_group,
)
from sharegroup.client.admin.types import (
    CommittedOffset,
    ConsumerGroupDescription,
    ConsumerMemberDescription,
    GroupListing,
    GroupState,
)
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.net.leader_requests import by_topic, commit_topics
from sharegroup.client.records import Offsets, TopicPartition, checked_offsets
from sharegroup.errors import GroupIdNotFound, KafkaError, UnsupportedVersion
from sharegroup.protocol_enums import GroupType
from sharegroup.wire.codec.decoder import DecodeError, decode

NO_GENERATION = -1
"""The generation in commits by an administrator instead of a member."""
VERSION_BYTES = 2
CLASSIC_MEMBER = 0
"""The member type of a member with the classic protocol in a group of the newer one."""
CONSUMER_PROTOCOL = "consumer"
"""The protocol type of groups that read topics."""

Descriptions = dict[str, ConsumerGroupDescription | KafkaError]


@call
async def list_consumer_groups(
    cluster: Cluster,
    *,
    states_filter: Iterable[GroupState | str] = (),
    timeout: float | None = None,
) -> list[GroupListing]:
    """List consumer groups of both protocols, sorted by id; the type names the protocol.

    A classic group without members and without a protocol counts as one: it has offsets.
    """
    groups = await list_groups(
        cluster, states_filter=states_filter, types_filter=(GroupType.CONSUMER, GroupType.CLASSIC)
    )
    return [
        group
        for group in groups
        if group.type is GroupType.CONSUMER or group.protocol_type in (CONSUMER_PROTOCOL, "")
    ]


@call
async def describe_consumer_groups(
    cluster: Cluster,
    group_ids: Iterable[str],
    *,
    include_authorized_operations: bool = False,
    timeout: float | None = None,
) -> dict[str, ConsumerGroupDescription | KafkaError]:
    """Describe consumer groups, of the newer or the classic protocol: state and members.

    A group that the broker does not know as one of the newer protocol (KIP-848), or a broker
    without that protocol, is asked for a classic group instead.
    """

    async def describe(group_id: str) -> ConsumerGroupDescription:
        request = ConsumerGroupDescribeRequest(
            group_ids=(KioGroupId(group_id),),
            include_authorized_operations=include_authorized_operations,
        )
        try:
            group = await ask_about_group(cluster, group_id, request)
        except (GroupIdNotFound, UnsupportedVersion):
            # The group or the broker does not use the newer protocol.
            return await _classic_group(
                cluster, group_id, authorized_operations=include_authorized_operations
            )
        return ConsumerGroupDescription(
            group.group_id,
            GroupType.CONSUMER,
            CONSUMER_PROTOCOL,
            GroupState.of(group.group_state),
            group.assignor_name,
            group.group_epoch,
            group.assignment_epoch,
            tuple(map(_member, group.members)),
            await cluster.coordinator(group_id),
            operations_of(group.authorized_operations),
        )

    return await by_group(group_ids, describe)


@call
async def describe_groups(
    cluster: Cluster,
    group_ids: Iterable[str],
    *,
    include_authorized_operations: bool = False,
    timeout: float | None = None,
) -> dict[str, ConsumerGroupDescription | KafkaError]:
    """Describe classic groups, including those that are not consumers: state and members.

    Only groups whose protocol type is ``consumer`` have assignments.
    """
    return await by_group(
        group_ids,
        lambda group_id: _classic_group(
            cluster, group_id, authorized_operations=include_authorized_operations
        ),
    )


async def _classic_group(
    cluster: Cluster, group_id: str, *, authorized_operations: bool
) -> ConsumerGroupDescription:
    request = DescribeGroupsRequest(
        groups=(KioGroupId(group_id),), include_authorized_operations=authorized_operations
    )
    group = await ask_about_group(cluster, group_id, request)
    state = GroupState.of(group.group_state)
    if state is GroupState.DEAD:  # Before version 6 brokers return this for an unknown group.
        raise GroupIdNotFound(f"group {group_id!r} is not found")
    return ConsumerGroupDescription(
        group.group_id,
        GroupType.CLASSIC,
        group.protocol_type,
        state,
        group.protocol_data,
        None,
        None,
        tuple(_classic_member(member, group.protocol_type) for member in group.members),
        await cluster.coordinator(group_id),
        operations_of(group.authorized_operations),
    )


@call
async def list_consumer_group_offsets(
    cluster: Cluster,
    groups: Mapping[str, Iterable[TopicPartition] | None],
    *,
    timeout: float | None = None,
) -> dict[str, dict[TopicPartition, CommittedOffset | KafkaError] | KafkaError]:
    """Return the committed offsets of consumer groups by partition.

    None in place of partitions means all partitions that the group has offsets for.
    """

    def request(group_id: str, partitions: Iterable[TopicPartition] | None) -> OffsetFetchRequest:
        return OffsetFetchRequest(
            groups=(
                OffsetFetchRequestGroup(
                    group_id=KioGroupId(group_id),
                    topics=None if partitions is None else _asked(partitions),
                ),
            ),
            # As Java's Admin by default. With it, offsets that an open transaction may still change
            # are refused (KIP-447).
            require_stable=False,
        )

    def offset(topic: Any, partition: Any) -> Answered[CommittedOffset]:
        where = TopicPartition(topic.name, partition.partition_index)
        return where, _committed(cluster, topic.name, partition)

    return await offsets_by_group(cluster, groups, request, offset)


@call
async def alter_consumer_group_offsets(
    cluster: Cluster, group_id: str, offsets: Offsets, *, timeout: float | None = None
) -> dict[TopicPartition, KafkaError | None]:
    """Set the committed offsets of a consumer group that has no members.

    A commit without a member and generation is valid only for a group without members.
    """
    to_commit = checked_offsets(offsets)
    request = OffsetCommitRequest(
        group_id=KioGroupId(group_id),
        generation_id_or_member_epoch=i32(NO_GENERATION),
        member_id="",
        topics=commit_topics(to_commit, OffsetCommitRequestTopic, OffsetCommitRequestPartition),
    )
    response = await ask_coordinator(cluster, group_id, request, lambda _: None, operation="READ")
    return by_item(to_commit, _outcomes(cluster, group_id, response), "partition")


@call
async def delete_consumer_group_offsets(
    cluster: Cluster,
    group_id: str,
    partitions: Iterable[TopicPartition],
    *,
    timeout: float | None = None,
) -> dict[TopicPartition, KafkaError | None]:
    """Delete committed offsets of a consumer group for partitions that no member reads.

    The broker refuses partitions of topics that a member subscribes to (KIP-496).
    """
    requested = tuple(partitions)
    request = OffsetDeleteRequest(
        group_id=KioGroupId(group_id),
        topics=tuple(
            OffsetDeleteRequestTopic(
                name=KioTopicName(topic),
                partitions=tuple(
                    OffsetDeleteRequestPartition(partition_index=i32(index)) for index in indexes
                ),
            )
            for topic, indexes in by_topic(dict.fromkeys(requested)).items()
        ),
    )
    response = await ask_coordinator(
        cluster, group_id, request, lambda answer: (answer,), operation="DELETE"
    )
    return by_item(requested, _outcomes(cluster, group_id, response), "partition")


def _asked(partitions: Iterable[TopicPartition]) -> tuple[OffsetFetchRequestTopics, ...]:
    return tuple(
        OffsetFetchRequestTopics(
            name=KioTopicName(topic), partition_indexes=tuple(map(i32, indexes))
        )
        for topic, indexes in by_topic(dict.fromkeys(partitions)).items()
    )


def _committed(cluster: Cluster, topic: str, partition: Any) -> CommittedOffset | KafkaError:
    error = outcome(
        cluster, partition, "DESCRIBE", topic=topic, partition=partition.partition_index
    )
    return error or CommittedOffset(
        known(partition.committed_offset),
        known(partition.committed_leader_epoch),
        partition.metadata or "",
    )


def _outcomes(
    cluster: Cluster, group_id: str, response: Any
) -> dict[TopicPartition, KafkaError | None]:
    return {
        TopicPartition(topic.name, partition.partition_index): outcome(
            cluster,
            partition,
            "READ",
            group=group_id,
            topic=topic.name,
            partition=partition.partition_index,
        )
        for topic in response.topics
        for partition in topic.partitions
    }


def _member(member: Member) -> ConsumerMemberDescription:
    return ConsumerMemberDescription(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rack_id,
        member.member_epoch,
        tuple(member.subscribed_topic_names),
        _assigned(member.assignment),
        _assigned(member.target_assignment),
        member.subscribed_topic_regex,
        GroupType.CLASSIC if member.member_type == CLASSIC_MEMBER else GroupType.CONSUMER,
    )


def _assigned(assignment: Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    )


def _classic_member(member: DescribedGroupMember, protocol_type: str) -> ConsumerMemberDescription:
    assignment = _classic_assignment(member) if protocol_type == CONSUMER_PROTOCOL else ()
    return ConsumerMemberDescription(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        None,
        None,
        (),
        assignment,
        None,
    )


def _classic_assignment(member: DescribedGroupMember) -> tuple[TopicPartition, ...]:
    """Decode the assignment that the group's leader made; empty while the group rebalances.

    All versions begin like version 0.  The broker does not check the leader's bytes, so those
    that cannot be decoded count as empty.
    """
    if len(member.member_assignment) < VERSION_BYTES:
        return ()
    try:
        assignment, _ = decode(ConsumerProtocolAssignment, member.member_assignment, VERSION_BYTES)
    except DecodeError:
        return ()
    return tuple(
        TopicPartition(topic.topic, partition)
        for topic in assignment.assigned_partitions
        for partition in topic.partitions
    )
