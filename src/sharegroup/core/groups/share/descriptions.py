"""Share groups and their members as administrators see them."""

from __future__ import annotations

from dataclasses import dataclass

from sharegroup.core.groups.share.assignor import Assignment
from sharegroup.core.groups.share.share_group import ShareGroup, ShareGroupMember
from sharegroup.ids import GroupId, MemberId, TopicName

STABLE = "Stable"
EMPTY = "Empty"


@dataclass(frozen=True, slots=True)
class ListedShareGroup:
    """A group in the result of ListGroups."""

    group_id: GroupId
    state: str


@dataclass(frozen=True, slots=True)
class DescribedShareMember:
    """A member in the result of ShareGroupDescribe."""

    member_id: MemberId
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[TopicName, ...]
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class DescribedShareGroup:
    """A group in the result of ShareGroupDescribe."""

    group_id: GroupId
    state: str
    epoch: int
    assignment_epoch: int
    assignor_name: str
    members: tuple[DescribedShareMember, ...]


def state_of(group: ShareGroup) -> str:
    """Return the state name on the wire: ``Empty`` for a group without members, else ``Stable``.

    A share group has no state for a rebalance (KIP-932).
    """
    return STABLE if group.members else EMPTY


def described(member: ShareGroupMember) -> DescribedShareMember:
    """Return the description of a member for ShareGroupDescribe."""
    return DescribedShareMember(
        member.member_id,
        member.rack_id,
        member.member_epoch,
        member.client_id,
        member.client_host,
        member.subscribed_topic_names,
        member.assignment,
    )
