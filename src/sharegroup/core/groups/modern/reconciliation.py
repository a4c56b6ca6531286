"""Reconciliation: how one member comes from its partitions to its part of the target assignment.

A member first gives up partitions and then gets new ones, so no partition has two members:

    STABLE ──target changed──▶ something to revoke? ──yes──▶ UNREVOKED_PARTITIONS (same epoch)
                                      │ no                          │ the member confirms
                                      ▼                             │
                     target epoch ◀─────────────────────────────────┘
                          │
                          ├─ all partitions are free ──▶ STABLE
                          └─ another member still has one ──▶ UNRELEASED_PARTITIONS ──free──▶ STABLE

The member confirms a revocation by a heartbeat whose owned partitions have none of those pending.
A member that confirms too late is removed (its rebalance timeout).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sharegroup.core.groups.modern.member import NO_PARTITIONS, ModernMember
from sharegroup.core.groups.modern.records import AssignmentEpochs, MemberState
from sharegroup.core.groups.share.assignor import Assignment, of_topics
from sharegroup.errors import FencedMemberEpoch
from sharegroup.ids import MemberId, TopicId, TopicIdPartition


@dataclass(frozen=True, slots=True)
class Goal:
    """The facts that a member is reconciled with.

    ``owners`` has the partitions that are not free. ``owned`` are the partitions that the member
    says it has; None if it does not say.
    ``subscription_changed`` means that the member's request has changed its subscription.
    """

    target_epoch: int
    target: Assignment
    subscribed: frozenset[TopicId]
    subscription_changed: bool
    owners: dict[TopicIdPartition, MemberId]
    owned: Assignment | None


def reconciled(member: ModernMember, goal: Goal) -> ModernMember:
    """Return the member after the next step towards the target assignment."""
    match member.state:
        case MemberState.STABLE:
            if member.member_epoch != goal.target_epoch:
                return _next(member, goal, member.member_epoch)
            return _without_unsubscribed(member, goal) if goal.subscription_changed else member
        case MemberState.UNREVOKED_PARTITIONS:
            if not _still_owns(member.pending_revocation, goal):
                return _next(member, goal, member.member_epoch)
            return _without_unsubscribed(member, goal) if goal.subscription_changed else member
        case MemberState.UNRELEASED_PARTITIONS:
            return _next(member, goal, member.member_epoch)
        case _:
            # The partitions of the state are in fields that this version may not know. Only a
            # member that has none is certain to share none with another.
            if goal.owned is None or goal.owned:
                raise FencedMemberEpoch(
                    f"member {member.member_id!r} is in a state that this version does not know; "
                    "it must give up all partitions and join again"
                )
            return _next(member, goal, goal.target_epoch)


def _still_owns(partitions: AssignmentEpochs, goal: Goal) -> bool:
    """Return whether the member has, or may have, one of these partitions."""
    return goal.owned is None or any(partition in partitions for partition in goal.owned)


def _without_unsubscribed(member: ModernMember, goal: Goal) -> ModernMember:
    """Return the member without partitions of topics that it does not subscribe to any more."""
    lost = {
        partition: epoch
        for partition, epoch in member.assigned.items()
        if partition.topic_id not in goal.subscribed
    }
    if not lost:
        return member
    kept = {
        partition: epoch for partition, epoch in member.assigned.items() if partition not in lost
    }
    revoked = {**member.pending_revocation, **lost}
    # Without the partitions there is nothing to confirm, so the member needs no heartbeat in the
    # state UNREVOKED_PARTITIONS.
    if _still_owns(revoked, goal):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_member_epoch=member.member_epoch,
            assigned=kept,
            pending_revocation=revoked,
        )
    return replace(member, previous_member_epoch=member.member_epoch, assigned=kept)


def _next(member: ModernMember, goal: Goal, epoch: int) -> ModernMember:
    """Return the member with the free part of the target, or with partitions to revoke first."""
    # The target may be older than the subscription, so it is cut to the subscribed topics.
    target = of_topics(goal.target, goal.subscribed)
    # Differences with the sets and dicts themselves reuse their hashes; computing these is slow.
    lost = frozenset(member.assigned) - target
    revoked = {partition: member.assigned[partition] for partition in lost}
    kept = dict(member.assigned)
    for partition in lost:
        del kept[partition]
    if revoked and _still_owns(revoked, goal):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            member_epoch=epoch,
            previous_member_epoch=member.member_epoch,
            assigned=kept,
            pending_revocation=revoked,
        )
    missing = target.difference(kept)
    # A partition that the member itself had to revoke is free for it.
    free = missing.difference(goal.owners) | missing.intersection(member.pending_revocation)
    # The member gets the free ones at once: waiting for the last one would leave the others unread
    # for as long as another member takes to revoke it.
    waits = len(free) < len(missing)
    return replace(
        member,
        state=MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE,
        member_epoch=goal.target_epoch,
        previous_member_epoch=member.member_epoch,
        assigned={**kept, **dict.fromkeys(free, goal.target_epoch)},
        pending_revocation=NO_PARTITIONS,
    )
