"""LeaveGroup (13): consumers leave; before version 3 one at a time."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import fields
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
from kio.schema.leave_group.v5.response import LeaveGroupResponse, MemberResponse

from sharegroup.broker.dispatch import Context, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.core.consumer_group_member import Identity
from sharegroup.errors import KafkaError
from sharegroup.ids import GroupId, MemberId
from sharegroup.wire.convert import downgrade


def handle(
    parts: Parts, context: Context, request: LeaveGroupRequest
) -> Awaitable[LeaveGroupResponse]:
    leaving = tuple(
        Identity(MemberId(one.member_id), one.group_instance_id) for one in request.members
    )
    pending = parts.consumer_group_coordinator.leave(GroupId(request.group_id), leaving)
    return _respond(leaving, pending)


def refuse(request: LeaveGroupRequest, error: KafkaError) -> LeaveGroupResponse:
    return LeaveGroupResponse(throttle_time=NO_THROTTLE, error_code=error_code(error), members=())


def from_older(request: Any, newest: type[Any]) -> LeaveGroupRequest:
    """Before version 3 a request named one member."""
    old = getattr(request, "members", None)
    members = (
        (MemberIdentity(member_id=request.member_id),)
        if old is None
        else tuple(
            MemberIdentity(member_id=one.member_id, group_instance_id=one.group_instance_id)
            for one in old
        )
    )
    return LeaveGroupRequest(group_id=request.group_id, members=members)


def to_older(response: LeaveGroupResponse, wanted: type[Any]) -> Any:
    """Before version 3 the one member's error was that of the whole response."""
    if any(field.name == "members" for field in fields(wanted)) or not response.members:
        return downgrade(response, wanted)
    only = response.members[0]
    return downgrade(
        LeaveGroupResponse(throttle_time=NO_THROTTLE, error_code=only.error_code, members=()),
        wanted,
    )


async def _respond(
    leaving: tuple[Identity, ...], pending: Awaitable[list[KafkaError | None]]
) -> LeaveGroupResponse:
    outcomes = await pending
    return LeaveGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        members=tuple(
            MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.instance_id,
                error_code=ErrorCode.none if outcome is None else error_code(outcome),
            )
            for identity, outcome in zip(leaving, outcomes, strict=True)
        ),
    )
