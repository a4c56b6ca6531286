"""The effect of one heartbeat on its share group: the records to write and the reply to send.

    member ─▶ subscription changed? ─▶ group epoch ─▶ target assignment ─▶ member's assignment

Nothing here changes state: the group is only read, and all results are values.

A new target assignment is made if the group epoch is above its epoch. The assignment interval can
delay that, so partitions are not moved too often. It never delays a first assignment: not while a
partition has no member, and not while a member that could read something has no partition. Kafka
lets both wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from sharegroup.core.groups.share.assignor import NOTHING, Assignment, Division, assign
from sharegroup.core.groups.share.records import (
    GroupEpoch,
    Records,
    ShareGroupRecord,
    TargetAssignment,
    TargetAssignmentEpoch,
)
from sharegroup.core.groups.share.share_group import (
    HeartbeatReply,
    ShareGroup,
    ShareGroupMember,
    Topics,
    assignable,
    existing_names,
    metadata_hash,
    subscribed_topics,
    unassigned,
)
from sharegroup.core.groups.share.sizes import DEFAULT_SIZE_LIMITS, SizeLimits
from sharegroup.core.groups.share.wide import Width
from sharegroup.core.security.principal import Principal
from sharegroup.errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidRequest,
    UnknownMemberId,
)
from sharegroup.ids import GroupId, MemberId, TopicId, TopicName

JOIN_EPOCH = 0
"""The member epoch of a member that joins, or joins again."""

MEMBER_ID_CHARACTERS_MAX = 36
"""Number of characters of a member id: that of a UUID in text form."""

MOVES_AT_ONCE = 128
"""Pairs of a member and a partition that an assignment may move in one turn: about 5 ms."""

LEAVE_EPOCH = -1
"""The member epoch of a member that leaves."""


@dataclass(frozen=True, slots=True)
class ShareGroupLimits:
    """The configuration of a group that concerns membership; it may change at any time."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    members_max: int = 200
    assignment_interval_ms: int = 1_000
    sizes: SizeLimits = DEFAULT_SIZE_LIMITS
    width: Width | None = None
    """The limits of a wide assignment; None for a simple one."""

    @property
    def assignor_name(self) -> str:
        """The name of the assignor as administrators see it."""
        return "simple" if self.width is None else "wide"


@dataclass(frozen=True, slots=True)
class ShareHeartbeat:
    """A heartbeat of a member; None in a field means no change since the last one."""

    group_id: GroupId
    member_id: MemberId
    member_epoch: int
    rack_id: str | None = None
    subscribed_topic_names: tuple[TopicName, ...] | None = None
    client_id: str = ""
    client_host: str = ""
    user: Principal | None = None
    """The user whose part of all groups limits it (`shared_totals`)."""


def check_request(request: ShareHeartbeat) -> None:
    """Raise InvalidRequest if the request is invalid for any group."""
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


def check_member(
    request: ShareHeartbeat, group: ShareGroup | None, limits: ShareGroupLimits
) -> None:
    """Raise if the group cannot serve the member."""
    prefix = f"group {request.group_id!r}, member {request.member_id!r}"
    joins = request.member_epoch == JOIN_EPOCH
    if group is None:
        if joins:
            return
        raise GroupIdNotFound(f"{prefix}: there is no such group")
    member = group.members.get(request.member_id)
    if member is None:
        if request.member_epoch != LEAVE_EPOCH and len(group.members) >= limits.members_max:
            raise GroupMaxSizeReached(f"{prefix}: the group has {limits.members_max} members")
        if joins:
            return
        raise UnknownMemberId(f"{prefix}: the group has no such member; it must join with epoch 0")
    # The previous epoch is valid, too: the reply with the new one may have been lost.  Epoch 0 is
    # always valid, so a fenced member can join again under its id (KAFKA-19233).
    expected = (JOIN_EPOCH, LEAVE_EPOCH, member.member_epoch, member.previous_member_epoch)
    if request.member_epoch not in expected:
        raise FencedMemberEpoch(
            f"{prefix}: member epoch {request.member_epoch} is fenced: expected "
            f"{member.member_epoch} or the previous epoch {member.previous_member_epoch}; the "
            "member must join again"
        )


class Assigned(NamedTuple):
    """A target assignment that was made ahead of a heartbeat, and what it was made from."""

    division: Division
    target: Mapping[MemberId, Assignment]


class _Change(NamedTuple):
    """What a heartbeat changes before the assignment."""

    stored_member: ShareGroupMember | None
    member: ShareGroupMember
    members: Mapping[MemberId, ShareGroupMember]
    partitions: Mapping[TopicId, frozenset[int]]
    epoch: int
    records: Records


def plan(
    group: ShareGroup,
    request: ShareHeartbeat,
    topics: Topics,
    *,
    limits: ShareGroupLimits,
    wall_ms: int,
    assigned: Assigned | None = None,
) -> tuple[Records, HeartbeatReply]:
    """Return the records and the reply for a checked heartbeat of a member that does not leave.

    ``assigned`` saves the work of an assignment if nothing has changed since (`large_division`).
    """
    change = _changed(group, request, topics, limits)
    records = list(change.records)
    target: Mapping[MemberId, Assignment] = group.target
    assignment_epoch = group.assignment_epoch
    division = _due_division(group, change, topics, limits, wall_ms)
    if division is not None:
        if assigned is not None and assigned.division == division:
            target = assigned.target
        else:
            target = assign(*division)
        assignment_epoch = change.epoch
        records += target_records(group, target, change.epoch, wall_ms)

    member = change.member
    updated = reconciled(member, assignment_epoch, target.get(member.member_id, NOTHING), topics)
    if updated != member or change.stored_member is None:
        records.append(updated.current_assignment(group.group_id))
    return tuple(records), _reply(request, change.stored_member, updated, limits)


def large_division(
    group: ShareGroup,
    request: ShareHeartbeat,
    topics: Topics,
    *,
    limits: ShareGroupLimits,
    wall_ms: int,
) -> Division | None:
    """Return the division that `plan` would make, if it moves more than `MOVES_AT_ONCE` pairs.

    So a change of the setting does.  A simple assignment that only adds pairs is fast.
    """
    partition_count = sum(len(topic.partitions) for topic in group.initialized.values())
    if request.member_epoch == LEAVE_EPOCH or not partition_count:
        return None
    # As if all members read all topics: this only tells whether most pairs stay.
    member_count = max(1, len(group.members))
    if limits.width is None:
        places = -(-member_count // partition_count) * partition_count
    else:
        places = limits.width.places(member_count, partition_count)
    pair_count = sum(map(len, group.target.values()))
    if abs(places - pair_count) <= MOVES_AT_ONCE or (limits.width is None and pair_count < places):
        return None
    change = _changed(group, request, topics, limits)
    return _due_division(group, change, topics, limits, wall_ms)


def _changed(
    group: ShareGroup, request: ShareHeartbeat, topics: Topics, limits: ShareGroupLimits
) -> _Change:
    """Return the member with what its request says, and the epoch of the group after it."""
    stored_member = group.members.get(request.member_id)
    member = spoken_for(stored_member or ShareGroupMember(request.member_id), request)
    members = {**group.members, member.member_id: member}
    subscribed = subscribed_topics(members.values(), topics)
    partitions = assignable(subscribed, group.initialized)

    records: list[ShareGroupRecord] = []
    if stored_member is None or stored_member.metadata(group.group_id) != member.metadata(
        group.group_id
    ):
        records.append(member.metadata(group.group_id))
    # A topic that was created, deleted or got partitions changes the hash.
    epoch, digest = group.epoch, metadata_hash(subscribed, partitions, limits.width)
    if (
        stored_member is None
        or stored_member.subscribed_topic_names != member.subscribed_topic_names
        or digest != group.metadata_hash
    ):
        epoch += 1
        records.append(GroupEpoch(group.group_id, epoch, digest))
    return _Change(stored_member, member, members, partitions, epoch, tuple(records))


def _due_division(
    group: ShareGroup,
    change: _Change,
    topics: Topics,
    limits: ShareGroupLimits,
    wall_ms: int,
) -> Division | None:
    """Return what a new target assignment is to be made from; None if none is due."""
    if group.assignment_epoch >= change.epoch:
        return None
    subscriptions = topic_ids_of(change.members.values(), topics)
    # Without partitions of topics that a member has left or that were deleted: nobody reads these,
    # although the target still has them.
    read = {
        member_id: of_topics(group.target.get(member_id, NOTHING), topic_ids)
        for member_id, topic_ids in subscriptions.items()
    }
    if (
        interval_has_passed(group, limits, wall_ms)
        or unassigned(change.partitions, read.values())
        or somebody_has_nothing(subscriptions, change.partitions, read)
    ):
        return Division(subscriptions, read, change.partitions, limits.width)
    return None


def spoken_for(member: ShareGroupMember, request: ShareHeartbeat) -> ShareGroupMember:
    """Return the member with the rack, client and subscription of its request.

    A field that is null in the request keeps its value.
    """
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


def topic_ids_of(
    members: Iterable[ShareGroupMember], topics: Topics
) -> dict[MemberId, frozenset[TopicId]]:
    """Return the existing topics that each member subscribes to."""
    return {
        member.member_id: frozenset(
            topics[name].topic_id for name in existing_names(member.subscribed_topic_names, topics)
        )
        for member in members
    }


def interval_has_passed(group: ShareGroup, limits: ShareGroupLimits, wall_ms: int) -> bool:
    """Return whether ``assignment_interval_ms`` has passed since the last target assignment.

    It counts as passed if the clock was set back.
    """
    return not 0 <= wall_ms - group.assignment_timestamp < limits.assignment_interval_ms


def of_topics(assignment: Assignment, topic_ids: frozenset[TopicId]) -> Assignment:
    """Return the part of an assignment that belongs to these topics."""
    return frozenset(partition for partition in assignment if partition.topic_id in topic_ids)


def somebody_has_nothing(
    subscriptions: Mapping[MemberId, frozenset[TopicId]],
    partitions: Mapping[TopicId, frozenset[int]],
    read: Mapping[MemberId, Assignment],
) -> bool:
    """Return whether a member has no partitions although a topic that it subscribes to has some."""
    return any(
        not read[member_id] and any(partitions.get(topic_id) for topic_id in topic_ids)
        for member_id, topic_ids in subscriptions.items()
    )


def target_records(
    group: ShareGroup, target: Mapping[MemberId, Assignment], epoch: int, wall_ms: int
) -> list[ShareGroupRecord]:
    """Return the records of the changes in the target assignment, and of its epoch."""
    return [
        *(
            TargetAssignment(group.group_id, member_id, assignment)
            for member_id, assignment in target.items()
            if group.target.get(member_id) != assignment
        ),
        TargetAssignmentEpoch(group.group_id, epoch, wall_ms),
    ]


def reconciled(
    member: ShareGroupMember, assignment_epoch: int, target: Assignment, topics: Topics
) -> ShareGroupMember:
    """Return the member with the epoch and the partitions of the target assignment.

    A member changes to the new epoch in one step, without a phase in which partitions are revoked.
    """
    # The target may be older than the member's subscription.  Partitions of topics that the member
    # no longer subscribes to are left out (KAFKA-19431, KAFKA-19468).
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
    request: ShareHeartbeat,
    stored_member: ShareGroupMember | None,
    updated: ShareGroupMember,
    limits: ShareGroupLimits,
) -> HeartbeatReply:
    """Return the reply, without the assignment if the member is certain to have it already."""
    has_it = (
        stored_member is not None
        # A request with names comes from a member that joins or has missed a reply; one with an
        # earlier epoch has missed the last one.
        and request.subscribed_topic_names is None
        and request.member_epoch == stored_member.member_epoch
        and stored_member.assignment == updated.assignment
    )
    return HeartbeatReply(
        updated.member_id,
        updated.member_epoch,
        limits.heartbeat_interval_ms,
        None if has_it else updated.assignment,
    )
