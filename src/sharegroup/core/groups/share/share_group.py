"""The state of one share group, built from its records.

Only `ShareGroup.replay` changes a group. It takes records in the order in which they were written
and does not validate them: they were validated before they were written, and a restart must not
fail because of a record that an older version wrote.

    group epoch        is raised when something changed that an assignment depends on
    assignment epoch   the group epoch that the target assignment was made for
    member epoch       the assignment epoch that the member was last told

A group is brought up to date by its members' heartbeats, so for a while the three may differ. None
of them ever decreases.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, assert_never

from sharegroup.core.groups.share.assignor import NOTHING, Assignment
from sharegroup.core.groups.share.records import (
    GroupEpoch,
    InitializedTopic,
    ShareGroupCurrentMemberAssignment,
    ShareGroupMemberMetadata,
    ShareGroupRecord,
    ShareGroupRecordType,
    ShareGroupStatePartitionMetadata,
    ShareGroupTombstone,
    TargetAssignment,
    TargetAssignmentEpoch,
)
from sharegroup.core.groups.share.wide import Width, stable_hash
from sharegroup.core.shared_totals import text_bytes
from sharegroup.ids import GroupId, MemberId, TopicId, TopicIdPartition, TopicName

FIRST_EPOCH = 1
"""Group and assignment epoch of a group without records, since Kafka 4.3 (KAFKA-20268)."""


LOOKUPS_PER_NAME = 8
"""Number of dictionary look-ups that take as long as finding a name in a sorted tuple."""


class TopicMetadata(NamedTuple):
    """The properties of an existing topic that a group needs."""

    name: TopicName
    topic_id: TopicId
    partition_count: int


GROUP_BYTES = 1_500
MEMBER_BYTES = 1_500
NAME_BYTES = 64
"""Memory of a group, of a member and of a topic's name, without the characters of their texts."""

Topics = Mapping[TopicName, TopicMetadata]
"""Existing topics by name; those that a group subscribes to are enough."""


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """The reply to a heartbeat; ``assignment`` is None if the member has it already."""

    member_id: MemberId
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Assignment | None


@dataclass(frozen=True, slots=True)
class ShareGroupMember:
    """A member of a share group."""

    member_id: MemberId
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[TopicName, ...] = ()
    member_epoch: int = 0
    previous_member_epoch: int = -1
    assignment: Assignment = NOTHING

    def metadata(self, group_id: GroupId) -> ShareGroupMemberMetadata:
        """Return the record of the member's identity and subscription."""
        return ShareGroupMemberMetadata(
            group_id,
            self.member_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.subscribed_topic_names,
        )

    def current_assignment(self, group_id: GroupId) -> ShareGroupCurrentMemberAssignment:
        """Return the record of the assignment that was sent to the member."""
        return ShareGroupCurrentMemberAssignment(
            group_id,
            self.member_id,
            self.member_epoch,
            self.previous_member_epoch,
            self.assignment,
        )


class ShareGroup:
    """One share group; only `replay` may change it.

    ``size_bytes`` is the estimated memory of its members and names. Members that subscribe to the
    same topics share one tuple of names.
    """

    __slots__ = (
        "_subscriptions",
        "assignment_epoch",
        "assignment_timestamp",
        "epoch",
        "group_id",
        "initialized",
        "members",
        "metadata_hash",
        "partition_count",
        "size_bytes",
        "target",
    )

    def __init__(self, group_id: GroupId) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp = 0
        self.members: dict[MemberId, ShareGroupMember] = {}
        self.target: dict[MemberId, Assignment] = {}
        self.initialized: dict[TopicId, InitializedTopic] = {}
        self.partition_count = 0
        """Number of partitions in ``initialized``."""
        self.size_bytes = GROUP_BYTES + text_bytes(group_id)
        self._subscriptions: dict[tuple[TopicName, ...], _Subscription] = {}

    def subscribed_names(self, existing: Collection[TopicName]) -> frozenset[TopicName]:
        """Return the names of ``existing`` topics that some member subscribes to."""
        return frozenset[TopicName]().union(
            *(existing_names(names, existing) for names in self._subscriptions)
        )

    def growth_with(self, member: ShareGroupMember) -> int:
        """Return the bytes by which ``member``, new or changed, makes the group larger."""
        former = self.members.get(member.member_id)
        names = member.subscribed_topic_names
        growth = _member_bytes(member)
        if former is not None:
            growth -= _member_bytes(former)
            if former.subscribed_topic_names is names or former.subscribed_topic_names == names:
                return growth
            # The last member of a subscription takes its names along.
            if self._subscriptions[former.subscribed_topic_names].member_count == 1:
                growth -= names_bytes(former.subscribed_topic_names)
        return growth if names in self._subscriptions else growth + names_bytes(names)

    def replay(self, record: ShareGroupRecord) -> None:
        """Apply a record of this group."""
        match record:
            case ShareGroupMemberMetadata():
                self._put(
                    replace(
                        self._member(record.member_id),
                        rack_id=record.rack_id,
                        client_id=record.client_id,
                        client_host=record.client_host,
                        subscribed_topic_names=record.subscribed_topic_names,
                    )
                )
            case GroupEpoch():
                self.epoch = record.epoch
                self.metadata_hash = record.metadata_hash
            case TargetAssignmentEpoch():
                self.assignment_epoch = record.assignment_epoch
                self.assignment_timestamp = record.assignment_timestamp
            case TargetAssignment():
                self.target[record.member_id] = record.partitions
            case ShareGroupCurrentMemberAssignment():
                self._put(
                    replace(
                        self._member(record.member_id),
                        member_epoch=record.member_epoch,
                        previous_member_epoch=record.previous_member_epoch,
                        assignment=record.partitions,
                    )
                )
            case ShareGroupStatePartitionMetadata():
                self.initialized = {topic.topic_id: topic for topic in record.initialized}
                self.partition_count = sum(len(topic.partitions) for topic in record.initialized)
            case ShareGroupTombstone():
                self._bury(record)
            case _:
                assert_never(record)

    def _member(self, member_id: MemberId) -> ShareGroupMember:
        return self.members.get(member_id) or ShareGroupMember(member_id)

    def _put(self, member: ShareGroupMember) -> None:
        """Add ``member``, or replace its former version."""
        self.size_bytes += self.growth_with(member)
        former = self.members.get(member.member_id)
        names = member.subscribed_topic_names
        if former is None or former.subscribed_topic_names is not names:
            # Added before the former one is removed: the last member of a subscription must not
            # delete it in between.
            subscription = self._subscriptions.setdefault(names, _Subscription(names))
            subscription.member_count += 1
            member = replace(member, subscribed_topic_names=subscription.names)
            if former is not None:
                self._unsubscribe(former.subscribed_topic_names)
        self.members[member.member_id] = member

    def _remove(self, member_id: MemberId) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            before = len(self._subscriptions)
            self._unsubscribe(member.subscribed_topic_names)
            self.size_bytes -= _member_bytes(member)
            if len(self._subscriptions) < before:
                self.size_bytes -= names_bytes(member.subscribed_topic_names)

    def _unsubscribe(self, names: tuple[TopicName, ...]) -> None:
        subscription = self._subscriptions[names]
        subscription.member_count -= 1
        if not subscription.member_count:
            del self._subscriptions[names]

    def _bury(self, tombstone: ShareGroupTombstone) -> None:
        member_id = tombstone.member_id
        match tombstone.record_type:
            case ShareGroupRecordType.MEMBER_METADATA if member_id is not None:
                self._remove(member_id)
            case ShareGroupRecordType.TARGET_ASSIGNMENT_MEMBER if member_id is not None:
                self.target.pop(member_id, None)
            case ShareGroupRecordType.STATE_PARTITION_METADATA:
                self.initialized = {}
                self.partition_count = 0
            case _:
                # A member's last assignment is removed with the member, all else with the group.
                # Their tombstones are needed only for compaction.
                pass


@dataclass(slots=True)
class _Subscription:
    """A tuple of names that members of a group share, and the number of these members."""

    names: tuple[TopicName, ...]
    member_count: int = 0


def _member_bytes(member: ShareGroupMember) -> int:
    """Return the memory of a member, without the names of its subscription."""
    return (
        MEMBER_BYTES
        + text_bytes(member.member_id)
        + text_bytes(member.rack_id)
        + text_bytes(member.client_id)
        + text_bytes(member.client_host)
    )


def names_bytes(names: Collection[TopicName]) -> int:
    """Return the memory of topic names."""
    return sum(map(text_bytes, names)) + NAME_BYTES * len(names)


def subscribed_topics(
    members: Iterable[ShareGroupMember], topics: Topics
) -> tuple[TopicMetadata, ...]:
    """Return the existing topics that ``members`` subscribe to, in the order of their names."""
    names = {
        name for member in members for name in existing_names(member.subscribed_topic_names, topics)
    }
    return tuple(topics[name] for name in sorted(names))


def existing_names(
    names: Sequence[TopicName], existing: Collection[TopicName]
) -> Iterator[TopicName]:
    """Iterate over those of the sorted ``names`` that exist.

    A member may subscribe to thousands of topics that do not exist, and every heartbeat of its
    group looks at its names. So the work depends on the shorter of the two collections.
    """
    if len(existing) * LOOKUPS_PER_NAME >= len(names):
        yield from (name for name in names if name in existing)
        return
    for name in existing:
        index = bisect_left(names, name)
        if index < len(names) and names[index] == name:
            yield name


def assignable(
    subscribed: Iterable[TopicMetadata], initialized: Mapping[TopicId, InitializedTopic]
) -> dict[TopicId, frozenset[int]]:
    """Return the partitions that may be assigned: subscribed and initialized."""
    return {
        topic.topic_id: initialized[topic.topic_id].partitions
        for topic in subscribed
        if topic.topic_id in initialized
    }


def unassigned(
    partitions: Mapping[TopicId, frozenset[int]], target: Iterable[Assignment]
) -> frozenset[TopicIdPartition]:
    """Return those of ``partitions`` that no member has in ``target``."""
    everything = {
        TopicIdPartition(topic_id, partition)
        for topic_id, numbers in partitions.items()
        for partition in numbers
    }
    return frozenset(everything.difference(*target))


def metadata_hash(
    subscribed: Iterable[TopicMetadata],
    partitions: Mapping[TopicId, frozenset[int]],
    width: Width | None = None,
) -> int:
    """Return a hash of all that an assignment depends on, as a signed 64-bit number.

    It includes the number of assignable partitions, not their indexes: while a group has members,
    the set of partitions only grows. Kafka's hash is computed in another way. A Kafka broker that
    reads our records finds a difference, raises the group epoch once and goes on.
    """
    text = "".join(
        f"{topic.name}\0{topic.topic_id.hex}\0{len(partitions[topic.topic_id])}\0"
        for topic in subscribed
        if topic.topic_id in partitions
    )
    # A change of the assignor or of its limits makes a new assignment, also after a restart.
    return hash_of(text if width is None else f"{text}\0wide\0{width[0]}\0{width[1]}")


def hash_of(text: str) -> int:
    """Return a signed hash of 64 bits; 0 for an empty text."""
    if not text:
        return 0
    return stable_hash(text.encode("utf-8", "surrogatepass"))


# Descriptions: share groups and their members as administrators see them.


STABLE = "Stable"
EMPTY = "Empty"


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A share group or a modern group in the result of ListGroups."""

    group_id: GroupId
    state: str


@dataclass(frozen=True, slots=True)
class DescribedShareGroup:
    """A group in the result of ShareGroupDescribe."""

    group_id: GroupId
    state: str
    epoch: int
    assignment_epoch: int
    assignor_name: str
    members: tuple[ShareGroupMember, ...]


def state_of(group: ShareGroup) -> str:
    """Return the state name on the wire: ``Empty`` for a group without members, else ``Stable``.

    A share group has no state for a rebalance (KIP-932).
    """
    return STABLE if group.members else EMPTY
