"""The group coordinator's decisions for share groups.

A command returns records and a reply and changes no group. Only `ShareGroups.replay` changes
groups, from a record just appended or from the log at start. Session deadlines are the exception:
heartbeats extend them directly, because a record for each heartbeat would cost too much, and after
a restart every session begins anew.

The broker makes all calls for a heartbeat without a pause, so the response to the first heartbeat
of a new group already has partitions:

    check_heartbeat    raises if the request is invalid, and changes nothing
    uninitialized      partitions of the member's topics that the group has no state for;
                       the broker decides the start offset of each and initializes its state
    initialized        the record of these partitions, replayed at once
    heartbeat          membership and assignment, including these partitions

A group is `Stable` with members and `Empty` without. It exists until it is deleted. No group of
another type may have its id; `GroupLog` ensures that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from sharegroup.core.deadlines import Deadlines
from sharegroup.core.groups.share.assignor import Division
from sharegroup.core.groups.share.heartbeat import (
    LEAVE_EPOCH,
    Assigned,
    ShareGroupLimits,
    ShareHeartbeat,
    check_member,
    check_request,
    large_division,
    plan,
    spoken_for,
)
from sharegroup.core.groups.share.records import (
    GroupEpoch,
    InitializedTopic,
    Records,
    ShareGroupRecord,
    ShareGroupRecordType,
    ShareGroupTombstone,
    TargetAssignmentEpoch,
    initialized_topics,
)
from sharegroup.core.groups.share.share_group import (
    DescribedShareGroup,
    HeartbeatReply,
    ListedGroup,
    ShareGroup,
    ShareGroupMember,
    TopicMetadata,
    Topics,
    state_of,
    subscribed_topics,
)
from sharegroup.core.groups.share.sizes import (
    NO_SIZE_LIMITS,
    SizeLimits,
    check_all_bytes,
    check_names,
    check_new_group,
    check_partitions,
    check_size,
    counted_bytes,
)
from sharegroup.core.security.principal import Principal
from sharegroup.core.shared_totals import SharedTotal
from sharegroup.errors import GroupIdNotFound, GroupMaxSizeReached, InvalidGroupId, NonEmptyGroup
from sharegroup.ids import (
    GroupId,
    MemberId,
    SharePartitionKey,
    TopicId,
    TopicIdPartition,
    TopicName,
)

__all__ = [
    "AlteredOffset",
    "DescribedShareGroup",
    "HeartbeatReply",
    "ListedGroup",
    "MemberKey",
    "ShareGroupLimits",
    "ShareGroups",
    "ShareHeartbeat",
    "TopicMetadata",
    "Topics",
    "Uninitialized",
]

MemberKey = tuple[GroupId, MemberId]


class Uninitialized(NamedTuple):
    """A share partition that needs a state before it can be assigned.

    If ``topic_is_new``, the group has no state for any partition of the topic, and its reset policy
    gives the start offset. Otherwise the partition was added to a topic that the group reads
    already. It starts at offset 0, because its first records would be skipped otherwise
    (KAFKA-20742).
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


class ShareGroups:
    """All share groups of this broker."""

    __slots__ = ("_groups", "_sessions", "memory", "partitions")

    def __init__(self, *, user_percent: int = 100) -> None:
        self._groups: dict[GroupId, ShareGroup] = {}
        self._sessions = Deadlines[MemberKey]()
        self.memory = SharedTotal[GroupId](
            "bytes of share groups", "group", GroupMaxSizeReached, user_percent
        )
        self.partitions = SharedTotal[GroupId](
            "share partitions", "group", GroupMaxSizeReached, user_percent
        )

    def restarted(self) -> ShareGroups:
        """Return groups for a new reading of the log; the groups will have the same owners.

        Call `restart_sessions` after the reading.
        """
        groups = ShareGroups()
        groups.memory = self.memory.restarted()
        groups.partitions = self.partitions.restarted()
        return groups

    @property
    def size_bytes(self) -> int:
        """Estimated memory of all groups, without their share partitions."""
        return self.memory.used

    @property
    def partition_count(self) -> int:
        """Number of share partitions with a state, of all groups."""
        return self.partitions.used

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, group_id: GroupId) -> bool:
        return group_id in self._groups

    # Heartbeats: methods in the order in which the broker calls them.

    def check_heartbeat(self, request: ShareHeartbeat, *, limits: ShareGroupLimits) -> None:
        """Raise if the heartbeat is invalid or must be refused."""
        check_request(request)
        group = self._groups.get(request.group_id)
        check_member(request, group, limits)
        if request.member_epoch == LEAVE_EPOCH:
            return
        stored_member = None if group is None else group.members.get(request.member_id)
        if stored_member is not None and request.subscribed_topic_names is None:
            return  # The group does not grow: client id and host belong to the connection.
        if group is None:
            check_new_group(request.group_id)
        check_names(
            f"group {request.group_id!r}, member {request.member_id!r}",
            request.subscribed_topic_names,
            limits.sizes,
        )
        added_bytes = check_size(
            group or ShareGroup(request.group_id),
            spoken_for(stored_member or ShareGroupMember(request.member_id), request),
            is_known=group is not None,
            all_bytes=self.size_bytes,
            limits=limits.sizes,
        )
        self._check_part_of_memory(request.group_id, request.user, added_bytes, limits.sizes)

    def subscribed_names(
        self, request: ShareHeartbeat, existing: Collection[TopicName]
    ) -> frozenset[TopicName]:
        """Return the names of ``existing`` topics that the steps below need as `Topics`."""
        group = self._groups.get(request.group_id)
        names = frozenset(name for name in request.subscribed_topic_names or () if name in existing)
        return names if group is None else names | group.subscribed_names(existing)

    def uninitialized(self, request: ShareHeartbeat, topics: Topics) -> tuple[Uninitialized, ...]:
        """Return the partitions of the member's topics that the group has no state for, in order.

        Their state epoch is the next group epoch, which fences all earlier states. A state is
        deleted only while the group is empty, and the last member that left has raised the epoch.
        """
        if request.member_epoch == LEAVE_EPOCH:
            return ()
        group = self._groups.get(request.group_id) or ShareGroup(request.group_id)
        member = group.members.get(request.member_id) or ShareGroupMember(request.member_id)
        uninitialized: list[Uninitialized] = []
        for topic in subscribed_topics([spoken_for(member, request)], topics):
            initialized = group.initialized.get(topic.topic_id)
            initialized_partitions = (
                frozenset[int]() if initialized is None else initialized.partitions
            )
            # A topic never loses partitions, so equal numbers are equal sets.
            if len(initialized_partitions) == topic.partition_count:
                continue
            uninitialized.extend(
                Uninitialized(
                    SharePartitionKey(request.group_id, topic.topic_id, partition),
                    topic.name,
                    topic_is_new=not initialized_partitions,
                    state_epoch=group.epoch + 1,
                )
                for partition in range(topic.partition_count)
                if partition not in initialized_partitions
            )
        return tuple(uninitialized)

    def check_partitions(
        self, request: ShareHeartbeat, missing: Sequence[Uninitialized], *, limits: SizeLimits
    ) -> None:
        """Raise GroupMaxSizeReached if ``missing`` are too many for all groups or for the user."""
        self._check_partitions(request.group_id, request.user, len(missing), limits)

    def _check_partitions(
        self, group_id: GroupId, user: Principal | None, more: int, limits: SizeLimits
    ) -> None:
        check_partitions(group_id, count=self.partition_count, more=more, limits=limits)
        self.partitions.check(group_id, user, more, limit=limits.all_partitions_max)

    def _check_part_of_memory(
        self, group_id: GroupId, user: Principal | None, more: int, limits: SizeLimits
    ) -> None:
        self.memory.check(group_id, user, more, limit=limits.all_bytes_max)

    def claim(self, group_id: GroupId, user: Principal | None) -> None:
        """Give a group that belongs to nobody to the user who uses it."""
        group = self._groups.get(group_id)
        if user is not None and group is not None:
            self.memory.claim(group_id, user, counted_bytes(group.size_bytes))
            self.partitions.claim(group_id, user, group.partition_count)

    def initialized(self, group_id: GroupId, partitions: Sequence[Uninitialized]) -> Records:
        """Return the records of partitions that have a state from now on.

        Give whole topics: a partition of a new topic that is left out counts as added later.
        """
        group = self._groups.get(group_id)
        topics = {} if group is None else dict(group.initialized)
        before = dict(topics)
        names: dict[TopicId, TopicName] = {}
        for partition in partitions:
            assert partition.key.group_id == group_id, f"{partition} is not of group {group_id!r}"
            names[partition.key.topic_id] = partition.topic_name
        _add_partitions(topics, (partition.key for partition in partitions), names)
        # Another heartbeat may have added them while the states were initialized.
        return () if topics == before else (initialized_topics(group_id, topics.values()),)

    def heartbeat(
        self,
        request: ShareHeartbeat,
        topics: Topics,
        *,
        limits: ShareGroupLimits,
        now_ms: int,
        wall_ms: int,
        assigned: Assigned | None = None,
    ) -> tuple[Records, HeartbeatReply]:
        """Let a member join, stay or leave; its session begins anew at ``now_ms``.

        ``wall_ms`` goes into the records. ``now_ms`` is of the monotonic clock, which ends
        sessions.
        """
        self.check_heartbeat(request, limits=limits)
        if request.member_epoch == LEAVE_EPOCH:
            # The replay of its tombstone ends the session. If the write fails, the session times
            # out.
            records = _leave(self._groups[request.group_id], [request.member_id])
            return records, HeartbeatReply(
                request.member_id, LEAVE_EPOCH, limits.heartbeat_interval_ms, None
            )
        group = self._groups.get(request.group_id) or ShareGroup(request.group_id)
        records, reply = plan(
            group, request, topics, limits=limits, wall_ms=wall_ms, assigned=assigned
        )
        self._sessions.set(
            (request.group_id, request.member_id), due_ms=now_ms + limits.session_timeout_ms
        )
        return records, reply

    def large_division(
        self, request: ShareHeartbeat, topics: Topics, *, limits: ShareGroupLimits, wall_ms: int
    ) -> Division | None:
        """Return the division of a checked heartbeat, if it is to be made in slices before."""
        group = self._groups.get(request.group_id)
        if group is None:
            return None
        return large_division(group, request, topics, limits=limits, wall_ms=wall_ms)

    # Sessions.

    def next_session_expiry_ms(self) -> int | None:
        """Return the time at which to call `expire_sessions`; None if there are no members."""
        return self._sessions.next_ms()

    def expire_sessions(self, now_ms: int) -> tuple[Records, tuple[MemberKey, ...]]:
        """Remove the members whose session timeout has passed.

        A session may have no member, if the heartbeat that began it was not written.
        """
        expired: list[MemberKey] = []
        leaving: dict[GroupId, list[MemberId]] = {}
        for group_id, member_id in self._sessions.passed(now_ms):
            group = self._groups.get(group_id)
            if group is None or member_id not in group.members:
                self._sessions.cancel((group_id, member_id))
                continue
            # The session stays until the tombstone is replayed, so a failed write is repeated.
            expired.append((group_id, member_id))
            leaving.setdefault(group_id, []).append(member_id)
        records: list[ShareGroupRecord] = []
        for group_id, member_ids in leaving.items():
            records.extend(_leave(self._groups[group_id], member_ids))
        return tuple(records), tuple(expired)

    def restart_sessions(
        self, now_ms: int, *, session_timeout_ms: Callable[[GroupId], int]
    ) -> None:
        """Give every member its whole session timeout after the log was read."""
        self.memory.forget_lost()
        self.partitions.forget_lost()
        for group_id, group in self._groups.items():
            due_ms = now_ms + session_timeout_ms(group_id)
            for member_id in group.members:
                self._sessions.set((group_id, member_id), due_ms=due_ms)

    # Administration.

    def list_groups(self) -> tuple[ListedGroup, ...]:
        """Return all groups, in the order of their ids."""
        return tuple(
            ListedGroup(group_id, state_of(self._groups[group_id]))
            for group_id in sorted(self._groups)
        )

    def describe(self, group_id: GroupId, *, assignor_name: str = "simple") -> DescribedShareGroup:
        """Return the group and its members, in the order of their ids."""
        group = self._existing(group_id)
        return DescribedShareGroup(
            group_id,
            state_of(group),
            group.epoch,
            group.assignment_epoch,
            assignor_name,
            tuple(group.members[member_id] for member_id in sorted(group.members)),
        )

    def initialized_topics(self, group_id: GroupId) -> tuple[InitializedTopic, ...]:
        """Return the topics that the group has a state for; none if it does not exist."""
        group = self._groups.get(group_id)
        return () if group is None else tuple(group.initialized.values())

    def initialized_keys(self) -> frozenset[SharePartitionKey]:
        """Return every share partition that must have a state, of all groups.

        States are in another log, that of the share coordinator. After a power loss the broker
        compares both: a state without an entry here is deleted, an entry without a state is
        initialized again. Neither was ever used, because no heartbeat was answered with it.
        """
        return frozenset(
            key for group in self._groups.values() for key in _keys(group, group.initialized)
        )

    def delete_group(self, group_id: GroupId) -> tuple[Records, tuple[SharePartitionKey, ...]]:
        """Delete an empty group; also return the share partitions whose state must be deleted."""
        group = self._existing_empty(group_id)
        records = tuple(
            ShareGroupTombstone(record_type, group_id)
            for record_type in (
                ShareGroupRecordType.TARGET_ASSIGNMENT_METADATA,
                ShareGroupRecordType.STATE_PARTITION_METADATA,
                ShareGroupRecordType.METADATA,
            )
        )
        return records, _keys(group, group.initialized)

    def delete_offsets(
        self, group_id: GroupId, topic_ids: Iterable[TopicId]
    ) -> tuple[Records, tuple[SharePartitionKey, ...]]:
        """Delete topics; also return the share partitions whose state must be deleted.

        A topic without a share partition in the result was not initialized.
        """
        group = self._existing_empty(group_id)
        deleted = frozenset(topic_ids)
        records = _without_topics(group, deleted)
        return records, _keys(group, deleted)

    def alter_offsets(
        self,
        group_id: GroupId,
        offsets: Mapping[TopicIdPartition, int],
        topics: Topics,
        *,
        limits: SizeLimits = NO_SIZE_LIMITS,
        user: Principal | None = None,
    ) -> tuple[Records, tuple[AlteredOffset, ...]]:
        """Set start offsets in an empty group, which is created if it does not exist.

        The group epoch is raised and is the new state epoch. This fences acknowledgements of
        records that were acquired before. ``topics`` must have the topics of all ``offsets``.
        """
        if not group_id:
            raise InvalidGroupId("the group id is empty")
        if group_id not in self._groups:
            check_new_group(group_id)
            size_bytes = counted_bytes(ShareGroup(group_id).size_bytes)
            check_all_bytes(group_id, self.size_bytes + size_bytes, limits)
            self._check_part_of_memory(group_id, user, size_bytes, limits)
        group = self._groups.get(group_id) or ShareGroup(group_id)
        _check_empty(group)
        added_count = sum(
            partition not in group.initialized[topic_id].partitions
            for topic_id, partition in offsets
            if topic_id in group.initialized
        ) + sum(topic_id not in group.initialized for topic_id, _ in offsets)
        self._check_partitions(group_id, user, added_count, limits)
        # Kafka raises the group epoch here since KAFKA-20910.
        epoch = group.epoch + 1
        names = {topic.topic_id: topic.name for topic in topics.values()}
        initialized = dict(group.initialized)
        altered: list[AlteredOffset] = []
        for (topic_id, partition), start_offset in sorted(offsets.items()):
            key = SharePartitionKey(group_id, topic_id, partition)
            altered.append(AlteredOffset(key, start_offset, epoch))
        _add_partitions(initialized, (alteration.key for alteration in altered), names)
        records = (
            GroupEpoch(group_id, epoch, group.metadata_hash),
            initialized_topics(group_id, initialized.values()),
        )
        return records, tuple(altered)

    def topic_deleted(self, topic_id: TopicId) -> Records:
        """Delete the state of a deleted topic in all groups."""
        return tuple(
            record
            for group in self._groups.values()
            for record in _without_topics(group, frozenset({topic_id}))
        )

    # The records.

    def replay(self, record: ShareGroupRecord) -> None:
        """Apply a record."""
        group = self._groups.get(record.group_id)
        # A tombstone makes no group: compaction keeps those of deleted groups for a while.
        if isinstance(record, ShareGroupTombstone):
            if (
                record.member_id is not None
                and record.record_type is ShareGroupRecordType.MEMBER_METADATA
            ):
                self._sessions.cancel((record.group_id, record.member_id))
            if record.record_type is ShareGroupRecordType.METADATA:
                if self._groups.pop(record.group_id, None) is not None and group is not None:
                    self.memory.change(record.group_id, -counted_bytes(group.size_bytes))
                    self.partitions.change(record.group_id, -group.partition_count)
            elif group is not None:
                self._replay_in(group, record)
            return
        if group is None:
            group = self._groups[record.group_id] = ShareGroup(record.group_id)
            self.memory.change(record.group_id, counted_bytes(group.size_bytes))
        self._replay_in(group, record)

    def _replay_in(self, group: ShareGroup, record: ShareGroupRecord) -> None:
        size_bytes, partition_count = counted_bytes(group.size_bytes), group.partition_count
        group.replay(record)
        self.memory.change(group.group_id, counted_bytes(group.size_bytes) - size_bytes)
        self.partitions.change(group.group_id, group.partition_count - partition_count)

    def _existing(self, group_id: GroupId) -> ShareGroup:
        group = self._groups.get(group_id)
        if group is None:
            raise GroupIdNotFound(f"group {group_id!r}: there is no such share group")
        return group

    def _existing_empty(self, group_id: GroupId) -> ShareGroup:
        group = self._existing(group_id)
        _check_empty(group)
        return group


def _check_empty(group: ShareGroup) -> None:
    if group.members:
        raise NonEmptyGroup(
            f"group {group.group_id!r} must be empty; it has {len(group.members)} members"
        )


def _leave(group: ShareGroup, member_ids: list[MemberId]) -> Records:
    """Return the records of members that leave together: the group epoch is raised once.

    The hash of the topics stays; the next heartbeat compares it. An empty group has nothing to
    assign, so its assignment is up to date at once. Its timestamp is 0, so the assignment interval
    does not delay the first assignment of the next member.
    """
    records: list[ShareGroupRecord] = [
        ShareGroupTombstone(record_type, group.group_id, member_id)
        for member_id in member_ids
        for record_type in (
            ShareGroupRecordType.CURRENT_MEMBER_ASSIGNMENT,
            ShareGroupRecordType.TARGET_ASSIGNMENT_MEMBER,
            ShareGroupRecordType.MEMBER_METADATA,
        )
    ]
    epoch = group.epoch + 1
    records.append(GroupEpoch(group.group_id, epoch, group.metadata_hash))
    if len(member_ids) == len(group.members):  # Kafka does so since KAFKA-20442.
        records.append(TargetAssignmentEpoch(group.group_id, epoch, 0))
    return tuple(records)


def _without_topics(group: ShareGroup, topic_ids: frozenset[TopicId]) -> Records:
    kept = [topic for topic_id, topic in group.initialized.items() if topic_id not in topic_ids]
    if len(kept) == len(group.initialized):
        return ()
    return (initialized_topics(group.group_id, kept),)


def _add_partitions(
    topics: dict[TopicId, InitializedTopic],
    keys: Iterable[SharePartitionKey],
    names: Mapping[TopicId, TopicName],
) -> None:
    """Add partitions to their topics; each topic's set is built only once."""
    added: dict[TopicId, list[int]] = {}
    for _, topic_id, partition in keys:
        added.setdefault(topic_id, []).append(partition)
    for topic_id, partitions in added.items():
        topic = topics.get(topic_id) or InitializedTopic(topic_id, names[topic_id], frozenset())
        topics[topic_id] = replace(topic, partitions=topic.partitions.union(partitions))


def _keys(group: ShareGroup, topic_ids: Iterable[TopicId]) -> tuple[SharePartitionKey, ...]:
    return tuple(
        SharePartitionKey(group.group_id, topic_id, partition)
        for topic_id in sorted(topic_ids)
        if topic_id in group.initialized
        for partition in sorted(group.initialized[topic_id].partitions)
    )
