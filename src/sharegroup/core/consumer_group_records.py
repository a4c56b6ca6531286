"""The records that a consumer group is made of, as ``__consumer_offsets`` holds them (types 0-2).

There are two: an offset that was committed, and the group after its last assignment.  A
tombstone is a key without a value.  Type 0 is an older form of type 1, which nobody writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from sharegroup.ids import GroupId, MemberId, TopicId, TopicName


class RecordType(IntEnum):
    """The first two bytes of a record's key."""

    OFFSET_COMMIT = 1
    GROUP_METADATA = 2


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """How far a group is on one partition: the offset of the next record that it wants.

    ``metadata`` is a note of whoever committed.  ``expires_ms`` is set by clients from before
    2018 only, who say themselves how long an offset is kept; None leaves that to the broker.
    ``topic_id`` tells a topic from one of the same name that came after it; None with
    ``expires_ms``, as the record that has the one has no room for the other.
    """

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int | None
    topic_id: TopicId | None


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """A group is here now (1)."""

    group_id: GroupId
    topic: TopicName
    partition: int
    committed: CommittedOffset


@dataclass(frozen=True, slots=True)
class OffsetTombstone:
    """The group is nowhere on this partition (1)."""

    group_id: GroupId
    topic: TopicName
    partition: int


@dataclass(frozen=True, slots=True)
class StoredMember:
    """A member as the last assignment left it; of its protocols, the one that was chosen."""

    member_id: MemberId
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """A group's last generation (2); ``since_ms`` is when it came to the state it was in."""

    group_id: GroupId
    protocol_type: str
    generation: int
    protocol: str | None
    leader: MemberId | None
    since_ms: int
    members: tuple[StoredMember, ...]


@dataclass(frozen=True, slots=True)
class GroupTombstone:
    """The group is gone (2)."""

    group_id: GroupId


ConsumerGroupRecord = OffsetCommit | OffsetTombstone | GroupMetadata | GroupTombstone
Records = tuple[ConsumerGroupRecord, ...]
