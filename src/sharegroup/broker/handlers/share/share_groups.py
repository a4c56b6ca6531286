"""Requests about share groups (76, 77): heartbeat and describe."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Protocol

from kio.schema.errors import ErrorCode
from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
from kio.schema.share_group_describe.v1.response import (
    Assignment as DescribedAssignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeResponse,
    TopicPartitions as DescribedPartitions,
)
from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest
from kio.schema.share_group_heartbeat.v1.response import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from kio.schema.types import GroupId as WireGroupId, TopicName as WireTopicName
from kio.static.primitive import i32

from sharegroup.broker.access import checks as required
from sharegroup.broker.access.group_descriptions import described_groups
from sharegroup.broker.access.permission import Permission
from sharegroup.broker.cluster.catalog import Catalog
from sharegroup.broker.cluster.coordinator_log import as_a_coordinator
from sharegroup.broker.handler_contract import (
    NO_THROTTLE,
    ApiHandler,
    Handling,
    Later,
    RequestContext,
    error_code,
    milliseconds,
)
from sharegroup.broker.handlers.parts import HasShareGroups, HasSlices, HasTopics
from sharegroup.core.groups.share.heartbeat import ShareHeartbeat
from sharegroup.core.groups.share.records import by_topic
from sharegroup.core.groups.share.share_group import HeartbeatReply, ShareGroupMember
from sharegroup.errors import KafkaError
from sharegroup.ids import GroupId, MemberId, TopicName
from sharegroup.steps import Steps


class ShareGroupsParts(HasShareGroups, HasSlices, HasTopics, Protocol):
    """What these requests touch of the broker."""


def share_group_heartbeat(
    parts: ShareGroupsParts, context: RequestContext, request: ShareGroupHeartbeatRequest
) -> Later[ShareGroupHeartbeatResponse]:
    """ShareGroupHeartbeat (76): keeps a member in its share group and returns its assignment."""
    names = request.subscribed_topic_names
    describe = Permission(context.rights, required.DESCRIBE_TOPICS)
    if not describe.is_unlimited:
        # One denied name fails the whole request, as in `KafkaApis.handleShareGroupHeartbeat`.
        for name in names or ():
            describe.require(name)
    with as_a_coordinator():
        reply = parts.share_group_coordinator.heartbeat(
            ShareHeartbeat(
                group_id=GroupId(request.group_id),
                member_id=MemberId(request.member_id),
                member_epoch=request.member_epoch,
                rack_id=request.rack_id,
                subscribed_topic_names=(
                    None if names is None else tuple(TopicName(name) for name in names)
                ),
                client_id=context.client_id,
                # Java prints an address with this slash, and Kafka stores and shows it so.
                client_host=f"/{context.peer.host}",
                user=context.limited_user,
            ),
            parts.slices,
        )
    return Later(_respond(reply))


def refuse_share_group_heartbeat(
    request: ShareGroupHeartbeatRequest, error: KafkaError
) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=error_code(error),
        error_message=str(error),
        member_id=request.member_id,
        member_epoch=i32(0),
        heartbeat_interval=milliseconds(0),
    )


async def _respond(pending: Awaitable[HeartbeatReply]) -> ShareGroupHeartbeatResponse:
    with as_a_coordinator():
        reply = await pending
    return ShareGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        member_id=reply.member_id,
        member_epoch=i32(reply.member_epoch),
        heartbeat_interval=milliseconds(reply.heartbeat_interval_ms),
        assignment=(
            None
            if reply.assignment is None
            else Assignment(
                topic_partitions=tuple(
                    TopicPartitions(topic_id=topic_id, partitions=tuple(map(i32, partitions)))
                    for topic_id, partitions in by_topic(reply.assignment).items()
                )
            )
        ),
    )


def share_group_describe(
    parts: ShareGroupsParts, context: RequestContext, request: ShareGroupDescribeRequest
) -> Steps[ShareGroupDescribeResponse]:
    """ShareGroupDescribe (77): describes share groups, their members and their assignments."""
    groups = yield from described_groups(
        context.rights,
        request,
        describe=partial(_group, parts),
        failed=_failed,
        assignments_of=lambda member: (member.assignment,),
    )
    return ShareGroupDescribeResponse(throttle_time=NO_THROTTLE, groups=groups)


def _group(
    parts: ShareGroupsParts, group_id: WireGroupId, operations: i32
) -> Steps[DescribedGroup]:
    try:
        group = parts.share_group_coordinator.describe(GroupId(group_id))
    except KafkaError as error:
        return _failed(group_id, error)
    members = []
    for member in group.members:
        members.append(_member(parts.topics.catalog, member))
        yield  # A member may have thousands of partitions and topic names.
    return DescribedGroup(
        error_code=ErrorCode.none,
        group_id=group_id,
        group_state=group.state,
        group_epoch=i32(group.epoch),
        assignment_epoch=i32(group.assignment_epoch),
        assignor_name=group.assignor_name,
        members=tuple(members),
        authorized_operations=operations,
    )


def _member(catalog: Catalog, member: ShareGroupMember) -> Member:
    assigned = by_topic(member.assignment).items()
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=i32(member.member_epoch),
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(map(WireTopicName, member.subscribed_topic_names)),
        assignment=DescribedAssignment(
            topic_partitions=tuple(
                DescribedPartitions(
                    topic_id=topic_id,
                    topic_name=WireTopicName(topic.name),
                    partitions=tuple(map(i32, partitions)),
                )
                for topic_id, partitions in assigned
                # A topic may be deleted while its partitions are still in an assignment.
                if (topic := catalog.by_id(topic_id)) is not None
            )
        ),
    )


def _failed(group_id: WireGroupId, error: KafkaError) -> DescribedGroup:
    return DescribedGroup(
        error_code=error_code(error),
        error_message=str(error),
        group_id=group_id,
        group_state="Dead",
        group_epoch=i32(0),
        assignment_epoch=i32(0),
        assignor_name="",
        members=(),
    )


SERVED = {
    76: ApiHandler(
        share_group_heartbeat,
        refuse_share_group_heartbeat,
        gates=(required.READ_GROUP,),
        checks=(required.DESCRIBE_TOPICS,),
    ),
    77: ApiHandler(
        share_group_describe,
        handling=Handling.READS_IN_STEPS,
        checks=(required.DESCRIBE_GROUPS, required.DESCRIBE_TOPICS),
        refused={"group_state": "Dead"},
    ),
}
