"""ShareGroupHeartbeat (76): keeps a member in its share group and returns its assignment."""

from __future__ import annotations

from collections.abc import Awaitable

from kio.schema.errors import ErrorCode
from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest
from kio.schema.share_group_heartbeat.v1.response import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from kio.static.primitive import i32

from sharegroup.broker.groups.group_log import as_a_coordinator
from sharegroup.broker.handler_contract import Later, RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE, milliseconds
from sharegroup.broker.parts import Parts
from sharegroup.broker.security import requirements as required
from sharegroup.broker.security.permission import Permission
from sharegroup.core.share_group.heartbeat import HeartbeatReply, HeartbeatRequest
from sharegroup.core.share_group.records import by_topic
from sharegroup.errors import KafkaError
from sharegroup.ids import GroupId, MemberId, TopicName


def handle(
    parts: Parts, context: RequestContext, request: ShareGroupHeartbeatRequest
) -> Later[ShareGroupHeartbeatResponse]:
    names = request.subscribed_topic_names
    describe = Permission(context.rights, required.DESCRIBE_TOPICS)
    if not describe.is_unlimited:
        for name in names or ():
            describe.require(name)
    with as_a_coordinator():
        reply = parts.share_group_coordinator.heartbeat(
            HeartbeatRequest(
                group_id=GroupId(request.group_id),
                member_id=MemberId(request.member_id),
                member_epoch=request.member_epoch,
                rack_id=request.rack_id,
                subscribed_topic_names=(
                    None if names is None else tuple(TopicName(name) for name in names)
                ),
                client_id=context.client_id,
                client_host=f"/{context.peer.host}",
                user=context.limited_user,
            ),
            parts.slices,
        )
    return Later(_respond(reply))


def refuse(request: ShareGroupHeartbeatRequest, error: KafkaError) -> ShareGroupHeartbeatResponse:
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
