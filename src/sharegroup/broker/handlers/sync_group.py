"""SyncGroup (14): a consumer asks what it is to read; the group's leader says what everybody is."""

from __future__ import annotations

from collections.abc import Awaitable

from kio.schema.errors import ErrorCode
from kio.schema.sync_group.v5.request import SyncGroupRequest
from kio.schema.sync_group.v5.response import SyncGroupResponse

from sharegroup.broker.dispatch import Context, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.core.consumer_group_member import SyncReply, SyncRequest
from sharegroup.errors import InconsistentGroupProtocol, KafkaError
from sharegroup.ids import GroupId, MemberId

PROTOCOL_VERSION = 5


def handle(
    parts: Parts, context: Context, request: SyncGroupRequest
) -> Awaitable[SyncGroupResponse]:
    if context.api_version >= PROTOCOL_VERSION and None in (
        request.protocol_type,
        request.protocol_name,
    ):
        raise InconsistentGroupProtocol(
            f"group {request.group_id!r}, member {request.member_id!r}: from version "
            f"{PROTOCOL_VERSION} on a member has to say protocol type and protocol name"
        )
    return _respond(
        parts.consumer_group_coordinator.sync(
            SyncRequest(
                group_id=GroupId(request.group_id),
                member_id=MemberId(request.member_id),
                instance_id=request.group_instance_id,
                generation=request.generation_id,
                protocol_type=request.protocol_type,
                protocol=request.protocol_name,
                assignments={
                    MemberId(one.member_id): bytes(one.assignment) for one in request.assignments
                },
            ),
            context.connection_id,
        )
    )


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
