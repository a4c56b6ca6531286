"""SyncGroup (14): returns the assignment of a member; the group leader sends all assignments."""

from __future__ import annotations

from collections.abc import Awaitable

from kio.schema.errors import ErrorCode
from kio.schema.sync_group.v5.request import SyncGroupRequest
from kio.schema.sync_group.v5.response import SyncGroupResponse

from sharegroup.broker.handler_contract import Later, RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.core.consumer_group.member import SyncReply, SyncRequest
from sharegroup.errors import InconsistentGroupProtocol, KafkaError
from sharegroup.ids import GroupId, MemberId

PROTOCOL_VERSION = 5


def handle(
    parts: Parts, context: RequestContext, request: SyncGroupRequest
) -> Later[SyncGroupResponse]:
    if context.api_version >= PROTOCOL_VERSION and None in (
        request.protocol_type,
        request.protocol_name,
    ):
        raise InconsistentGroupProtocol(
            f"group {request.group_id!r}, member {request.member_id!r}: from version "
            f"{PROTOCOL_VERSION} on a member must send its protocol type and protocol name"
        )
    sync = SyncRequest(
        group_id=GroupId(request.group_id),
        member_id=MemberId(request.member_id),
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments={
            MemberId(assignment.member_id): bytes(assignment.assignment)
            for assignment in request.assignments
        },
    )
    if parts.modern_groups.has(sync.group_id):
        return Later(_respond(parts.modern_group_coordinator.sync(sync)))
    return Later(_respond(parts.consumer_group_coordinator.sync(sync, context.connection_id)))


def refuse(request: SyncGroupRequest, error: KafkaError) -> SyncGroupResponse:
    return SyncGroupResponse(
        throttle_time=NO_THROTTLE, error_code=error_code(error), assignment=b""
    )


async def _respond(pending: Awaitable[SyncReply]) -> SyncGroupResponse:
    reply = await pending
    return SyncGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        assignment=reply.assignment,
    )
