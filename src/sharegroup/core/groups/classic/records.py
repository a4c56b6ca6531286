"""The records of a consumer group in ``__consumer_offsets`` (types 0 to 2).

There are two kinds: a committed offset, and the group after its last assignment. A tombstone is a
key without a value. Type 0 is an older form of type 1, which is not written any more.
"""

from __future__ import annotations

from dataclasses import dataclass

from sharegroup.ids import GroupId, MemberId, TopicId, TopicName


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """The position of a group in one partition: the offset of the next record that it reads.

    ``metadata`` is a text of the client. ``expires_ms`` is set only by clients from before 2018,
    which name the retention of an offset themselves; None leaves that to the broker. ``topic_id``
    tells a topic from a later one of the same name. It is None if ``expires_ms`` is set, because
    the record's version with the one field does not have the other.
    """

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int | None
    topic_id: TopicId | None


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """The record of a committed offset (type 1)."""

    group_id: GroupId
    topic: TopicName
    partition: int
    committed: OffsetAndMetadata


@dataclass(frozen=True, slots=True)
class OffsetTombstone:
    """The record that deletes a committed offset (type 1)."""

    group_id: GroupId
    topic: TopicName
    partition: int


@dataclass(frozen=True, slots=True)
class StoredMember:
    """A member after the last assignment, with the metadata of the chosen protocol only."""

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
    """The last generation of a group (type 2); ``since_ms`` is when its state last changed."""

    group_id: GroupId
    protocol_type: str
    generation: int
    protocol: str | None
    leader: MemberId | None
    since_ms: int
    members: tuple[StoredMember, ...]


@dataclass(frozen=True, slots=True)
class GroupTombstone:
    """The record that deletes a group (type 2)."""

    group_id: GroupId


ClassicGroupRecord = OffsetCommit | OffsetTombstone | GroupMetadata | GroupTombstone
Records = tuple[ClassicGroupRecord, ...]
