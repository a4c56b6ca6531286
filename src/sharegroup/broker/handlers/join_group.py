"""JoinGroup (11): joins a member to its consumer group; the reply waits for all members."""

from __future__ import annotations

from collections.abc import Awaitable
from uuid import uuid4

from kio.schema.errors import ErrorCode
from kio.schema.join_group.v9.request import JoinGroupRequest
from kio.schema.join_group.v9.response import JoinGroupResponse, JoinGroupResponseMember
from kio.static.primitive import i32

from sharegroup.broker.handler_contract import Later, RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE, count_ms
from sharegroup.broker.parts import Parts
from sharegroup.core.consumer_group.member import (
    LABEL_CHARACTERS_MAX,
    JoinReply,
    JoinRequest,
    NewMemberId,
    Protocols,
)
from sharegroup.errors import KafkaError, MemberIdRequired
from sharegroup.ids import GroupId, MemberId

REBALANCE_TIMEOUT_VERSION = 1
MEMBER_ID_REQUIRED_VERSION = 4
SKIP_ASSIGNMENT_VERSION = 9

NO_GENERATION = i32(-1)


def handle(
    parts: Parts, context: RequestContext, request: JoinGroupRequest
) -> Later[JoinGroupResponse]:
    """Join the member; version 0 has no rebalance timeout, so the session timeout is used.

    If a protocol is named twice, its first metadata is used.
    """
    session_timeout_ms = count_ms(request.session_timeout)
    rebalance_timeout_ms = count_ms(request.rebalance_timeout)
    if context.api_version < REBALANCE_TIMEOUT_VERSION:
        rebalance_timeout_ms = session_timeout_ms
    client_id = context.client_id[:LABEL_CHARACTERS_MAX]
    protocols: Protocols = {}
    for protocol in request.protocols:
        protocols.setdefault(protocol.name, bytes(protocol.metadata))
    join = parts.consumer_group_coordinator.join
    if parts.modern_groups.has(GroupId(request.group_id)):
        join = parts.modern_group_coordinator.join
    pending = join(
        JoinRequest(
            group_id=GroupId(request.group_id),
            member_id=MemberId(request.member_id),
            instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocols=protocols,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=max(rebalance_timeout_ms, 0),
            client_id=client_id,
            client_host=f"/{context.peer.host}",
            new_member_id=MemberId(f"{request.group_instance_id or client_id}-{uuid4()}"),
            must_return=context.api_version >= MEMBER_ID_REQUIRED_VERSION,
            skips_assignment=context.api_version >= SKIP_ASSIGNMENT_VERSION,
            user=context.limited_user,
        ),
        context.connection_id,
    )
    return Later(_respond(pending))


def refuse(request: JoinGroupRequest, error: KafkaError) -> JoinGroupResponse:
    return _refused(request.member_id, error)


def _refused(member_id: str, error: KafkaError) -> JoinGroupResponse:
    return JoinGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=error_code(error),
        generation_id=NO_GENERATION,
        protocol_type=None,
        protocol_name=None,
        leader="",
        member_id=member_id,
        members=(),
    )


async def _respond(pending: Awaitable[JoinReply | NewMemberId]) -> JoinGroupResponse:
    reply = await pending
    if isinstance(reply, NewMemberId):
        return _refused(reply.member_id, MemberIdRequired("join again with this id"))
    return JoinGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        generation_id=i32(reply.generation),
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=tuple(
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata,
            )
            for member in reply.members
        ),
    )
