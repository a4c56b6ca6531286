"""Groups of the other types: consumer groups of both protocols, and classic ones in general.

A group that reads topics may follow the newer protocol (KIP-848, type ``consumer``) or the
classic one with protocol type ``consumer``; both are described alike, and which it is can be
seen.  Classic groups of other protocol types (Connect's workers) are described without an
assignment, because only their own protocol knows what that is.
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
from kio.schema.types import GroupId as KioGroupId
from kio.schema.types import TopicName as KioTopicName
from kio.static.primitive import i32, i64

from sharegroup.client.admin_groups import ask_coordinator, by_group
from sharegroup.client.admin_topics import by_item, by_topic, known, outcome
from sharegroup.client.admin_types import (
    CommittedOffset,
    ConsumerGroupDescription,
    ConsumerMemberDescription,
)
from sharegroup.client.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.errors import GroupIdNotFound, KafkaError, UnsupportedVersion
from sharegroup.wire.decoder import DecodeError, decode

NO_GENERATION = -1
"""Offsets that no member commits, but an administrator."""
VERSION_BYTES = 2
DEAD = "Dead"

Descriptions = dict[str, ConsumerGroupDescription | KafkaError]


async def describe_consumer_groups(cluster: Cluster, group_ids: Iterable[str]) -> Descriptions:
    async def describe(group_id: str) -> ConsumerGroupDescription:
        request = ConsumerGroupDescribeRequest(
            group_ids=(KioGroupId(group_id),), include_authorized_operations=False
        )
        try:
            response = await ask_coordinator(cluster, group_id, request, lambda one: one.groups)
        except (GroupIdNotFound, UnsupportedVersion):
            # Not of the newer protocol, or the broker is older than that.
            return await _classic_group(cluster, group_id)
        group = response.groups[0]
        return ConsumerGroupDescription(
            group.group_id,
            "consumer",
            "consumer",
            group.group_state,
            group.assignor_name,
            group.group_epoch,
            group.assignment_epoch,
            tuple(map(_member, group.members)),
            await cluster.coordinator(group_id),
        )

    return await by_group(group_ids, describe)


async def describe_classic_groups(cluster: Cluster, group_ids: Iterable[str]) -> Descriptions:
    return await by_group(group_ids, lambda group_id: _classic_group(cluster, group_id))


async def _classic_group(cluster: Cluster, group_id: str) -> ConsumerGroupDescription:
    request = DescribeGroupsRequest(
        groups=(KioGroupId(group_id),), include_authorized_operations=False
    )
    response = await ask_coordinator(cluster, group_id, request, lambda one: one.groups)
    group = response.groups[0]
    if group.group_state == DEAD:  # What brokers before version 6 call an unknown group.
        raise GroupIdNotFound(f"group {group_id!r} is not found")
    return ConsumerGroupDescription(
        group.group_id,
        "classic",
        group.protocol_type,
        group.group_state,
        group.protocol_data,
        None,
        None,
        tuple(_classic_member(one, group.protocol_type) for one in group.members),
        await cluster.coordinator(group_id),
    )


async def list_consumer_group_offsets(
    cluster: Cluster, groups: Mapping[str, Iterable[TopicPartition] | None]
) -> dict[str, dict[TopicPartition, CommittedOffset | KafkaError] | KafkaError]:
    async def offsets(group_id: str) -> dict[TopicPartition, CommittedOffset | KafkaError]:
        partitions = groups[group_id]
        request = OffsetFetchRequest(
            groups=(
                OffsetFetchRequestGroup(
                    group_id=KioGroupId(group_id),
                    topics=None if partitions is None else _asked(partitions),
                ),
            ),
            require_stable=False,
        )
        response = await ask_coordinator(cluster, group_id, request, lambda one: one.groups)
        return {
            TopicPartition(topic.name, one.partition_index): _committed(topic.name, one)
            for topic in response.groups[0].topics
            for one in topic.partitions
        }

    return await by_group(groups, offsets)


async def alter_consumer_group_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, KafkaError | None]:
    request = OffsetCommitRequest(
        group_id=KioGroupId(group_id),
        generation_id_or_member_epoch=i32(NO_GENERATION),
        member_id="",
        topics=tuple(
            OffsetCommitRequestTopic(
                name=KioTopicName(topic),
                partitions=tuple(
                    OffsetCommitRequestPartition(
                        partition_index=i32(index), committed_offset=i64(offset),
                        committed_metadata="",
                    )
                    for index, offset in partitions.items()
                ),
            )
            for topic, partitions in by_topic(offsets).items()
        ),
    )  # fmt: skip
    response = await ask_coordinator(cluster, group_id, request, lambda _: None)
    return by_item(offsets, _outcomes(group_id, response), "partition")


async def delete_consumer_group_offsets(
    cluster: Cluster, group_id: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, KafkaError | None]:
    wanted = tuple(partitions)
    request = OffsetDeleteRequest(
        group_id=KioGroupId(group_id),
        topics=tuple(
            OffsetDeleteRequestTopic(
                name=KioTopicName(topic),
                partitions=tuple(
                    OffsetDeleteRequestPartition(partition_index=i32(index)) for index in indexes
                ),
            )
            for topic, indexes in by_topic(dict.fromkeys(wanted)).items()
        ),
    )
    response = await ask_coordinator(cluster, group_id, request, lambda answer: (answer,))
    return by_item(wanted, _outcomes(group_id, response), "partition")


def _asked(partitions: Iterable[TopicPartition]) -> tuple[OffsetFetchRequestTopics, ...]:
    return tuple(
        OffsetFetchRequestTopics(
            name=KioTopicName(topic), partition_indexes=tuple(map(i32, indexes))
        )
        for topic, indexes in by_topic(dict.fromkeys(partitions)).items()
    )


def _committed(topic: str, one: Any) -> CommittedOffset | KafkaError:
    error = outcome(one.error_code, None, topic=topic, partition=one.partition_index)
    return error or CommittedOffset(
        known(one.committed_offset), known(one.committed_leader_epoch), one.metadata or ""
    )


def _outcomes(group_id: str, response: Any) -> dict[TopicPartition, KafkaError | None]:
    return {
        TopicPartition(topic.name, one.partition_index): outcome(
            one.error_code, None, group=group_id, topic=topic.name, partition=one.partition_index
        )
        for topic in response.topics
        for one in topic.partitions
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
    )


def _assigned(assignment: Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    )


def _classic_member(member: DescribedGroupMember, protocol_type: str) -> ConsumerMemberDescription:
    assignment = _classic_assignment(member) if protocol_type == "consumer" else ()
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
    """What the group's leader wrote for this member; nothing while the group rebalances.

    All versions begin like version 0, and the broker hands on whatever the leader sent.
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
