"""Heartbeat (12): keeps a member in its consumer group and tells it about a rebalance."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.heartbeat.v4.response import HeartbeatResponse

from sharegroup.broker.handler_contract import RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.errors import KafkaError
from sharegroup.ids import GroupId, MemberId


def handle(parts: Parts, context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    group_id = GroupId(request.group_id)
    heartbeat = parts.consumer_group_coordinator.heartbeat
    if parts.modern_groups.has(group_id):
        heartbeat = parts.modern_group_coordinator.heartbeat_classic
    heartbeat(
        group_id,
        MemberId(request.member_id),
        instance_id=request.group_instance_id,
        generation=request.generation_id,
    )
    return HeartbeatResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none)


def refuse(request: HeartbeatRequest, error: KafkaError) -> HeartbeatResponse:
    return HeartbeatResponse(throttle_time=NO_THROTTLE, error_code=error_code(error))
