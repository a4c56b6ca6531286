"""What one heartbeat changes in its group: the records to write and the reply to send.

    member ─▶ subscription changed? ─▶ group epoch ─▶ target assignment ─▶ member's assignment

Nothing here changes anything: the group is read, the rest are values on the way to records.

A new target assignment is made when the group epoch is ahead of it.  The assignment interval
can hold that back, so that partitions are not moved about at every whim of some member; but it
never holds back a first assignment: not while a partition is read by nobody, and not while a
member that could read something has nothing.  Kafka lets both wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from sharegroup.core.assignor import NOTHING, Assignment, assign
from sharegroup.core.share_group_picture import (
    Group,
    Member,
    Topics,
    assignable,
    metadata_hash,
    subscribed_topics,
    unassigned,
)
from sharegroup.core.share_group_records import (
    Records,
    ShareGroupMetadata,
    ShareGroupRecord,
    ShareGroupTargetAssignmentMember,
    ShareGroupTargetAssignmentMetadata,
)
from sharegroup.errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidRequest,
    UnknownMemberId,
)
from sharegroup.ids import GroupId, MemberId, TopicId, TopicName

JOIN_EPOCH = 0
"""A member with this epoch joins, or joins again."""

MEMBER_ID_CHARACTERS_MAX = 36
"""As long as a UUID in words."""

LEAVE_EPOCH = -1
"""A member with this epoch leaves."""


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The configuration of a group as far as it concerns membership; may change any time."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    members_max: int = 200
    assignment_interval_ms: int = 1_000


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """What a member says; None means that nothing changed since it said so last."""

    group_id: GroupId
    member_id: MemberId
    member_epoch: int
    rack_id: str | None = None
    subscribed_topic_names: tuple[TopicName, ...] | None = None
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """What the member is told; an assignment of None means that it has what it had."""

    member_id: MemberId
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Assignment | None


def check_request(request: HeartbeatRequest) -> None:
    """Raise what is wrong with the request, whatever the group."""
    problem = ""
    if not request.group_id.strip():
        problem = "the group id is empty"
    elif not request.member_id.strip():
        problem = "the member id is empty"
    elif len(request.member_id) > MEMBER_ID_CHARACTERS_MAX:
        problem = f"the member id is longer than {MEMBER_ID_CHARACTERS_MAX} characters"
    elif request.rack_id is not None and not request.rack_id.strip():
        problem = "the rack id is empty; leave it out if there is none"
    elif request.member_epoch < LEAVE_EPOCH:
        problem = f"the member epoch must be -1 or more, not {request.member_epoch}"
    elif request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names:
        problem = "a member that joins must subscribe to a topic"
    if problem:
        raise InvalidRequest(f"group {request.group_id!r}, member {request.member_id!r}: {problem}")


def check_member(request: HeartbeatRequest, group: Group | None, limits: GroupLimits) -> None:
    """Raise what keeps the member from being served, now that its group is known."""
    named = f"group {request.group_id!r}, member {request.member_id!r}"
    joins = request.member_epoch == JOIN_EPOCH
    if group is None:
        if joins:
            return
        raise GroupIdNotFound(f"{named}: there is no such group")
    member = group.members.get(request.member_id)
    if member is None:
        if request.member_epoch != LEAVE_EPOCH and len(group.members) >= limits.members_max:
            raise GroupMaxSizeReached(f"{named}: the group has {limits.members_max} members")
        if joins:
            return
        raise UnknownMemberId(f"{named}: the group has no such member; it must join with epoch 0")
    # The previous epoch is as good: the reply that told the new one may have been lost.
    expected = (JOIN_EPOCH, LEAVE_EPOCH, member.member_epoch, member.previous_member_epoch)
    if request.member_epoch not in expected:
        raise FencedMemberEpoch(
            f"{named}: member epoch {request.member_epoch} came, {member.member_epoch} was "
            f"expected or {member.previous_member_epoch} before it; the member must join again"
        )


def plan(
    group: Group,
    request: HeartbeatRequest,
    topics: Topics,
    *,
    limits: GroupLimits,
    wall_ms: int,
) -> tuple[Records, HeartbeatReply]:
    """The records and the reply for a heartbeat that passed both checks and does not leave."""
    known = group.members.get(request.member_id)
    member = spoken_for(known or Member(request.member_id), request)
    members = {**group.members, member.member_id: member}
    subscribed = subscribed_topics(members.values(), topics)
    partitions = assignable(subscribed, group.initialized)

    records: list[ShareGroupRecord] = []
    if known is None or known.metadata(group.group_id) != member.metadata(group.group_id):
        records.append(member.metadata(group.group_id))
    epoch, digest = group.epoch, metadata_hash(subscribed, partitions)
    if (
        known is None
        or known.subscribed_topic_names != member.subscribed_topic_names
        or digest != group.metadata_hash
    ):
        epoch += 1
        records.append(ShareGroupMetadata(group.group_id, epoch, digest))

    target, assignment_epoch = group.target, group.assignment_epoch
    if assignment_epoch < epoch:
        subscriptions = topic_ids_of(members.values(), topics)
        read = {
            member_id: of_topics(target.get(member_id, NOTHING), topic_ids)
            for member_id, topic_ids in subscriptions.items()
        }
        if (
            interval_has_passed(group, limits, wall_ms)
            or unassigned(partitions, read.values())
            or somebody_has_nothing(subscriptions, partitions, read)
        ):
            target, assignment_epoch = assign(subscriptions, read, partitions), epoch
            records += target_records(group, target, epoch, wall_ms)

    told = reconciled(member, assignment_epoch, target.get(member.member_id, NOTHING), topics)
    if told != member or known is None:
        records.append(told.current_assignment(group.group_id))
    return tuple(records), _reply(request, known, told, limits)


def spoken_for(member: Member, request: HeartbeatRequest) -> Member:
    """The member as its request describes it."""
    names = request.subscribed_topic_names
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        subscribed_topic_names=(
            member.subscribed_topic_names if names is None else tuple(sorted(set(names)))
        ),
    )


def topic_ids_of(members: Iterable[Member], topics: Topics) -> dict[MemberId, frozenset[TopicId]]:
    """The topics that exist of those that each member subscribes to."""
    return {
        member.member_id: frozenset(
            topics[name].topic_id for name in member.subscribed_topic_names if name in topics
        )
        for member in members
    }


def interval_has_passed(group: Group, limits: GroupLimits, wall_ms: int) -> bool:
    """Whether the last assignment is old enough; a clock that went back does not count."""
    return not 0 <= wall_ms - group.assignment_timestamp < limits.assignment_interval_ms


def of_topics(assignment: Assignment, topic_ids: frozenset[TopicId]) -> Assignment:
    """What is left of an assignment for a member that wants these topics."""
    return frozenset(partition for partition in assignment if partition.topic_id in topic_ids)


def somebody_has_nothing(
    subscriptions: Mapping[MemberId, frozenset[TopicId]],
    partitions: Mapping[TopicId, frozenset[int]],
    read: Mapping[MemberId, Assignment],
) -> bool:
    """Whether a member that reads nothing subscribes to a topic that has partitions."""
    return any(
        not read[member_id] and any(partitions.get(topic_id) for topic_id in topic_ids)
        for member_id, topic_ids in subscriptions.items()
    )


def target_records(
    group: Group, target: Mapping[MemberId, Assignment], epoch: int, wall_ms: int
) -> list[ShareGroupRecord]:
    """What differs from the target assignment before, and then that it holds."""
    return [
        *(
            ShareGroupTargetAssignmentMember(group.group_id, member_id, assignment)
            for member_id, assignment in target.items()
            if group.target.get(member_id) != assignment
        ),
        ShareGroupTargetAssignmentMetadata(group.group_id, epoch, wall_ms),
    ]


def reconciled(member: Member, assignment_epoch: int, target: Assignment, topics: Topics) -> Member:
    """The member once it is told: it goes to the assignment's epoch in one step.

    Until the target follows its subscription it gets no more than what it still wants.
    """
    assignment = of_topics(target, topic_ids_of([member], topics)[member.member_id])
    if member.member_epoch == assignment_epoch:
        return replace(member, assignment=assignment)
    return replace(
        member,
        member_epoch=assignment_epoch,
        previous_member_epoch=member.member_epoch,
        assignment=assignment,
    )


def _reply(
    request: HeartbeatRequest, known: Member | None, told: Member, limits: GroupLimits
) -> HeartbeatReply:
    """The assignment goes along unless the member surely has it already."""
    has_it = (
        known is not None
        and request.subscribed_topic_names is None
        and request.member_epoch == known.member_epoch
        and known.assignment == told.assignment
    )
    return HeartbeatReply(
        told.member_id,
        told.member_epoch,
        limits.heartbeat_interval_ms,
        None if has_it else told.assignment,
    )
