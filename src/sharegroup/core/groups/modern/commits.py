"""Checks of the members that commit and fetch offsets of a consumer group of KIP-848.

A commit is fenced by the epoch at which each partition was assigned (KIP-1251): a member may commit
with an older member epoch, as long as it has had the partition since then.
"""

from __future__ import annotations

from collections.abc import Iterable

from sharegroup.core.groups.classic.classic_groups import Committer
from sharegroup.core.groups.modern.group import ModernGroup
from sharegroup.core.groups.modern.heartbeat import existing_member
from sharegroup.core.groups.modern.member import ModernMember
from sharegroup.errors import (
    IllegalGeneration,
    StaleMemberEpoch,
    UnknownMemberId,
    UnsupportedVersion,
)
from sharegroup.ids import MemberId, TopicIdPartition

EPOCH_VERSION = 9
"""The first version of OffsetCommit with a member epoch (KIP-848)."""


def check_commit(
    group: ModernGroup,
    committer: Committer,
    partitions: Iterable[TopicIdPartition],
    *,
    api_version: int,
    is_transactional: bool,
) -> None:
    """Raise if the member may not commit offsets of these partitions.

    A commit without an epoch comes from an administrator or a consumer with a manual assignment. It
    is allowed only while the group is empty. A transactional commit may come without ids.
    """
    epoch = committer.generation
    if epoch < 0 and not group.members:
        return
    # Before KIP-447 TxnOffsetCommit had none of these fields; only the transactional id fences
    # then.
    if is_transactional and epoch < 0 and not committer.member_id and not committer.instance_id:
        return
    member = existing_member(group, committer.member_id)
    if not is_transactional and member.classic is None and api_version < EPOCH_VERSION:
        raise UnsupportedVersion(
            f"group {group.group_id!r}, member {member.member_id!r}: a member of the consumer "
            f"protocol must commit with OffsetCommit version {EPOCH_VERSION} or later, not "
            f"{api_version}"
        )
    if epoch == member.member_epoch:
        return
    if epoch > member.member_epoch:
        raise _stale(group, member, epoch, f"expected {member.member_epoch}")
    # An older epoch is normal: the member learns of a new one by its next heartbeat, and its
    # commits in between are for partitions that it still has (KIP-1251).
    for partition in partitions:
        assigned_epoch = member.assigned.get(partition, member.pending_revocation.get(partition))
        named = f"{partition.topic_id}-{partition.partition}"
        if assigned_epoch is None:
            raise _stale(group, member, epoch, f"it does not have partition {named}")
        if epoch < assigned_epoch:
            raise _stale(group, member, epoch, f"it has {named} since epoch {assigned_epoch}")


def check_fetch(group: ModernGroup, member_id: MemberId | None, epoch: int) -> None:
    """Raise if the member is not in this epoch; a request without both ids is always allowed."""
    if member_id is None and epoch < 0:
        return
    member = group.members.get(member_id or MemberId(""))
    if member is None:
        raise UnknownMemberId(f"group {group.group_id!r} has no member {member_id!r}")
    if epoch != member.member_epoch:
        raise _stale(group, member, epoch, f"expected {member.member_epoch}")


def _stale(
    group: ModernGroup, member: ModernMember, epoch: int, reason: str
) -> StaleMemberEpoch | IllegalGeneration:
    """Return the error for an epoch, as the protocol of the member names it."""
    error = StaleMemberEpoch if member.classic is None else IllegalGeneration
    return error(
        f"group {group.group_id!r}, member {member.member_id!r}: member epoch {epoch} is not "
        f"valid: {reason}"
    )
