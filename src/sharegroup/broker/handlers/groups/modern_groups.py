"""Requests about groups with the protocol of KIP-848 (68, 69): heartbeat and describe."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Protocol
from uuid import uuid4

from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_describe.v1.response import (
    Assignment as DescribedAssignment,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions as DescribedPartitions,
)
from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest
from kio.schema.consumer_group_heartbeat.v1.response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import GroupId as WireGroupId, TopicName as WireTopicName
from kio.static.primitive import i8, i32

from sharegroup.broker.access import checks as required
from sharegroup.broker.access.group_descriptions import described_groups
from sharegroup.broker.access.permission import Permission
from sharegroup.broker.cluster.catalog import Catalog
from sharegroup.broker.cluster.coordinator_log import as_a_coordinator
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.broker.handler_contract import (
    NO_THROTTLE,
    ApiHandler,
    Handling,
    Later,
    RequestContext,
    count_ms,
    error_code,
    milliseconds,
)
from sharegroup.broker.handlers.parts import HasConfig, HasModernCoordinator, HasSlices, HasTopics
from sharegroup.broker.load.slices import Slices
from sharegroup.core.groups.classic.member import LABEL_CHARACTERS_MAX
from sharegroup.core.groups.modern.heartbeat import ModernHeartbeat
from sharegroup.core.groups.modern.member import JOIN_EPOCH, DescribedModernMember
from sharegroup.core.groups.share import assignor
from sharegroup.core.groups.share.assignor import NOTHING
from sharegroup.core.groups.share.records import by_topic
from sharegroup.core.groups.share.share_group import HeartbeatReply
from sharegroup.errors import InvalidGroupId, KafkaError, UnsupportedVersion
from sharegroup.ids import GroupId, MemberId, TopicId, TopicIdPartition, TopicName
from sharegroup.steps import STEP_ELEMENTS, Steps

MEMBER_ID_VERSION = 1
"""The first version in which the client chooses the member id (KIP-1082)."""


class ModernGroupsParts(HasConfig, HasModernCoordinator, HasSlices, HasTopics, Protocol):
    """What these requests touch of the broker."""


def consumer_group_heartbeat(
    parts: ModernGroupsParts, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> Later[ConsumerGroupHeartbeatResponse]:
    """ConsumerGroupHeartbeat (68): keeps a member in its group, returns its assignment."""
    check_enabled(parts.config)
    _check_topics(context, request)
    with as_a_coordinator():
        pending = parts.modern_group_coordinator.heartbeat(
            _decoded(context, request),
            parts.slices,
            context.connection_id,
            # Not audited: a pattern asks for no topic, it means those that the sender may describe.
            describe=Permission(context.rights, required.DESCRIBE_TOPICS, is_audited=False),
        )
    return Later(_respond(parts.slices, pending))


def _check_topics(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> None:
    """Raise TopicAuthorizationFailed if a subscribed topic may not be described."""
    describe = Permission(context.rights, required.DESCRIBE_TOPICS)
    if not describe.is_unlimited:
        for name in request.subscribed_topic_names or ():
            describe.require(name)


def check_enabled(config: LiveConfig) -> None:
    """Raise UnsupportedVersion if the configuration does not allow this protocol."""
    protocols = config.consumer_group.protocols
    if "consumer" not in protocols:
        raise UnsupportedVersion(
            "consumer groups of KIP-848 are disabled: group.coordinator.rebalance.protocols="
            f"{','.join(protocols)} does not have 'consumer'"
        )


def _decoded(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> ModernHeartbeat:
    names, owned = request.subscribed_topic_names, request.topic_partitions
    names_itself = context.api_version >= MEMBER_ID_VERSION
    member_id = request.member_id
    if not member_id and not names_itself and request.member_epoch == JOIN_EPOCH:
        # KIP-1082: only clients of version 0 let the broker choose.  If they do not get the
        # response, the member stays until its session times out.
        member_id = str(uuid4())
    return ModernHeartbeat(
        group_id=GroupId(request.group_id),
        member_id=MemberId(member_id),
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=count_ms(request.rebalance_timeout),
        subscribed_topic_names=None if names is None else tuple(map(TopicName, names)),
        subscribed_topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=(
            None
            if owned is None
            else frozenset(
                TopicIdPartition(TopicId(topic.topic_id), partition)
                for topic in owned
                if topic.topic_id is not None
                for partition in topic.partitions
            )
        ),
        client_id=context.client_id[:LABEL_CHARACTERS_MAX],
        user=context.limited_user,
        client_host=f"/{context.peer.host}",
        names_itself=names_itself,
    )


async def _respond(
    slices: Slices, pending: Awaitable[HeartbeatReply]
) -> ConsumerGroupHeartbeatResponse:
    # Once more: a heartbeat that is planned in slices is decided only while it is awaited.
    with as_a_coordinator():
        reply = await pending
    return await slices.finish(_response(reply))


def _response(reply: HeartbeatReply) -> Steps[ConsumerGroupHeartbeatResponse]:
    """Return the response in steps, because a member may have thousands of partitions."""
    topics: list[TopicPartitions] = []
    for topic_id, partitions in by_topic(reply.assignment or NOTHING).items():
        topics.append(TopicPartitions(topic_id=topic_id, partitions=tuple(map(i32, partitions))))
        if len(partitions) >= STEP_ELEMENTS:
            yield
    return ConsumerGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        member_id=reply.member_id,
        member_epoch=i32(reply.member_epoch),
        heartbeat_interval=milliseconds(reply.heartbeat_interval_ms),
        assignment=(
            None if reply.assignment is None else Assignment(topic_partitions=tuple(topics))
        ),
    )


CLASSIC_MEMBER = i8(0)
CONSUMER_MEMBER = i8(1)
"""The types of members (KIP-1099)."""


def consumer_group_describe(
    parts: ModernGroupsParts, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> Steps[ConsumerGroupDescribeResponse]:
    """ConsumerGroupDescribe (69): describes consumer groups of KIP-848 and their members."""
    groups = yield from described_groups(
        context.rights,
        request,
        describe=partial(_group, parts),
        failed=_failed,
        assignments_of=lambda member: (member.assignment, member.target_assignment),
    )
    return ConsumerGroupDescribeResponse(throttle_time=NO_THROTTLE, groups=groups)


def _group(
    parts: ModernGroupsParts, group_id: WireGroupId, operations: i32
) -> Steps[DescribedGroup]:
    try:
        if not group_id:
            raise InvalidGroupId("the group id is empty")
        group = parts.modern_group_coordinator.describe(GroupId(group_id))
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


def _member(catalog: Catalog, described: DescribedModernMember) -> Member:
    member = described.member
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=i32(member.member_epoch),
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(map(WireTopicName, member.subscribed_topic_names)),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(catalog, frozenset(member.assigned)),
        target_assignment=_assignment(catalog, described.target),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(catalog: Catalog, assignment: assignor.Assignment) -> DescribedAssignment:
    return DescribedAssignment(
        topic_partitions=tuple(
            DescribedPartitions(
                topic_id=topic_id,
                topic_name=WireTopicName(topic.name),
                partitions=tuple(map(i32, partitions)),
            )
            for topic_id, partitions in by_topic(assignment).items()
            if (topic := catalog.by_id(topic_id)) is not None
        )
    )


def _failed(group_id: WireGroupId, error: KafkaError) -> DescribedGroup:
    return DescribedGroup(
        error_code=error_code(error),
        error_message=str(error),
        group_id=group_id,
        group_state="",
        group_epoch=i32(0),
        assignment_epoch=i32(0),
        assignor_name="",
        members=(),
    )


SERVED = {
    68: ApiHandler(
        consumer_group_heartbeat,
        gates=(required.READ_GROUP,),
        checks=(required.DESCRIBE_TOPICS,),
    ),
    69: ApiHandler(
        consumer_group_describe,
        handling=Handling.READS_IN_STEPS,
        checks=(required.DESCRIBE_GROUPS, required.DESCRIBE_TOPICS),
    ),
}
