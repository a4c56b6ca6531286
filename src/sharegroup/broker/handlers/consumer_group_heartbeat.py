"""ConsumerGroupHeartbeat (68): keeps a member in its consumer group and returns its assignment."""

from __future__ import annotations

from collections.abc import Awaitable
from uuid import uuid4

from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest
from kio.schema.consumer_group_heartbeat.v1.response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32

from sharegroup.broker.groups.group_log import as_a_coordinator
from sharegroup.broker.handler_contract import Later, RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE, count_ms, milliseconds
from sharegroup.broker.parts import Parts
from sharegroup.broker.security import requirements as required
from sharegroup.broker.security.permission import Permission
from sharegroup.core.consumer_group.member import LABEL_CHARACTERS_MAX
from sharegroup.core.modern_group.heartbeat import HeartbeatReply, HeartbeatRequest
from sharegroup.core.modern_group.member import JOIN_EPOCH
from sharegroup.core.share_group.assignor import NOTHING
from sharegroup.core.share_group.records import by_topic
from sharegroup.errors import KafkaError, UnsupportedVersion
from sharegroup.ids import GroupId, MemberId, TopicId, TopicIdPartition, TopicName
from sharegroup.steps import STEP_ELEMENTS, Steps

MEMBER_ID_VERSION = 1
"""The first version in which the client chooses the member id (KIP-1082)."""


def handle(
    parts: Parts, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> Later[ConsumerGroupHeartbeatResponse]:
    check_enabled(parts)
    _check_topics(context, request)
    with as_a_coordinator():
        pending = parts.modern_group_coordinator.heartbeat(
            _decoded(context, request),
            parts.slices,
            context.connection_id,
            describe=Permission(context.rights, required.DESCRIBE_TOPICS, is_audited=False),
        )
    return Later(_respond(parts, pending))


def _check_topics(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> None:
    """Raise TopicAuthorizationFailed if a subscribed topic may not be described."""
    describe = Permission(context.rights, required.DESCRIBE_TOPICS)
    if not describe.is_unlimited:
        for name in request.subscribed_topic_names or ():
            describe.require(name)


def check_enabled(parts: Parts) -> None:
    """Raise UnsupportedVersion if the configuration does not allow this protocol."""
    protocols = parts.config.consumer_group.protocols
    if "consumer" not in protocols:
        raise UnsupportedVersion(
            "consumer groups of KIP-848 are disabled: group.coordinator.rebalance.protocols="
            f"{','.join(protocols)} does not have 'consumer'"
        )


def _decoded(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> HeartbeatRequest:
    names, owned = request.subscribed_topic_names, request.topic_partitions
    names_itself = context.api_version >= MEMBER_ID_VERSION
    member_id = request.member_id
    if not member_id and not names_itself and request.member_epoch == JOIN_EPOCH:
        member_id = str(uuid4())
    return HeartbeatRequest(
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


def refuse(
    request: ConsumerGroupHeartbeatRequest, error: KafkaError
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=error_code(error),
        error_message=str(error),
        member_epoch=i32(0),
        heartbeat_interval=NO_THROTTLE,
    )


async def _respond(
    parts: Parts, pending: Awaitable[HeartbeatReply]
) -> ConsumerGroupHeartbeatResponse:
    with as_a_coordinator():
        reply = await pending
    return await parts.slices.finish(_response(reply))


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
