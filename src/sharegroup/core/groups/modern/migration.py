"""Migration of a consumer group between the classic protocol and that of KIP-848.

Upgrade: a member with the new protocol joins a classic group. All classic members become members of
the new group in the state stable, with the partitions that the leader gave them.

Downgrade: the last member with the new protocol leaves a group that also has classic members. They
form a classic group again, with their parts of the target assignment.

The records that delete the old group and those of the new one are written as one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from sharegroup.core.groups.classic.classic_group import ClassicGroup
from sharegroup.core.groups.classic.member import ClassicGroupMember
from sharegroup.core.groups.classic.records import GroupMetadata, StoredMember
from sharegroup.core.groups.modern.advance import ModernGroupLimits
from sharegroup.core.groups.modern.classic_members import CONSUMER, ClassicCodec, PartitionsByName
from sharegroup.core.groups.modern.group import ModernGroup, metadata_hash
from sharegroup.core.groups.modern.member import ModernMember, with_epoch
from sharegroup.core.groups.modern.records import (
    ClassicMember,
    ModernGroupMetadata,
    ModernGroupRecord,
    ModernGroupTargetAssignmentMember,
    ModernGroupTargetAssignmentMetadata,
    Records,
)
from sharegroup.core.groups.share.assignor import NOTHING, Assignment
from sharegroup.core.groups.share.share_group import Topics
from sharegroup.errors import GroupIdNotFound
from sharegroup.ids import MemberId, TopicId, TopicIdPartition, TopicName

NameOf = Callable[[TopicId], TopicName | None]
"""Returns the name of a topic; None if it was deleted."""


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
    records.append(ModernGroupMetadata(group_id, epoch, metadata_hash(names, topics)))
    records += (
        ModernGroupTargetAssignmentMember(group_id, member.member_id, frozenset(member.assigned))
        for member in members
    )
    # With time 0 the assignment interval does not delay the assignment for the member that joins.
    records.append(ModernGroupTargetAssignmentMetadata(group_id, epoch, 0))
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
