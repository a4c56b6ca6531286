"""Requests of the members of classic groups (11 to 14): join, sync, heartbeat, leave."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import fields
from typing import Any, Protocol
from uuid import uuid4

from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.join_group.v9.request import JoinGroupRequest
from kio.schema.join_group.v9.response import JoinGroupResponse, JoinGroupResponseMember
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
from kio.schema.leave_group.v5.response import LeaveGroupResponse, MemberResponse
from kio.schema.sync_group.v5.request import SyncGroupRequest
from kio.schema.sync_group.v5.response import SyncGroupResponse
from kio.static.primitive import i32

from sharegroup.broker.access import checks as required
from sharegroup.broker.handler_contract import (
    NO_THROTTLE,
    ApiHandler,
    Handling,
    Later,
    RequestContext,
    count_ms,
    error_code,
)
from sharegroup.broker.handlers.parts import (
    HasClassicGroups,
    HasGroups,
    HasModernCoordinator,
    HasModernGroups,
    HasSlices,
)
from sharegroup.core.groups.classic.member import (
    LABEL_CHARACTERS_MAX,
    JoinReply,
    JoinRequest,
    LeavingMember,
    NewMemberId,
    Protocols,
    SyncReply,
    SyncRequest,
)
from sharegroup.errors import InconsistentGroupProtocol, KafkaError, MemberIdRequired
from sharegroup.ids import GroupId, MemberId
from sharegroup.steps import Steps, of_each
from sharegroup.wire.codec.convert import downgrade

# KIP-62: clients send the time to join apart from the session timeout.
REBALANCE_TIMEOUT_VERSION = 1
# KIP-394: a new member gets its id first, so a lost response leaves no member behind.
MEMBER_ID_REQUIRED_VERSION = 4
# KIP-814: a static leader that returns learns that it need not assign.
SKIP_ASSIGNMENT_VERSION = 9

NO_GENERATION = i32(-1)


class ClassicGroupsParts(
    HasClassicGroups, HasGroups, HasModernCoordinator, HasModernGroups, HasSlices, Protocol
):
    """What these requests touch of the broker."""


def join_group(
    parts: ClassicGroupsParts, context: RequestContext, request: JoinGroupRequest
) -> Later[JoinGroupResponse]:
    """JoinGroup (11): joins a member to its consumer group; the reply waits for all members.

    Version 0 has no rebalance timeout, so the session timeout is used.  If a protocol is named
    twice, its first metadata is used.
    """
    session_timeout_ms = count_ms(request.session_timeout)
    rebalance_timeout_ms = count_ms(request.rebalance_timeout)
    if context.api_version < REBALANCE_TIMEOUT_VERSION:
        rebalance_timeout_ms = session_timeout_ms
    # Clients choose it, and each member keeps a copy (ADR 0022).
    client_id = context.client_id[:LABEL_CHARACTERS_MAX]
    protocols: Protocols = {}
    for protocol in request.protocols:
        protocols.setdefault(protocol.name, bytes(protocol.metadata))
    join = parts.classic_group_coordinator.join
    # The group decides, not the request: classic members join groups of KIP-848 during a migration.
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
            # With a slash, as Java prints an address without a name; tools show it.
            client_host=f"/{context.peer.host}",
            # The form of Kafka's `ClassicGroup.generateMemberId`.
            new_member_id=MemberId(f"{request.group_instance_id or client_id}-{uuid4()}"),
            must_return=context.api_version >= MEMBER_ID_REQUIRED_VERSION,
            skips_assignment=context.api_version >= SKIP_ASSIGNMENT_VERSION,
            user=context.limited_user,
        ),
        context.connection_id,
    )
    return Later(_joined(pending))


def refuse_join_group(request: JoinGroupRequest, error: KafkaError) -> JoinGroupResponse:
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


async def _joined(pending: Awaitable[JoinReply | NewMemberId]) -> JoinGroupResponse:
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


PROTOCOL_VERSION = 5


def sync_group(
    parts: ClassicGroupsParts, context: RequestContext, request: SyncGroupRequest
) -> Later[SyncGroupResponse]:
    """SyncGroup (14): returns the assignment of a member; the leader sends all of them."""
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
        return Later(_synced(parts.modern_group_coordinator.sync(sync)))
    return Later(_synced(parts.classic_group_coordinator.sync(sync, context.connection_id)))


async def _synced(pending: Awaitable[SyncReply]) -> SyncGroupResponse:
    reply = await pending
    return SyncGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        assignment=reply.assignment,
    )


def heartbeat(
    parts: ClassicGroupsParts, context: RequestContext, request: HeartbeatRequest
) -> HeartbeatResponse:
    """Heartbeat (12): keeps a member in its consumer group and tells it about a rebalance."""
    group_id = GroupId(request.group_id)
    heartbeat = parts.classic_group_coordinator.heartbeat
    if parts.modern_groups.has(group_id):
        heartbeat = parts.modern_group_coordinator.heartbeat_classic
    heartbeat(
        group_id,
        MemberId(request.member_id),
        instance_id=request.group_instance_id,
        generation=request.generation_id,
    )
    return HeartbeatResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none)


PIECE_MEMBERS = 64
"""Members of a wide request that leave with one decision."""

Piece = tuple[tuple[LeavingMember, ...], Awaitable[list[KafkaError | None]] | KafkaError]
"""Members of a request, and the decision about them, or the error that prevented it."""

Outcome = tuple[LeavingMember, KafkaError | None]
"""A member of a request, and the error that prevented its departure."""


def leave_group(
    parts: ClassicGroupsParts, context: RequestContext, request: LeaveGroupRequest
) -> Steps[Later[LeaveGroupResponse]]:
    """LeaveGroup (13): removes members from a consumer group; before version 3 one per request.

    Many members are removed in pieces, each of which is decided and written on its own and may
    fail.
    """
    group_id = GroupId(request.group_id)
    pieces: list[Piece] = []
    # A request without members is decided, too: its group may be unknown.
    for first in range(0, max(1, len(request.members)), PIECE_MEMBERS):
        leaving = _identities(request.members[first : first + PIECE_MEMBERS])
        try:
            pieces.append((leaving, _leave(parts, group_id, leaving)))
        except KafkaError as error:
            if not pieces:
                raise  # No member has left, so the whole request is refused.
            pieces.append((leaving, error.with_traceback(None)))
        yield
    return Later(_left(parts, group_id, pieces))


def _leave(
    parts: ClassicGroupsParts, group_id: GroupId, leaving: tuple[LeavingMember, ...]
) -> Awaitable[list[KafkaError | None]]:
    # Asked for each piece: the members that left with the one before may have made the group a
    # classic one (KIP-848).
    if parts.modern_groups.has(group_id):
        return parts.modern_group_coordinator.leave_classic(group_id, leaving)
    return parts.classic_group_coordinator.leave(group_id, leaving)


def upgrade_leave_group(request: Any, newest: type[LeaveGroupRequest]) -> LeaveGroupRequest:
    """Convert a request to the newest version; before version 3 it has one member."""
    if hasattr(request, "member_id"):
        members: tuple[MemberIdentity, ...] = (MemberIdentity(member_id=request.member_id),)
    else:
        members = tuple(
            MemberIdentity(member_id=member.member_id, group_instance_id=member.group_instance_id)
            for member in request.members
        )
    return newest(group_id=request.group_id, members=members)


def downgrade_leave_group(response: LeaveGroupResponse, wanted: type[Any]) -> Any:
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


async def _left(
    parts: ClassicGroupsParts, group_id: GroupId, pieces: list[Piece]
) -> LeaveGroupResponse:
    """Answer when the decisions are durable; raise if a piece failed and no member has left."""
    outcomes: list[Outcome] = []
    failure: KafkaError | None = None
    for leaving, pending in pieces:
        try:
            if isinstance(pending, KafkaError):
                raise pending
            outcomes += zip(leaving, await pending, strict=True)
        except KafkaError as error:
            failure = error.with_traceback(None)
            outcomes += ((identity, failure) for identity in leaving)
        if len(pieces) > 1:
            await parts.slices.turn()
    if failure is not None:
        outcomes = _without_undone(parts, group_id, outcomes, failure)
        if all(outcome is not None for _, outcome in outcomes):
            raise failure
    members = await parts.slices.finish(of_each(_member, outcomes))
    return LeaveGroupResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none, members=members)


def _without_undone(
    parts: ClassicGroupsParts, group_id: GroupId, outcomes: list[Outcome], failure: KafkaError
) -> list[Outcome]:
    """Return the outcomes with ``failure`` for the members that are in the group again."""
    # A classic group writes most departures only when its rebalance ends.  After a failed write it
    # is read again, with the members that had left before.
    parts.groups.forget_what_failed(group_id)
    present = {
        alias
        for member_id, instance_id in _members_of(parts, group_id)
        # An administrator may name a static member by its instance id alone.
        for alias in (("member", member_id), ("instance", instance_id))
    }
    return [
        (identity, failure if outcome is None and _alias(identity) in present else outcome)
        for identity, outcome in outcomes
    ]


def _alias(identity: LeavingMember) -> tuple[str, str | None]:
    if identity.member_id:
        return "member", identity.member_id
    return "instance", identity.instance_id


def _members_of(parts: ClassicGroupsParts, group_id: GroupId) -> list[tuple[MemberId, str | None]]:
    """Return member id and instance id of the members of a consumer group of either protocol."""
    if parts.modern_groups.has(group_id):
        modern = parts.modern_group_coordinator.describe(group_id).members
        return [(described.member.member_id, described.member.instance_id) for described in modern]
    if not parts.classic_group_coordinator.has(group_id):
        return []
    members = parts.classic_group_coordinator.describe(group_id).members
    return [(member.member_id, member.instance_id) for member in members]


def _member(of_member: Outcome) -> MemberResponse:
    identity, outcome = of_member
    return MemberResponse(
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
        error_code=ErrorCode.none if outcome is None else error_code(outcome),
    )


SERVED = {
    11: ApiHandler(
        join_group,
        refuse_join_group,
        gates=(required.READ_GROUP,),
    ),
    14: ApiHandler(
        sync_group,
        gates=(required.READ_GROUP,),
    ),
    12: ApiHandler(
        heartbeat,
        gates=(required.READ_GROUP,),
    ),
    13: ApiHandler(
        leave_group,
        handling=Handling.CHANGES_IN_STEPS,
        gates=(required.READ_GROUP,),
        from_older=upgrade_leave_group,
        to_older=downgrade_leave_group,
    ),
}
