"""Migration of a consumer group between the classic protocol and that of KIP-848.

Upgrade: a member with the new protocol joins a classic group. All classic members become members of
the new group in the state stable, with the partitions that the leader gave them.

Downgrade: the last member with the new protocol leaves a group that also has classic members. They
form a classic group again, with their parts of the target assignment.

The records that delete the old group and those of the new one are written as one batch.

While both kinds of members are in a group, a classic one joins, syncs and sends classic heartbeats.
Its generation is its member epoch, and SyncGroup returns the partitions that it has been reconciled
to.  No member is the leader, because the broker assigns (KIP-848 «Supporting Online Consumer Group
Upgrade»).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from sharegroup.core.groups.classic.classic_group import ClassicGroup
from sharegroup.core.groups.classic.member import ClassicGroupMember, JoinRequest, SyncRequest
from sharegroup.core.groups.classic.records import GroupMetadata, StoredMember
from sharegroup.core.groups.modern.advance import ModernGroupLimits
from sharegroup.core.groups.modern.group import ModernGroup, metadata_hash
from sharegroup.core.groups.modern.member import ModernMember, with_epoch
from sharegroup.core.groups.modern.records import (
    ClassicMember,
    MemberState,
    ModernGroupRecord,
    Records,
)
from sharegroup.core.groups.share.assignor import NOTHING, Assignment
from sharegroup.core.groups.share.records import GroupEpoch, TargetAssignment, TargetAssignmentEpoch
from sharegroup.core.groups.share.share_group import Topics
from sharegroup.errors import (
    GroupIdNotFound,
    IllegalGeneration,
    InconsistentGroupProtocol,
    UnknownMemberId,
)
from sharegroup.ids import MemberId, TopicId, TopicIdPartition, TopicName

NameOf = Callable[[TopicId], TopicName | None]
"""Returns the name of a topic; None if it was deleted."""

CONSUMER = "consumer"
"""The protocol type of consumers, the only one that a group of KIP-848 can have."""

PartitionsByName = Mapping[TopicName, Sequence[int]]


class ClassicSubscription(NamedTuple):
    """A member's subscription in the classic protocol, decoded."""

    topic_names: tuple[TopicName, ...]
    owned: PartitionsByName
    rack_id: str | None


class ClassicAssignment(NamedTuple):
    """A member's assignment in the classic protocol, decoded."""

    partitions: PartitionsByName
    has_user_data: bool


@dataclass(frozen=True, slots=True)
class ClassicCodec:
    """Decodes and encodes the bytes that consumers exchange in the classic protocol.

    A decoder returns None for bytes that it cannot decode. ``encode_assignment`` takes the member's
    subscription, whose version the assignment has to have.
    """

    subscription: Callable[[bytes], ClassicSubscription | None]
    assignment: Callable[[bytes], ClassicAssignment | None]
    encode_assignment: Callable[[PartitionsByName, bytes], bytes]


def check_protocols(group: ModernGroup, request: JoinRequest) -> None:
    """Raise InconsistentGroupProtocol if the members would have no classic protocol in common."""
    counts: dict[str, int] = {}
    for member in group.members.values():
        for name, _ in () if member.classic is None else member.classic.protocols:
            counts[name] = counts.get(name, 0) + 1
    # Members of the new protocol have no classic protocols, and take no part in the choice.
    needed = group.classic_count
    if request.protocol_type != CONSUMER or not any(
        counts.get(name, 0) == needed for name in request.protocols
    ):
        raise InconsistentGroupProtocol(
            f"group {group.group_id!r}, member {request.member_id!r}: expected protocol type "
            f"'consumer' and a protocol that all {needed} classic members support, found type "
            f"{request.protocol_type!r} with {sorted(request.protocols)}"
        )


def classic_member(request: JoinRequest) -> ClassicMember:
    """Return the classic properties of a member that joins."""
    return ClassicMember(request.session_timeout_ms, tuple(request.protocols.items()))


def joined_member(
    member: ModernMember, request: JoinRequest, subscription: ClassicSubscription
) -> ModernMember:
    """Return the member with the properties of its request to join."""
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        subscribed_topic_names=tuple(sorted(set(subscription.topic_names))),
        # Consumers of the classic protocol match patterns themselves, and name the topics.
        subscribed_topic_regex="",
        classic=classic_member(request),
    )


def check_generation(group: ModernGroup, member: ModernMember, *, generation: int) -> ClassicMember:
    """Return the classic properties; raise if the member has none or another member epoch."""
    prefix = f"group {group.group_id!r}, member {member.member_id!r}"
    if member.classic is None:
        raise UnknownMemberId(f"{prefix}: the member does not use the classic protocol")
    if generation != member.member_epoch:
        raise IllegalGeneration(
            f"{prefix}: expected generation {member.member_epoch}, which is the member epoch, "
            f"found {generation}"
        )
    return member.classic


def check_synced_protocol(group: ModernGroup, classic: ClassicMember, request: SyncRequest) -> None:
    """Raise InconsistentGroupProtocol if the request names another protocol than its join did."""
    # The member's own first protocol, as in the answer to its join: the broker assigns, so members
    # need not agree on one.
    expected = (CONSUMER, classic.protocols[0][0])
    for requested, joined in zip((request.protocol_type, request.protocol), expected, strict=True):
        # Clients before version 5 of SyncGroup (KIP-559) send neither.
        if requested is not None and requested != joined:
            raise InconsistentGroupProtocol(
                f"group {group.group_id!r}, member {request.member_id!r}: expected {joined!r}, "
                f"found {requested!r}"
            )


def must_rejoin(group: ModernGroup, member: ModernMember) -> bool:
    """Return whether the member has to join again to revoke partitions or to get more."""
    if member.member_epoch < group.assignment_epoch:
        return True
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    # As in Kafka (`ConsumerGroup.waitingOnUnreleasedPartition`): a member of the classic protocol
    # gets partitions only by joining again, so it is asked once, when all of them are free.
    return member.state is MemberState.UNRELEASED_PARTITIONS and all(
        group.is_free(partition)
        for partition in group.target.get(member.member_id, NOTHING)
        if partition not in member.assigned
    )


def must_rejoin_to_sync(group: ModernGroup, member: ModernMember) -> bool:
    """Return whether the assignment that a sync would return is out of date."""
    return (
        # A member that has to revoke is not sent back: its smaller assignment, which this sync
        # returns, is what tells it to revoke.
        group.assignment_epoch > member.member_epoch
        and member.state is not MemberState.UNREVOKED_PARTITIONS
    )


def check_upgrade(classic: ClassicGroup, limits: ModernGroupLimits) -> None:
    """Raise GroupIdNotFound if a classic group with members cannot become a group of KIP-848."""
    problem = ""
    if not limits.upgrades:
        problem = "group.consumer.migration.policy does not allow an upgrade"
    elif classic.protocol_type != CONSUMER:
        problem = f"its members have the protocol type {classic.protocol_type!r}, not 'consumer'"
    elif len(classic.members) > limits.members_max:
        problem = f"it has {len(classic.members)} members; {limits.members_max} are allowed"
    if problem:
        raise _not_upgradable(classic, problem)


def _not_upgradable(classic: ClassicGroup, problem: str) -> GroupIdNotFound:
    return GroupIdNotFound(
        f"group {classic.group_id!r} is a classic group and cannot be upgraded: {problem}"
    )


def upgraded(classic: ClassicGroup, topics: Topics, codec: ClassicCodec) -> Records:
    """Return the records of the group that a classic group with members becomes."""
    # The epochs continue the generation, so a commit that a classic member has under way is still
    # valid after the upgrade.
    group_id, epoch = classic.group_id, classic.generation
    # A group whose first rebalance is under way has no protocol yet.
    protocol = classic.protocol or classic.members.select_protocol()
    members = [
        _upgraded_member(classic, member, protocol, topics, codec) for member in classic.members
    ]
    names = {name for member in members for name in member.subscribed_topic_names}
    records: list[ModernGroupRecord] = [member.metadata(group_id) for member in members]
    records.append(GroupEpoch(group_id, epoch, metadata_hash(names, topics)))
    records += (
        TargetAssignment(group_id, member.member_id, frozenset(member.assigned))
        for member in members
    )
    # With time 0 the assignment interval does not delay the assignment for the member that joins.
    records.append(TargetAssignmentEpoch(group_id, epoch, 0))
    records += (member.current_assignment(group_id) for member in members)
    return tuple(records)


def _upgraded_member(
    classic: ClassicGroup,
    member: ClassicGroupMember,
    protocol: str,
    topics: Topics,
    codec: ClassicCodec,
) -> ModernMember:
    subscription = codec.subscription(member.protocols[protocol])
    if subscription is None:
        raise _not_upgradable(
            classic, f"the subscription of member {member.member_id!r} cannot be decoded"
        )
    assigned: Assignment = NOTHING
    # Empty for a member that has joined and not synced yet.
    if member.assignment:
        assignment = codec.assignment(member.assignment)
        if assignment is None:
            raise _not_upgradable(
                classic, f"the assignment of member {member.member_id!r} cannot be decoded"
            )
        if assignment.has_user_data:
            raise _not_upgradable(
                classic, "its assignor stores its own data, which the upgrade would lose"
            )
        assigned = partitions_of(assignment.partitions, topics)
    return ModernMember(
        member.member_id,
        member.instance_id,
        subscription.rack_id or None,
        member.client_id,
        member.client_host,
        tuple(sorted(set(subscription.topic_names))),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMember(member.session_timeout_ms, tuple(member.protocols.items())),
        member_epoch=classic.generation,
        previous_member_epoch=classic.generation,
        assigned=with_epoch(assigned, classic.generation),
    )


def partitions_of(by_name: PartitionsByName, topics: Topics) -> Assignment:
    """Return those of the partitions whose topics exist, with the ids of the topics."""
    return frozenset(
        TopicIdPartition(topic.topic_id, number)
        for name, numbers in by_name.items()
        if (topic := topics.get(name)) is not None
        for number in numbers
        if 0 <= number < topic.partition_count
    )


def by_name(partitions: Iterable[TopicIdPartition], name_of: NameOf) -> dict[TopicName, list[int]]:
    """Return the partitions of existing topics, with the names of the topics."""
    named: dict[TopicName, list[int]] = {}
    for topic_id, number in sorted(partitions):
        name = name_of(topic_id)
        if name is not None:
            named.setdefault(name, []).append(number)
    return named


def can_downgrade(
    group: ModernGroup, leaving: Collection[MemberId], limits: ModernGroupLimits
) -> bool:
    """Return whether the group becomes a classic group when these members leave."""
    staying = [member for member in group.members.values() if member.member_id not in leaving]
    return (
        limits.downgrades
        and 0 < len(staying) <= limits.classic_members_max
        and all(member.classic is not None for member in staying)
    )


def downgraded(
    group: ModernGroup,
    stand_ins: Mapping[MemberId, ClassicMember | None],
    *,
    name_of: NameOf,
    codec: ClassicCodec,
    wall_ms: int,
) -> GroupMetadata:
    """Return the record of the classic group that a group becomes.

    ``stand_ins`` has the members that leave, with None, and a static member whose successor uses
    the classic protocol, with the properties of the successor.
    """
    members = [
        member
        if member.member_id not in stand_ins
        else replace(member, classic=stand_ins[member.member_id])
        for member in group.members.values()
    ]
    classic_members = [(member, member.classic) for member in members if member.classic is not None]
    protocol = _selected_protocol([classic for _, classic in classic_members])
    stored: list[StoredMember] = []
    for member, classic in classic_members:
        subscription = dict(classic.protocols)[protocol]
        # The target, not what the member has: the new group begins in the state stable, as in Kafka
        # (`ClassicGroup.fromConsumerGroup`).
        target = group.target.get(member.member_id, NOTHING)
        stored.append(
            StoredMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                classic.session_timeout_ms,
                member.rebalance_timeout_ms,
                subscription,
                codec.encode_assignment(by_name(target, name_of), subscription),
            )
        )
    return GroupMetadata(
        group.group_id,
        CONSUMER,
        group.epoch,
        protocol,
        stored[0].member_id,
        wall_ms,
        tuple(stored),
    )


def _selected_protocol(members: list[ClassicMember]) -> str:
    """Return the protocol with the most votes among those that all members support."""
    common = set.intersection(*({name for name, _ in member.protocols} for member in members))
    votes: dict[str, int] = {}
    for member in members:
        choice = next(name for name, _ in member.protocols if name in common)
        votes[choice] = votes.get(choice, 0) + 1
    return max(votes, key=lambda name: votes[name])
