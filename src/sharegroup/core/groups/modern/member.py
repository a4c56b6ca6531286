"""A member of a consumer group of KIP-848, and the members as administrators see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from sharegroup.core.groups.modern.records import (
    AssignmentEpochs,
    ClassicMember,
    MemberState,
    ModernGroupCurrentMemberAssignment,
    ModernGroupMemberMetadata,
)
from sharegroup.core.groups.share.assignor import Assignment
from sharegroup.core.shared_totals import text_bytes
from sharegroup.ids import GroupId, MemberId, TopicIdPartition, TopicName

JOIN_EPOCH = 0
"""The member epoch of a member that joins, or joins again."""

LEAVE_EPOCH = -1
"""The member epoch of a member that leaves."""

STATIC_LEAVE_EPOCH = -2
"""The member epoch of a static member that has left for a while and keeps its partitions."""

NO_PARTITIONS: AssignmentEpochs = MappingProxyType({})

MEMBER_BYTES = 1_800
"""Memory of a member without the characters of its texts and without its subscription."""

PROTOCOL_BYTES = 150
"""Memory of a classic protocol without its name and metadata."""


_ANY = GroupId("")


@dataclass(frozen=True, slots=True)
class ModernMember:
    """A member of a consumer group.

    ``assigned`` are the partitions that the member may read. ``pending_revocation`` are the ones
    that it may still read, until it confirms that it has stopped. No other member gets a partition
    of either.
    """

    member_id: MemberId
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[TopicName, ...] = ()
    subscribed_topic_regex: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMember | None = None
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: AssignmentEpochs = field(default_factory=dict)
    pending_revocation: AssignmentEpochs = field(default_factory=dict)

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether the member has the whole target assignment of this epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def has_metadata_of(self, other: ModernMember) -> bool:
        """Whether the identity and the subscription are equal; partitions are not compared.

        There may be thousands of partitions, and nearly no heartbeat changes anything.
        """
        return self is other or self.metadata(_ANY) == other.metadata(_ANY)

    def metadata(self, group_id: GroupId) -> ModernGroupMemberMetadata:
        """Return the record of the member's identity and subscription."""
        return ModernGroupMemberMetadata(
            group_id,
            self.member_id,
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.subscribed_topic_names,
            self.subscribed_topic_regex,
            self.rebalance_timeout_ms,
            self.server_assignor,
            self.classic,
        )

    def current_assignment(self, group_id: GroupId) -> ModernGroupCurrentMemberAssignment:
        """Return the record of the member's epochs, state and partitions."""
        return ModernGroupCurrentMemberAssignment(
            group_id,
            self.member_id,
            self.member_epoch,
            self.previous_member_epoch,
            self.state,
            self.assigned,
            self.pending_revocation,
        )

    @property
    def size_bytes(self) -> int:
        """Memory of the member, without the names of its topics."""
        texts = (
            self.member_id,
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.subscribed_topic_regex,
            self.server_assignor,
        )
        size = MEMBER_BYTES + sum(map(text_bytes, texts))
        if self.classic is not None:
            for name, metadata in self.classic.protocols:
                size += PROTOCOL_BYTES + text_bytes(name) + len(metadata)
        return size


def held_partitions(member: ModernMember) -> Assignment:
    """Return the partitions that no other member may get."""
    return frozenset({*member.assigned, *member.pending_revocation})


def with_epoch(partitions: Assignment, epoch: int) -> Mapping[TopicIdPartition, int]:
    """Return the partitions as assigned at ``epoch``."""
    return dict.fromkeys(partitions, epoch)


@dataclass(frozen=True, slots=True)
class DescribedModernMember:
    """A member in the result of ConsumerGroupDescribe."""

    member: ModernMember
    target: Assignment


@dataclass(frozen=True, slots=True)
class DescribedModernGroup:
    """A group in the result of ConsumerGroupDescribe."""

    group_id: GroupId
    state: str
    epoch: int
    assignment_epoch: int
    assignor_name: str
    members: tuple[DescribedModernMember, ...]
