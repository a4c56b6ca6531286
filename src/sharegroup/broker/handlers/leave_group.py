"""LeaveGroup (13): removes members from a consumer group; before version 3 one per request."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
from kio.schema.leave_group.v5.response import LeaveGroupResponse, MemberResponse

from sharegroup.broker.handler_contract import Later, RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.core.consumer_group.member import LeavingMember
from sharegroup.errors import KafkaError
from sharegroup.ids import GroupId, MemberId
from sharegroup.steps import Steps
from sharegroup.wire.convert import downgrade

if TYPE_CHECKING:
    # At run time only the versions that clients use are imported.
    from sharegroup.broker.message_versions import OlderLeaveGroupRequest


PIECE_MEMBERS = 64
"""Members of a wide request that leave with one decision."""


def handle(
    parts: Parts, context: RequestContext, request: LeaveGroupRequest
) -> Steps[Later[LeaveGroupResponse]]:
    """Remove many members in pieces, each of which is decided and written on its own."""
    group_id = GroupId(request.group_id)
    pieces = []
    # A request without members is decided, too: its group may be unknown.
    for first in range(0, max(1, len(request.members)), PIECE_MEMBERS):
        leaving = _identities(request.members[first : first + PIECE_MEMBERS])
        pieces.append((leaving, _leave(parts, group_id, leaving)))
        yield
    return Later(_respond(parts, pieces))


def _leave(
    parts: Parts, group_id: GroupId, leaving: tuple[LeavingMember, ...]
) -> Awaitable[list[KafkaError | None]]:
    if parts.modern_groups.has(group_id):
        return parts.modern_group_coordinator.leave_classic(group_id, leaving)
    return parts.consumer_group_coordinator.leave(group_id, leaving)


def refuse(request: LeaveGroupRequest, error: KafkaError) -> LeaveGroupResponse:
    return LeaveGroupResponse(throttle_time=NO_THROTTLE, error_code=error_code(error), members=())


def from_older(
    request: OlderLeaveGroupRequest, newest: type[LeaveGroupRequest]
) -> LeaveGroupRequest:
    """Convert a request to the newest version; before version 3 it has one member."""
    if hasattr(request, "member_id"):
        members: tuple[MemberIdentity, ...] = (MemberIdentity(member_id=request.member_id),)
    else:
        members = tuple(
            MemberIdentity(member_id=member.member_id, group_instance_id=member.group_instance_id)
            for member in request.members
        )
    return newest(group_id=request.group_id, members=members)


def to_older(response: LeaveGroupResponse, wanted: type[Any]) -> Any:
    """Convert a response to an older version; before version 3 the error is not per member."""
    if any(field.name == "members" for field in fields(wanted)) or not response.members:
        return downgrade(response, wanted)
    member = response.members[0]
    return downgrade(
        LeaveGroupResponse(throttle_time=NO_THROTTLE, error_code=member.error_code, members=()),
        wanted,
    )


def _identities(members: Sequence[MemberIdentity]) -> tuple[LeavingMember, ...]:
    return tuple(
        LeavingMember(MemberId(member.member_id), member.group_instance_id) for member in members
    )


async def _respond(
    parts: Parts, pieces: list[tuple[tuple[LeavingMember, ...], Awaitable[list[KafkaError | None]]]]
) -> LeaveGroupResponse:
    members: list[MemberResponse] = []
    for leaving, pending in pieces:
        outcomes = await pending
        members += map(_member, leaving, outcomes)
        if len(pieces) > 1:
            await parts.slices.turn()
    return LeaveGroupResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, members=tuple(members)
    )


def _member(identity: LeavingMember, outcome: KafkaError | None) -> MemberResponse:
    return MemberResponse(
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
        error_code=ErrorCode.none if outcome is None else error_code(outcome),
    )
