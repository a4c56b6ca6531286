"""The group coordinator's decisions for share groups.

A command returns records and a reply and changes no group; `ShareGroups.replay` alone does,
from a record just appended or from the log at start.  One thing is not in the records: how
long each member's session lasts, which heartbeats extend directly: a record for each of them
would cost more than it is worth, and after a restart every session begins anew.

The broker serves a heartbeat in one breath, so that a new group has its partitions in the
answer to its first heartbeat:

    check_heartbeat    raises what is wrong; nothing was changed
    uninitialized      partitions of the member's topics that the group has no state for;
                       the broker decides where each starts and gives them a state
    initialized        the record that says so, replayed at once
    heartbeat          membership and assignment, these partitions included

A group is `Stable` with members and `Empty` without; it is there until it is deleted.  No group of
another type may have its id; `GroupLog` sees to that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from sharegroup.core.assignor import Assignment
from sharegroup.core.deadlines import Deadlines
from sharegroup.core.share_group_heartbeat import (
    LEAVE_EPOCH,
    GroupLimits,
    HeartbeatReply,
    HeartbeatRequest,
    check_member,
    check_request,
    plan,
    spoken_for,
)
from sharegroup.core.share_group_picture import (
    Group,
    Member,
    TopicPicture,
    Topics,
    subscribed_topics,
)
from sharegroup.core.share_group_records import (
    InitializedTopic,
    Records,
    RecordType,
    ShareGroupMetadata,
    ShareGroupRecord,
    ShareGroupTargetAssignmentMetadata,
    Tombstone,
    initialized_topics,
)
from sharegroup.errors import GroupIdNotFound, InvalidGroupId, NonEmptyGroup
from sharegroup.ids import GroupId, MemberId, SharePartitionKey, TopicId, TopicName, TopicPartition

__all__ = [
    "AlteredOffset",
    "GroupDescription",
    "GroupLimits",
    "GroupListing",
    "HeartbeatReply",
    "HeartbeatRequest",
    "MemberDescription",
    "MemberKey",
    "ShareGroups",
    "TopicPicture",
    "Topics",
    "Uninitialized",
]

MemberKey = tuple[GroupId, MemberId]

ASSIGNOR_NAME = "simple"
STABLE = "Stable"
EMPTY = "Empty"


@dataclass(frozen=True, slots=True)
class Uninitialized:
    """A share partition that needs a state before it can be assigned.

    ``topic_is_new``: the group has no state for any partition of the topic, so its reset policy
    says where to start.  Otherwise the partition was added to a topic that the group reads
    already and starts at offset 0, or its first records would be skipped (KAFKA-20742).
    """

    key: SharePartitionKey
    topic_name: TopicName
    topic_is_new: bool
    state_epoch: int


@dataclass(frozen=True, slots=True)
class AlteredOffset:
    """A share partition whose state must be initialized again."""

    key: SharePartitionKey
    start_offset: int
    state_epoch: int


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list."""

    group_id: GroupId
    state: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member as an administrator sees it."""

    member_id: MemberId
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[TopicName, ...]
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as an administrator sees it."""

    group_id: GroupId
    state: str
    epoch: int
    assignment_epoch: int
    assignor_name: str
    members: tuple[MemberDescription, ...]


class ShareGroups:
    """All share groups of this broker; see the module's text."""

    __slots__ = ("_groups", "_sessions")

    def __init__(self) -> None:
        self._groups: dict[GroupId, Group] = {}
        self._sessions = Deadlines[MemberKey]()

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, group_id: GroupId) -> bool:
        return group_id in self._groups

    # Heartbeats, in the order in which the broker calls them.

    def check_heartbeat(self, request: HeartbeatRequest, *, limits: GroupLimits) -> None:
        """Raise what keeps this heartbeat from being served."""
        check_request(request)
        check_member(request, self._groups.get(request.group_id), limits)

    def subscribed_names(self, request: HeartbeatRequest) -> frozenset[TopicName]:
        """The names that the steps below need to be told of as `Topics`."""
        group = self._groups.get(request.group_id)
        members = () if group is None else group.members.values()
        return frozenset(request.subscribed_topic_names or ()).union(
            *(member.subscribed_topic_names for member in members)
        )

    def uninitialized(self, request: HeartbeatRequest, topics: Topics) -> tuple[Uninitialized, ...]:
        """The partitions of the member's topics that the group has no state for, in order.

        Their state epoch is the next group epoch, which fences whatever came before: a state
        is taken away only while the group is empty, and leaving it raised the epoch.
        """
        if request.member_epoch == LEAVE_EPOCH:
            return ()
        group = self._groups.get(request.group_id) or Group(request.group_id)
        known = group.members.get(request.member_id) or Member(request.member_id)
        found: list[Uninitialized] = []
        for topic in subscribed_topics([spoken_for(known, request)], topics):
            initialized = group.initialized.get(topic.topic_id)
            have = frozenset[int]() if initialized is None else initialized.partitions
            found.extend(
                Uninitialized(
                    SharePartitionKey(request.group_id, topic.topic_id, partition),
                    topic.name,
                    topic_is_new=not have,
                    state_epoch=group.epoch + 1,
                )
                for partition in range(topic.partition_count)
                if partition not in have
            )
        return tuple(found)

    def initialized(self, group_id: GroupId, partitions: Iterable[Uninitialized]) -> Records:
        """The group has a state for these partitions from now on.

        Give whole topics: when a part of a new topic is left out, it counts as added later.
        """
        group = self._groups.get(group_id)
        topics = {} if group is None else dict(group.initialized)
        before = dict(topics)
        for partition in partitions:
            assert partition.key.group_id == group_id, f"{partition} is not of group {group_id!r}"
            _add_partition(topics, partition.key, partition.topic_name)
        return () if topics == before else (initialized_topics(group_id, topics.values()),)

    def heartbeat(
        self,
        request: HeartbeatRequest,
        topics: Topics,
        *,
        limits: GroupLimits,
        now_ms: int,
        wall_ms: int,
    ) -> tuple[Records, HeartbeatReply]:
        """Join, stay or leave; the member's session begins anew at ``now_ms``.

        ``wall_ms`` goes into the records, ``now_ms`` does not: a session ends by the monotonic
        clock.
        """
        self.check_heartbeat(request, limits=limits)
        if request.member_epoch == LEAVE_EPOCH:
            records = _leave(self._groups[request.group_id], [request.member_id])
            return records, HeartbeatReply(
                request.member_id, LEAVE_EPOCH, limits.heartbeat_interval_ms, None
            )
        group = self._groups.get(request.group_id) or Group(request.group_id)
        records, reply = plan(group, request, topics, limits=limits, wall_ms=wall_ms)
        self._sessions.set(
            (request.group_id, request.member_id), due_ms=now_ms + limits.session_timeout_ms
        )
        return records, reply

    # Sessions.

    def next_session_expiry_ms(self) -> int | None:
        """When `expire_sessions` has something to do; None while there are no members."""
        return self._sessions.next_ms()

    def expire_sessions(self, now_ms: int) -> tuple[Records, tuple[MemberKey, ...]]:
        """Remove the members that were not heard of in time.

        The heartbeat that began a session may not have been written: then there is no member.
        """
        expired: list[MemberKey] = []
        leaving: dict[GroupId, list[MemberId]] = {}
        for group_id, member_id in self._sessions.passed(now_ms):
            group = self._groups.get(group_id)
            if group is None or member_id not in group.members:
                self._sessions.cancel((group_id, member_id))
                continue
            expired.append((group_id, member_id))
            leaving.setdefault(group_id, []).append(member_id)
        records: list[ShareGroupRecord] = []
        for group_id, member_ids in leaving.items():
            records.extend(_leave(self._groups[group_id], member_ids))
        return tuple(records), tuple(expired)

    def restart_sessions(
        self, now_ms: int, *, session_timeout_ms: Callable[[GroupId], int]
    ) -> None:
        """The log was read: give every member its whole session timeout."""
        for group_id, group in self._groups.items():
            due_ms = now_ms + session_timeout_ms(group_id)
            for member_id in group.members:
                self._sessions.set((group_id, member_id), due_ms=due_ms)

    # Administration.

    def list_groups(self) -> tuple[GroupListing, ...]:
        """All groups, by id."""
        return tuple(
            GroupListing(group_id, _state(self._groups[group_id]))
            for group_id in sorted(self._groups)
        )

    def describe(self, group_id: GroupId) -> GroupDescription:
        """The group and its members, by id."""
        group = self._existing(group_id)
        return GroupDescription(
            group_id,
            _state(group),
            group.epoch,
            group.assignment_epoch,
            ASSIGNOR_NAME,
            tuple(_described(group.members[member_id]) for member_id in sorted(group.members)),
        )

    def initialized_topics(self, group_id: GroupId) -> tuple[InitializedTopic, ...]:
        """The topics that the group has a state for; none for a group that does not exist."""
        group = self._groups.get(group_id)
        return () if group is None else tuple(group.initialized.values())

    def initialized_keys(self) -> frozenset[SharePartitionKey]:
        """Every share partition that must have a state, of all groups.

        The share coordinator's log is another one.  After a power loss the broker compares: a
        state without an entry here is deleted, an entry without a state is initialized again.
        Neither was ever used, because no heartbeat that told of it was answered.
        """
        return frozenset(
            key for group in self._groups.values() for key in _keys(group, group.initialized)
        )

    def delete_group(self, group_id: GroupId) -> tuple[Records, tuple[SharePartitionKey, ...]]:
        """Delete an empty group; the share partitions whose state must be deleted go along."""
        group = self._existing_empty(group_id)
        records = tuple(
            Tombstone(record_type, group_id)
            for record_type in (
                RecordType.TARGET_ASSIGNMENT_METADATA,
                RecordType.STATE_PARTITION_METADATA,
                RecordType.METADATA,
            )
        )
        return records, _keys(group, group.initialized)

    def delete_offsets(
        self, group_id: GroupId, topic_ids: Iterable[TopicId]
    ) -> tuple[Records, tuple[SharePartitionKey, ...]]:
        """Forget topics; the share partitions whose state must be deleted go along.

        A topic that has no key among them was not initialized: there is nothing to delete.
        """
        group = self._existing_empty(group_id)
        deleted = frozenset(topic_ids)
        records = _without_topics(group, deleted)
        return records, _keys(group, deleted)

    def alter_offsets(
        self, group_id: GroupId, offsets: Mapping[TopicPartition, int], topics: Topics
    ) -> tuple[Records, tuple[AlteredOffset, ...]]:
        """Start partitions of an empty group elsewhere; makes the group if there is none.

        The group epoch goes up and is the new state epoch.  This fences acknowledgements of
        records that were acquired before.  Every partition of ``offsets`` is one of ``topics``.
        """
        if not group_id:
            raise InvalidGroupId("the group id is empty")
        group = self._groups.get(group_id) or Group(group_id)
        _check_empty(group)
        epoch = group.epoch + 1
        names = {topic.topic_id: topic.name for topic in topics.values()}
        initialized = dict(group.initialized)
        altered: list[AlteredOffset] = []
        for (topic_id, partition), start_offset in sorted(offsets.items()):
            key = SharePartitionKey(group_id, topic_id, partition)
            _add_partition(initialized, key, names[topic_id])
            altered.append(AlteredOffset(key, start_offset, epoch))
        records = (
            ShareGroupMetadata(group_id, epoch, group.metadata_hash),
            initialized_topics(group_id, initialized.values()),
        )
        return records, tuple(altered)

    def topic_deleted(self, topic_id: TopicId) -> Records:
        """No group has a state for the topic any more."""
        return tuple(
            record
            for group in self._groups.values()
            for record in _without_topics(group, frozenset({topic_id}))
        )

    # The records.

    def replay(self, record: ShareGroupRecord) -> None:
        """Let a record have happened."""
        group = self._groups.get(record.group_id)
        if isinstance(record, Tombstone):
            if record.member_id is not None and record.record_type is RecordType.MEMBER_METADATA:
                self._sessions.cancel((record.group_id, record.member_id))
            if record.record_type is RecordType.METADATA:
                self._groups.pop(record.group_id, None)
            elif group is not None:
                group.replay(record)
            return
        if group is None:
            group = self._groups[record.group_id] = Group(record.group_id)
        group.replay(record)

    def _existing(self, group_id: GroupId) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            raise GroupIdNotFound(f"group {group_id!r}: there is no such share group")
        return group

    def _existing_empty(self, group_id: GroupId) -> Group:
        group = self._existing(group_id)
        _check_empty(group)
        return group


def _check_empty(group: Group) -> None:
    if group.members:
        raise NonEmptyGroup(
            f"group {group.group_id!r} must be empty; it has {len(group.members)} members"
        )


def _leave(group: Group, member_ids: list[MemberId]) -> Records:
    """Members leave together: the group epoch goes up once.

    The digest of the topics stays; the next heartbeat sees whether it is another without them.
    An empty group has nothing to assign, so its assignment is up to date at once, and as old as
    can be, lest it hold back the first one of whoever comes next.
    """
    records: list[ShareGroupRecord] = [
        Tombstone(record_type, group.group_id, member_id)
        for member_id in member_ids
        for record_type in (
            RecordType.CURRENT_MEMBER_ASSIGNMENT,
            RecordType.TARGET_ASSIGNMENT_MEMBER,
            RecordType.MEMBER_METADATA,
        )
    ]
    epoch = group.epoch + 1
    records.append(ShareGroupMetadata(group.group_id, epoch, group.metadata_hash))
    if len(member_ids) == len(group.members):
        records.append(ShareGroupTargetAssignmentMetadata(group.group_id, epoch, 0))
    return tuple(records)


def _without_topics(group: Group, topic_ids: frozenset[TopicId]) -> Records:
    kept = [topic for topic_id, topic in group.initialized.items() if topic_id not in topic_ids]
    if len(kept) == len(group.initialized):
        return ()
    return (initialized_topics(group.group_id, kept),)


def _add_partition(
    topics: dict[TopicId, InitializedTopic], key: SharePartitionKey, name: TopicName
) -> None:
    known = topics.get(key.topic_id) or InitializedTopic(key.topic_id, name, frozenset())
    topics[key.topic_id] = replace(known, partitions=known.partitions | {key.partition})


def _keys(group: Group, topic_ids: Iterable[TopicId]) -> tuple[SharePartitionKey, ...]:
    return tuple(
        SharePartitionKey(group.group_id, topic_id, partition)
        for topic_id in sorted(topic_ids)
        if topic_id in group.initialized
        for partition in sorted(group.initialized[topic_id].partitions)
    )


def _state(group: Group) -> str:
    return STABLE if group.members else EMPTY


def _described(member: Member) -> MemberDescription:
    return MemberDescription(
        member.member_id,
        member.rack_id,
        member.member_epoch,
        member.client_id,
        member.client_host,
        member.subscribed_topic_names,
        member.assignment,
    )
