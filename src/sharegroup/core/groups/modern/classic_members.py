"""Members of a consumer group of KIP-848 that use the classic protocol, while a group migrates.

Such a member joins, syncs and sends classic heartbeats. Its generation is its member epoch, and
SyncGroup returns the partitions that it has been reconciled to. No member is the leader, because
the broker assigns (KIP-848 «Supporting Online Consumer Group Upgrade»).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from sharegroup.core.groups.classic.member import JoinRequest, SyncRequest
from sharegroup.core.groups.modern.group import ModernGroup
from sharegroup.core.groups.modern.member import ModernMember
from sharegroup.core.groups.modern.records import ClassicMember, MemberState
from sharegroup.core.groups.share.assignor import NOTHING
from sharegroup.errors import (
    IllegalGeneration,
    InconsistentGroupProtocol,
    UnknownMemberId,
)
from sharegroup.ids import TopicName

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
