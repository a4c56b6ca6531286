"""The state of one consumer group of KIP-848, built from its records.

Only `ModernGroup.replay` changes a group. It takes records in the order in which they were written
and does not validate them: they were validated before they were written, and a restart must not
fail because of a record that another version wrote.

    group epoch        is raised when something changed that an assignment depends on
    assignment epoch   the group epoch that the target assignment was made for
    member epoch       the assignment epoch that the member has been reconciled to

A group is brought up to date by its members' heartbeats, so for a while the three may differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import assert_never

from sharegroup.core.groups.modern.member import ModernMember, held_partitions
from sharegroup.core.groups.modern.records import (
    ModernGroupCurrentMemberAssignment,
    ModernGroupMemberMetadata,
    ModernGroupRecord,
    ModernGroupRecordType,
    ModernGroupRegularExpression,
    ModernGroupTombstone,
    PartitionMetadata,
    Records,
    member_tombstones,
)
from sharegroup.core.groups.share.assignor import NOTHING, Assignment
from sharegroup.core.groups.share.records import GroupEpoch, TargetAssignment, TargetAssignmentEpoch
from sharegroup.core.groups.share.share_group import FIRST_EPOCH, Topics, hash_of, names_bytes
from sharegroup.core.shared_totals import text_bytes
from sharegroup.ids import GroupId, MemberId, TopicId, TopicIdPartition, TopicName

GROUP_BYTES = 2_500
"""Memory of a group without members."""

PARTITION_BYTES = 350
"""Memory of an assigned partition: in the target, in its member's assignment and as owned."""


class ModernGroupState(StrEnum):
    """The state of a group, named as in ConsumerGroupDescribe."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ModernGroup:
    """One consumer group of KIP-848; only `replay` may change it.

    ``owners`` has the member of each partition that no other member may get. ``topics_version`` is
    the version of the cluster's topics that the group was last compared with; it is not stored.
    """

    __slots__ = (
        "_regex_counts",
        "_topic_counts",
        "assignment_epoch",
        "assignment_timestamp",
        "epoch",
        "group_id",
        "has_partition_metadata",
        "members",
        "metadata_hash",
        "owners",
        "partition_count",
        "regexes",
        "revision",
        "size_bytes",
        "statics",
        "target",
        "topics_version",
    )

    def __init__(self, group_id: GroupId) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp = 0
        self.members: dict[MemberId, ModernMember] = {}
        self.statics: dict[str, MemberId] = {}
        self.target: dict[MemberId, Assignment] = {}
        self.owners: dict[TopicIdPartition, MemberId] = {}
        self.regexes: dict[str, ModernGroupRegularExpression] = {}
        self.has_partition_metadata = False
        self.partition_count = 0
        """Number of partitions in ``target``."""
        self.size_bytes = GROUP_BYTES + text_bytes(group_id)
        # No version of the topics, so the first decision after a start compares the group with
        # them.
        self.topics_version = -1
        self.revision = 0
        """Number of records that were replayed."""
        self._topic_counts = Counter[TopicName]()
        self._regex_counts = Counter[str]()

    def copied(self) -> ModernGroup:
        """Return a copy, to plan a decision of several steps without changing this group."""
        copy = ModernGroup(self.group_id)
        for name in self.__slots__:
            # Shallow copies are enough: members, assignments and patterns are replaced, never
            # changed.
            value = getattr(self, name)
            setattr(copy, name, value.copy() if isinstance(value, dict) else value)
        return copy

    @property
    def state(self) -> ModernGroupState:
        """The state as administrators see it."""
        if not self.members:
            return ModernGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ModernGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ModernGroupState.STABLE
        return ModernGroupState.RECONCILING

    def static(self, instance_id: str | None) -> ModernMember | None:
        """Return the member with this instance id; None if there is none."""
        member_id = None if instance_id is None else self.statics.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def regex_member_count(self, pattern: str) -> int:
        """Return the number of members that subscribe to this regular expression."""
        return self._regex_counts[pattern]

    @property
    def patterns(self) -> tuple[str, ...]:
        """The regular expressions that members subscribe to."""
        return tuple(self._regex_counts)

    @property
    def classic_count(self) -> int:
        """The number of members that use the classic protocol."""
        return sum(member.classic is not None for member in self.members.values())

    def reads(self, topic: TopicName) -> bool:
        """Return whether a member subscribes to the topic."""
        return topic in self._topic_counts or any(
            topic in resolved.topic_names for resolved in self.regexes.values()
        )

    def names_without(self, member: ModernMember | None) -> frozenset[TopicName]:
        """Return the topics that members other than ``member`` subscribe to by name."""
        own = frozenset[TopicName]() if member is None else member.subscribed_topic_names
        alone = {name for name in own if self._topic_counts[name] == 1}
        return frozenset(name for name in self._topic_counts if name not in alone)

    def is_free(self, partition: TopicIdPartition) -> bool:
        """Return whether no member has the partition."""
        return partition not in self.owners

    def growth_with(self, member: ModernMember) -> int:
        """Return the bytes by which ``member``, new or changed, makes the group larger."""
        former = self.members.get(member.member_id)
        growth = member.size_bytes + names_bytes(member.subscribed_topic_names)
        if former is not None:
            growth -= former.size_bytes + names_bytes(former.subscribed_topic_names)
        return growth

    # Changes

    def replay(self, record: ModernGroupRecord) -> None:
        """Apply a record of this group."""
        self.revision += 1
        match record:
            case ModernGroupMemberMetadata():
                self._put(_described_by(record, self._member(record.member_id)))
            case GroupEpoch():
                self.epoch = record.epoch
                self.metadata_hash = record.metadata_hash
            case TargetAssignmentEpoch():
                self.assignment_epoch = record.assignment_epoch
                self.assignment_timestamp = record.assignment_timestamp
            case TargetAssignment():
                self._set_target(record.member_id, record.partitions)
            case ModernGroupCurrentMemberAssignment():
                self._put(
                    replace(
                        self._member(record.member_id),
                        member_epoch=record.member_epoch,
                        previous_member_epoch=record.previous_member_epoch,
                        state=record.state,
                        assigned=record.assigned,
                        pending_revocation=record.pending_revocation,
                    )
                )
            case ModernGroupRegularExpression():
                self._set_regex(record.pattern, record)
            case PartitionMetadata():
                self.has_partition_metadata = True
            case ModernGroupTombstone():
                self._bury(record)
            case _:
                assert_never(record)

    def _member(self, member_id: MemberId) -> ModernMember:
        return self.members.get(member_id) or ModernMember(member_id)

    def _put(self, member: ModernMember) -> None:
        """Add ``member``, or replace its former version."""
        # First, because it compares the member with its former version.
        self.size_bytes += self.growth_with(member)
        former = self.members.get(member.member_id)
        if former is not None:
            # Before the new values are counted, because both versions may share topics, pattern and
            # partitions.
            self._forget(former)
        self._topic_counts.update(member.subscribed_topic_names)
        if member.subscribed_topic_regex:
            self._regex_counts[member.subscribed_topic_regex] += 1
        if member.instance_id is not None:
            self.statics[member.instance_id] = member.member_id
        self.owners.update(dict.fromkeys(held_partitions(member), member.member_id))
        self.members[member.member_id] = member

    def _remove(self, member_id: MemberId) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._forget(member)
            self.size_bytes -= member.size_bytes + names_bytes(member.subscribed_topic_names)

    def _forget(self, member: ModernMember) -> None:
        """Take a member out of all indexes."""
        _subtract(self._topic_counts, member.subscribed_topic_names)
        if member.subscribed_topic_regex:
            _subtract(self._regex_counts, (member.subscribed_topic_regex,))
        instance_id = member.instance_id
        # Another member may have the instance id by now: the successor of a static member takes it
        # over.
        if instance_id is not None and self.statics.get(instance_id) == member.member_id:
            del self.statics[instance_id]
        for partition in held_partitions(member):
            # A record of another member may have taken the partition over; it must not become free
            # then.
            if self.owners.get(partition) == member.member_id:
                del self.owners[partition]

    def _set_target(self, member_id: MemberId, partitions: Assignment) -> None:
        growth = len(partitions) - len(self.target.get(member_id, NOTHING))
        self.partition_count += growth
        self.size_bytes += PARTITION_BYTES * growth
        self.target[member_id] = partitions
        if not partitions and member_id not in self.members:
            del self.target[member_id]

    def _set_regex(self, pattern: str, resolved: ModernGroupRegularExpression | None) -> None:
        former = self.regexes.pop(pattern, None)
        if former is not None:
            self.size_bytes -= text_bytes(pattern) + names_bytes(former.topic_names)
        if resolved is not None:
            self.size_bytes += text_bytes(pattern) + names_bytes(resolved.topic_names)
            self.regexes[pattern] = resolved

    def _bury(self, tombstone: ModernGroupTombstone) -> None:
        member_id = tombstone.member_id
        match tombstone.record_type:
            case ModernGroupRecordType.MEMBER_METADATA if member_id is not None:
                self._remove(member_id)
            case ModernGroupRecordType.TARGET_ASSIGNMENT_MEMBER if member_id is not None:
                self._set_target(member_id, NOTHING)
                self.target.pop(member_id, None)
            case ModernGroupRecordType.CURRENT_MEMBER_ASSIGNMENT if member_id in self.members:
                self._put(
                    replace(
                        self.members[member_id],
                        member_epoch=0,
                        previous_member_epoch=-1,
                        assigned={},
                        pending_revocation={},
                    )
                )
            case ModernGroupRecordType.REGULAR_EXPRESSION if tombstone.pattern is not None:
                self._set_regex(tombstone.pattern, None)
            case ModernGroupRecordType.PARTITION_METADATA:
                self.has_partition_metadata = False
            case _:
                pass  # The group itself is removed by `ModernGroups`.


def _described_by(record: ModernGroupMemberMetadata, member: ModernMember) -> ModernMember:
    return replace(
        member,
        instance_id=record.instance_id,
        rack_id=record.rack_id,
        client_id=record.client_id,
        client_host=record.client_host,
        subscribed_topic_names=record.subscribed_topic_names,
        subscribed_topic_regex=record.subscribed_topic_regex,
        rebalance_timeout_ms=record.rebalance_timeout_ms,
        server_assignor=record.server_assignor,
        classic=record.classic,
    )


def _subtract(counts: Counter[TopicName] | Counter[str], names: Iterable[str]) -> None:
    for name in names:
        counts[name] -= 1  # type: ignore[index]  # Both have strings as keys.
        if not counts[name]:  # type: ignore[index]
            del counts[name]


def group_tombstones(group: ModernGroup) -> Records:
    """Return the records that delete a group and its members, in Kafka's order."""
    group_id = group.group_id
    kinds = ModernGroupRecordType
    by_member = {
        kind: tuple(ModernGroupTombstone(kind, group_id, member_id) for member_id in group.members)
        for kind in (
            kinds.CURRENT_MEMBER_ASSIGNMENT,
            kinds.TARGET_ASSIGNMENT_MEMBER,
            kinds.MEMBER_METADATA,
        )
    }
    return (
        *by_member[kinds.CURRENT_MEMBER_ASSIGNMENT],
        *by_member[kinds.TARGET_ASSIGNMENT_MEMBER],
        ModernGroupTombstone(kinds.TARGET_ASSIGNMENT_METADATA, group_id),
        *by_member[kinds.MEMBER_METADATA],
        *(
            ModernGroupTombstone(kinds.REGULAR_EXPRESSION, group_id, pattern=pattern)
            for pattern in group.regexes
        ),
        ModernGroupTombstone(kinds.PARTITION_METADATA, group_id),
        ModernGroupTombstone(kinds.METADATA, group_id),
    )


def replaced_member(
    group: ModernGroup, old: ModernMember, new_id: MemberId
) -> tuple[ModernMember, Records]:
    """Return a static member under its new id, and the records that replace the old one."""
    new = replace(old, member_id=new_id, member_epoch=0, previous_member_epoch=0)
    # A client that returns with its old id is the same member: the replay of tombstones would
    # cancel the timers that the heartbeat has just set for it.
    former = () if new_id == old.member_id else member_tombstones(group.group_id, old.member_id)
    return new, (
        *former,
        new.metadata(group.group_id),
        TargetAssignment(group.group_id, new_id, group.target.get(old.member_id, NOTHING)),
        new.current_assignment(group.group_id),
    )


def with_replaced(
    group: ModernGroup, former: ModernMember, new_id: MemberId
) -> tuple[ModernGroup, ModernMember, Records]:
    """Return a copy of the group in which a static member has its new id, and the records."""
    successor, records = replaced_member(group, former, new_id)
    copy = group.copied()
    for record in records:
        copy.replay(record)
    return copy, successor, records


def subscribed_names(
    member: ModernMember, regexes: Mapping[str, ModernGroupRegularExpression]
) -> frozenset[TopicName]:
    """Return the topics that a member subscribes to, by name or by a resolved pattern."""
    names = frozenset(member.subscribed_topic_names)
    resolved = regexes.get(member.subscribed_topic_regex)
    return names if resolved is None else names | resolved.topic_names


def topic_ids(names: Iterable[TopicName], topics: Topics) -> frozenset[TopicId]:
    """Return the ids of those of the topics that exist."""
    return frozenset(topic.topic_id for name in names if (topic := topics.get(name)) is not None)


def metadata_hash(names: Iterable[TopicName], topics: Topics) -> int:
    """Return a hash of the topics that an assignment depends on, as a signed 64-bit number.

    Kafka computes its hash in another way. A Kafka broker that reads our records finds a
    difference, raises the group epoch once and goes on.
    """
    text = "".join(
        f"{topic.name}\0{topic.topic_id.hex}\0{topic.partition_count}\0"
        for name in sorted(names)
        if (topic := topics.get(name)) is not None
    )
    return hash_of(text)
