"""One share group as its records tell it.

`Group.replay` is the only thing that changes a group.  It takes records in the order in which
they were written and asks no questions: they were checked before they were written, and a
restart must not fail over what an older version wrote.

    group epoch        goes up when something changed that an assignment depends on
    assignment epoch   the group epoch that the target assignment was made for
    member epoch       the assignment epoch that the member was last told about

A group is brought up to date when a member's heartbeat comes, so for a while the three may
differ.  None of them ever goes back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, assert_never

from sharegroup.core.assignor import NOTHING, Assignment
from sharegroup.core.share_group_records import (
    InitializedTopic,
    RecordType,
    ShareGroupCurrentMemberAssignment,
    ShareGroupMemberMetadata,
    ShareGroupMetadata,
    ShareGroupRecord,
    ShareGroupStatePartitionMetadata,
    ShareGroupTargetAssignmentMember,
    ShareGroupTargetAssignmentMetadata,
    Tombstone,
)
from sharegroup.ids import GroupId, MemberId, TopicId, TopicName, TopicPartition

FIRST_EPOCH = 1
"""Group and assignment epoch of a group without records, as in Kafka 4.3 and later."""


class TopicPicture(NamedTuple):
    """A topic that exists, as far as a group cares."""

    name: TopicName
    topic_id: TopicId
    partition_count: int


Topics = Mapping[TopicName, TopicPicture]
"""The topics that exist, by name; those that a group subscribes to are enough."""


@dataclass(frozen=True, slots=True)
class Member:
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
        """The record that says who this member is."""
        return ShareGroupMemberMetadata(
            group_id,
            self.member_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.subscribed_topic_names,
        )

    def current_assignment(self, group_id: GroupId) -> ShareGroupCurrentMemberAssignment:
        """The record that says what this member was told."""
        return ShareGroupCurrentMemberAssignment(
            group_id,
            self.member_id,
            self.member_epoch,
            self.previous_member_epoch,
            self.assignment,
        )


class Group:
    """See the module's text; read it freely, change it through `replay` alone."""

    __slots__ = (
        "assignment_epoch",
        "assignment_timestamp",
        "epoch",
        "group_id",
        "initialized",
        "members",
        "metadata_hash",
        "target",
    )

    def __init__(self, group_id: GroupId) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp = 0
        self.members: dict[MemberId, Member] = {}
        self.target: dict[MemberId, Assignment] = {}
        self.initialized: dict[TopicId, InitializedTopic] = {}

    def replay(self, record: ShareGroupRecord) -> None:
        """Let a record of this group have happened."""
        match record:
            case ShareGroupMemberMetadata():
                self.members[record.member_id] = replace(
                    self._member(record.member_id),
                    rack_id=record.rack_id,
                    client_id=record.client_id,
                    client_host=record.client_host,
                    subscribed_topic_names=record.subscribed_topic_names,
                )
            case ShareGroupMetadata():
                self.epoch = record.epoch
                self.metadata_hash = record.metadata_hash
            case ShareGroupTargetAssignmentMetadata():
                self.assignment_epoch = record.assignment_epoch
                self.assignment_timestamp = record.assignment_timestamp
            case ShareGroupTargetAssignmentMember():
                self.target[record.member_id] = record.partitions
            case ShareGroupCurrentMemberAssignment():
                self.members[record.member_id] = replace(
                    self._member(record.member_id),
                    member_epoch=record.member_epoch,
                    previous_member_epoch=record.previous_member_epoch,
                    assignment=record.partitions,
                )
            case ShareGroupStatePartitionMetadata():
                self.initialized = {topic.topic_id: topic for topic in record.initialized}
            case Tombstone():
                self._bury(record)
            case _:
                assert_never(record)

    def _member(self, member_id: MemberId) -> Member:
        return self.members.get(member_id) or Member(member_id)

    def _bury(self, tombstone: Tombstone) -> None:
        member_id = tombstone.member_id
        match tombstone.record_type:
            case RecordType.MEMBER_METADATA if member_id is not None:
                self.members.pop(member_id, None)
            case RecordType.TARGET_ASSIGNMENT_MEMBER if member_id is not None:
                self.target.pop(member_id, None)
            case RecordType.STATE_PARTITION_METADATA:
                self.initialized = {}
            case _:
                # A member's last assignment goes with the member, what else a group has goes
                # with the group: their tombstones are written for those who compact the log.
                pass


def subscribed_topics(members: Iterable[Member], topics: Topics) -> tuple[TopicPicture, ...]:
    """The topics that exist of those that ``members`` subscribe to, by name."""
    names = {name for member in members for name in member.subscribed_topic_names}
    return tuple(topics[name] for name in sorted(names) if name in topics)


def assignable(
    subscribed: Iterable[TopicPicture], initialized: Mapping[TopicId, InitializedTopic]
) -> dict[TopicId, frozenset[int]]:
    """The partitions that may be assigned: of ``subscribed``, and initialized."""
    return {
        topic.topic_id: initialized[topic.topic_id].partitions
        for topic in subscribed
        if topic.topic_id in initialized
    }


def unassigned(
    partitions: Mapping[TopicId, frozenset[int]], target: Iterable[Assignment]
) -> frozenset[TopicPartition]:
    """Those of ``partitions`` that no member is meant to have."""
    everything = {
        TopicPartition(topic_id, partition)
        for topic_id, numbers in partitions.items()
        for partition in numbers
    }
    return frozenset(everything.difference(*target))


def metadata_hash(
    subscribed: Iterable[TopicPicture], partitions: Mapping[TopicId, frozenset[int]]
) -> int:
    """A digest of what an assignment depends on outside the group, as a signed 64-bit number.

    The number of assignable partitions stands for which they are: while a group has members it
    only grows.  Kafka's digest is made otherwise; a Kafka broker that reads our records finds
    that it differs, raises the group epoch once and goes on.
    """
    text = "".join(
        f"{topic.name}\0{topic.topic_id.hex}\0{len(partitions[topic.topic_id])}\0"
        for topic in subscribed
        if topic.topic_id in partitions
    )
    if not text:
        return 0
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
