"""The group coordinator's decisions for consumer groups of the classic protocol.

A group has two kinds of state, which change in two ways:

    offsets      commands return records and change nothing; only `replay` changes them
    membership   requests change the group (`classic_group`) at once and for good; a `Decision`
                 has the records to write, and the answers to send when they are durable

A group exists from its first member or its first committed offset until it is deleted. `expire`
deletes a group that has had no member and no commit for long enough. A group that has only given
out a member id is forgotten if that member does not return.

Everything that a client can make the broker store is limited: groups, members of a group, their
metadata, offsets, and pending member ids (at their limit new members are added at once instead).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from sharegroup.core.deadlines import Now
from sharegroup.core.groups.classic.classic_group import ClassicGroup
from sharegroup.core.groups.classic.member import (
    LABEL_CHARACTERS_MAX,
    UNKNOWN_MEMBER,
    Call,
    ClassicGroupLimits,
    Decision,
    JoinRequest,
    LeavingMember,
    State,
    SyncRequest,
    Timers,
)
from sharegroup.core.groups.classic.members import Totals
from sharegroup.core.groups.classic.offsets import (
    CommittedOffsets,
    OffsetsOfGroup,
    OpenTransaction,
    PendingOffsets,
    pending_bytes_of,
)
from sharegroup.core.groups.classic.records import (
    ClassicGroupRecord,
    GroupMetadata,
    GroupTombstone,
    OffsetCommit,
    OffsetTombstone,
    Records,
)
from sharegroup.core.groups.classic.sizes import (
    DEFAULT_SIZE_LIMITS,
    ClassicGroupSizeLimits,
    GroupTotals,
    group_totals,
)
from sharegroup.core.security.principal import Principal
from sharegroup.errors import (
    GroupIdNotFound,
    GroupSubscribedToTopic,
    InvalidGroupId,
    InvalidRequest,
    InvalidSessionTimeout,
    KafkaError,
    NonEmptyGroup,
    PolicyViolation,
    RebalanceInProgress,
    UnknownMemberId,
)
from sharegroup.ids import GroupId, MemberId, TopicId, TopicName
from sharegroup.steps import STEP_ELEMENTS

CONSUMER = "consumer"
"""The protocol type of groups whose members read topics."""

Subscription = Callable[[bytes], frozenset[TopicName] | None]
"""Returns the topics that a member's metadata names; None if it cannot be decoded."""


@dataclass(frozen=True, slots=True)
class ListedClassicGroup:
    """A group in the result of ListGroups."""

    group_id: GroupId
    protocol_type: str
    state: str


@dataclass(frozen=True, slots=True)
class DescribedConsumerMember:
    """A member in the result of DescribeGroups; without metadata while the group rebalances."""

    member_id: MemberId
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class DescribedClassicGroup:
    """A group in the result of DescribeGroups."""

    group_id: GroupId
    state: str
    protocol_type: str
    protocol: str
    members: tuple[DescribedConsumerMember, ...]


@dataclass(frozen=True, slots=True)
class Committer:
    """The sender of a commit; an administrator or manual assignment has a negative generation."""

    group_id: GroupId
    member_id: MemberId
    instance_id: str | None
    generation: int
    user: Principal | None = None
    """The user whose part of all groups limits it (`shared_totals`)."""


class ClassicGroups:
    """All consumer groups of the broker: their members and their committed offsets."""

    __slots__ = (
        "_groups",
        "_offsets",
        "_pending",
        "_sizes",
        "_subscription",
        "_timers",
        "_totals",
        "shared_totals",
    )

    def __init__(
        self,
        subscription: Subscription,
        *,
        sizes: ClassicGroupSizeLimits = DEFAULT_SIZE_LIMITS,
        totals: GroupTotals | None = None,
    ) -> None:
        """``totals`` are those of an earlier reading of the log, restarted; call `start` then."""
        self._subscription = subscription
        self._sizes = sizes
        self._groups: dict[GroupId, ClassicGroup] = {}
        self._timers = Timers()
        self.shared_totals = totals or group_totals()
        self._offsets = CommittedOffsets(self.shared_totals.offsets)
        self._pending = PendingOffsets(self.shared_totals.offsets)
        self._totals = Totals(sizes, self.shared_totals.members)

    def claim(self, group_id: GroupId, user: Principal | None) -> None:
        """Give a group that belongs to nobody to the user who uses it."""
        group = self._groups.get(group_id)
        if user is not None and group is not None:
            self.shared_totals.groups.claim(group_id, user, 1)
            self.shared_totals.members.claim(group_id, user, group.members.size_bytes)
            offsets_bytes = self._offsets.bytes_of(group_id) + self._pending.bytes_of(group_id)
            self.shared_totals.offsets.claim(group_id, user, offsets_bytes)

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, group_id: GroupId) -> bool:
        return group_id in self._groups

    # Membership

    def join(
        self, request: JoinRequest, call: Call, *, now: Now, limits: ClassicGroupLimits
    ) -> Decision:
        """Handle a request to join; its answer may be in a later decision."""
        _check_group_id(request.group_id)
        _check_labels(request)
        low, high = limits.session_timeout_ms_min, limits.session_timeout_ms_max
        if not low <= request.session_timeout_ms <= high:
            raise InvalidSessionTimeout(
                f"group {request.group_id!r}: a session timeout of {request.session_timeout_ms} ms "
                f"is not between {low} and {high} ms"
            )
        group = self._groups.get(request.group_id)
        if group is None:
            if request.member_id != UNKNOWN_MEMBER:
                raise _unknown(request.group_id, request.member_id)
            group = self._new(request.group_id, request.user)
        # They join at once, like clients before KIP-394: a peer that takes all pending ids must
        # lock out nobody (differences.md).
        if self._totals.pending >= self._sizes.pending_max:
            request = replace(request, must_return=False)
        try:
            group.join(request, call, now, limits)
        finally:
            # A group that was created for a refused request must not stay.
            self._forget_void(group)
        return group.take()

    def sync(self, request: SyncRequest, call: Call, *, now: Now) -> Decision:
        """Handle a request for an assignment; its answer may be in a later decision."""
        group = self._of_member(request.group_id, request.member_id)
        group.sync(request, call, now)
        return group.take()

    def heartbeat(
        self,
        group_id: GroupId,
        member_id: MemberId,
        *,
        instance_id: str | None,
        generation: int,
        now: Now,
    ) -> bool:
        """Renew the member's session; return whether it has to join again."""
        group = self._of_member(group_id, member_id)
        return group.heartbeat(member_id, instance_id, generation, now)

    def leave(
        self,
        group_id: GroupId,
        leaving: tuple[LeavingMember, ...],
        *,
        now: Now,
        limits: ClassicGroupLimits,
    ) -> tuple[Decision, list[KafkaError | None]]:
        """Remove members; return the error of each, or None."""
        _check_group_id(group_id)
        group = self._groups.get(group_id)
        if group is None:
            nothing = Decision(group_id, (), ())
            return nothing, [_unknown(group_id, identity.member_id) for identity in leaving]
        outcomes = group.leave(leaving, now, limits)
        self._forget_void(group)
        return group.take(), outcomes

    def hang_up(
        self, group_id: GroupId, call: Call, *, now: Now, limits: ClassicGroupLimits
    ) -> Decision:
        """Handle a lost connection, which can receive no answer to ``call``.

        A new member does not know its id yet, or has not used it: it is removed, so the others need
        not wait for it. Any other member may send its request again over another connection.
        """
        group = self._groups.get(group_id)
        member_id = None if group is None else group.members.new_that_waits(call)
        if group is None or member_id is None:
            return Decision(group_id, (), ())
        group.session_ended(member_id, now, limits)
        self._forget_void(group)
        return group.take()

    def next_due_ms(self) -> int | None:
        """Return the time at which to call `pass_time`; None if no timer is set."""
        return self._timers.next_ms()

    def pass_time(self, *, now: Now, limits: ClassicGroupLimits) -> Iterator[Decision]:
        """End the sessions and the phases whose time is over, one after the other."""
        while (timer := self._timers.pop(now.ms)) is not None:
            # A group that is dropped cancels its timers, so it exists.
            group = self._groups[timer.group_id]
            if timer.member_id == UNKNOWN_MEMBER:
                group.phase_ended(now, limits)
            else:
                group.session_ended(timer.member_id, now, limits)
            self._forget_void(group)
            yield group.take()

    # Migration

    def find(self, group_id: GroupId) -> ClassicGroup | None:
        """Return the group with this id, which must not be changed; None if there is none."""
        return self._groups.get(group_id)

    def hand_over(self, group_id: GroupId) -> Decision:
        """End the waiting requests of a group that becomes one of KIP-848; they join again."""
        group = self._groups[group_id]
        group.end_requests(RebalanceInProgress(f"group {group_id!r} is upgraded: join again"))
        return group.take()

    def take_over(
        self, metadata: GroupMetadata, *, rebalances: bool, now: Now, limits: ClassicGroupLimits
    ) -> Decision:
        """Start the classic group that a group of KIP-848 has become; its record is written."""
        self.replay(metadata)
        group = self._groups[metadata.group_id]
        group.start(now, limits)
        if rebalances:
            group.rebalance(now, limits)
        return group.take()

    # Offsets

    @property
    def offsets_bytes(self) -> int:
        """Estimated memory of all committed offsets, and of those in open transactions."""
        return self.shared_totals.offsets.used

    def check_commit(
        self,
        committer: Committer,
        offsets: Iterable[OffsetCommit],
        *,
        bytes_max: int,
        now: Now,
        is_transactional: bool = False,
    ) -> None:
        """Raise if these offsets cannot be committed."""
        group = self._groups.get(committer.group_id)
        if group is not None and is_transactional:
            group.check_transactional_commit(
                committer.member_id, committer.instance_id, committer.generation
            )
        elif group is not None:
            group.check_commit(
                committer.member_id, committer.instance_id, committer.generation, now
            )
        elif committer.generation >= 0:
            raise _not_found(committer.group_id)
        else:
            self._check_new(committer.group_id, committer.user)
        self.check_room(committer, offsets, bytes_max=bytes_max, is_transactional=is_transactional)

    def check_room(
        self,
        committer: Committer,
        offsets: Iterable[OffsetCommit],
        *,
        bytes_max: int,
        is_transactional: bool = False,
    ) -> None:
        """Raise if the offsets would take too much memory."""
        offsets = tuple(offsets)
        pending_bytes = sum(map(pending_bytes_of, offsets)) if is_transactional else 0
        self._offsets.check_room(
            committer.group_id,
            offsets,
            bytes_max=bytes_max,
            pending_bytes=pending_bytes,
            user=committer.user,
        )

    def offsets(self, group_id: GroupId) -> OffsetsOfGroup:
        """Return the group's committed offsets."""
        return self._offsets.of_group(group_id)

    def is_unstable(self, group_id: GroupId, topic: TopicName, partition: int) -> bool:
        """Return whether an open transaction may still change a committed offset (KIP-447)."""
        return self._pending.is_open(group_id, topic, partition)

    def delete_offsets(
        self,
        group_id: GroupId,
        partitions: Mapping[TopicName, Iterable[int]],
        *,
        reads: Callable[[TopicName], bool] | None = None,
    ) -> tuple[Records, dict[TopicName, KafkaError]]:
        """Delete offsets; the topics that the group's members read are refused.

        ``reads`` tells that for a group of KIP-848.
        """
        _check_group_id(group_id)
        group = self._existing(group_id)
        if group.state is not State.EMPTY and group.protocol_type != CONSUMER:
            raise _not_empty(group)
        read = self._topics_read(group)
        refused: dict[TopicName, KafkaError] = {}
        # A dict, because a request may name a partition twice.
        tombstones: dict[OffsetTombstone, None] = {}
        for topic, indexes in partitions.items():
            if read is None or topic in read or (reads is not None and reads(topic)):
                text = f"group {group_id!r} has members that read topic {topic!r}"
                refused[topic] = GroupSubscribedToTopic(text)
            else:
                committed = self._offsets.of_group(group_id).get(topic, {})
                for index in indexes:
                    if index in committed:
                        tombstones[OffsetTombstone(group_id, topic, index)] = None
        return tuple(tombstones), refused

    def topic_deleted(
        self, name: TopicName, topic_id: TopicId
    ) -> Iterator[tuple[GroupId, Records]]:
        """Delete the offsets of all groups for a deleted topic.

        The records of a group come in pieces, so others may change the group between two of them.
        """
        # A copy, because groups may come and go between two pieces.
        for group_id in tuple(self._groups):
            partitions = (
                *self._offsets.of_group(group_id).get(name, ()),
                *(index for topic, index in self._pending.of_group(group_id) if topic == name),
            )
            for first in range(0, len(partitions), STEP_ELEMENTS):
                committed = self._offsets.of_group(group_id).get(name, {})
                tombstones = tuple(
                    OffsetTombstone(group_id, name, partition)
                    for partition in partitions[first : first + STEP_ELEMENTS]
                    if partition not in committed
                    # An offset that was committed for a later topic of this name stays.
                    or committed[partition].topic_id in (None, topic_id)
                )
                if tombstones:
                    yield group_id, tombstones

    def all_offsets(self) -> Iterator[OffsetCommit]:
        """Iterate over all committed offsets."""
        return iter(self._offsets)

    def group_ids(self) -> tuple[GroupId, ...]:
        """Return the ids of all groups."""
        return tuple(self._groups)

    def expire(
        self,
        group_id: GroupId,
        *,
        now: Now,
        retention_ms: int,
        reads: Callable[[TopicName], bool] | None = None,
    ) -> Records:
        """Delete the group's expired offsets, and the group if it has none left.

        The retention of an empty group's offsets counts from the time its last member left. For
        topics that the members do not read any more, and for manual commits, it counts from the
        commit. ``reads`` tells whether the members of a group of KIP-848 read a topic.
        """
        group = self._groups.get(group_id)
        if group is None:
            return ()
        is_old = self._is_old(group, now.wall_ms, retention_ms)
        records = self._offsets.tombstones(
            group_id,
            is_old if reads is None else lambda commit: is_old(commit) and not reads(commit.topic),
        )
        kept = sum(map(len, self._offsets.of_group(group_id).values())) - len(records)
        # Nothing expires: a tombstone would drop the pending value of its offset, too, and the
        # group is in use.
        if self._pending.has_open(group_id):
            return ()
        if kept or group.state is not State.EMPTY or group.members.expects_any:
            return records
        return (*records, GroupTombstone(group_id))

    # Administration

    def list_groups(self) -> tuple[ListedClassicGroup, ...]:
        """Return all groups, in the order of their ids."""
        return tuple(
            ListedClassicGroup(group_id, group.protocol_type or "", group.state)
            for group_id, group in sorted(self._groups.items())
        )

    def describe(self, group_id: GroupId) -> DescribedClassicGroup:
        """Return the group and its members."""
        group = self._existing(group_id)
        protocol = group.protocol if group.state is State.STABLE else None
        return DescribedClassicGroup(
            group_id,
            group.state,
            group.protocol_type or "",
            protocol or "",
            tuple(
                DescribedConsumerMember(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    b"" if protocol is None else member.protocols[protocol],
                    member.assignment,
                )
                for member in group.members
            ),
        )

    def forgotten(self, group_id: GroupId) -> Records:
        """Return the records that delete the offsets of a group of KIP-848; () if it has none."""
        return self.delete_group(group_id) if group_id in self._groups else ()

    def delete_group(self, group_id: GroupId) -> Records:
        """Delete an empty group and its offsets."""
        group = self._existing(group_id)
        if group.state is not State.EMPTY:
            raise _not_empty(group)
        pending = (
            OffsetTombstone(group_id, topic, partition)
            for topic, partition in self._pending.of_group(group_id)
        )
        return (*self._offsets.tombstones(group_id), *pending, GroupTombstone(group_id))

    # The records

    def replay(self, record: ClassicGroupRecord) -> None:
        """Apply a record.

        A group's metadata is replayed only while the log is read, because a live group has already
        made the change that the record describes.
        """
        match record:
            case OffsetCommit():
                self._pending.supersede(record.group_id, record.topic, record.partition)
                self._offsets.put(record)
                self._group(record.group_id).was_recorded = True
            case OffsetTombstone():
                self._pending.supersede(record.group_id, record.topic, record.partition)
                self._offsets.remove(record)
            case GroupMetadata():
                self._drop(record.group_id)
                self._put(ClassicGroup.load(record, self._timers, self._totals))
            case GroupTombstone():
                self._drop(record.group_id)
                if self._offsets.of_group(record.group_id) or self._pending.has_open(
                    record.group_id
                ):
                    # The group has become one of KIP-848, whose offsets are kept here, too.
                    self._group(record.group_id).was_recorded = True

    def replay_pending(
        self, transaction: OpenTransaction, record: OffsetCommit | OffsetTombstone
    ) -> None:
        """Apply a record of a transaction, which counts when the transaction is committed."""
        if isinstance(record, OffsetCommit):
            self._pending.put(transaction, record)
            self._group(record.group_id).was_recorded = True

    def end_transaction(self, transaction: OpenTransaction, *, is_commit: bool) -> None:
        """Apply a marker: make the transaction's offsets valid, or drop them."""
        for order, commit in self._pending.end(transaction):
            if is_commit:
                self._pending.supersede(
                    commit.group_id, commit.topic, commit.partition, before=order
                )
                self._offsets.put(commit)
                self._group(commit.group_id).was_recorded = True

    def start(self, *, now: Now, limits: ClassicGroupLimits) -> None:
        """Begin all sessions anew after the log was read."""
        for total in self.shared_totals:
            total.forget_lost()
        for group in self._groups.values():
            group.start(now, limits)

    def _new(self, group_id: GroupId, user: Principal | None) -> ClassicGroup:
        self._check_new(group_id, user)
        return self._group(group_id)

    def _check_new(self, group_id: GroupId, user: Principal | None) -> None:
        """Raise PolicyViolation if there are too many groups, in total or of the user."""
        groups_max = self._sizes.groups_max
        if len(self._groups) >= groups_max:
            raise PolicyViolation(
                f"group {group_id!r}: there are {groups_max} consumer groups already; delete some"
            )
        self.shared_totals.groups.check(group_id, user, 1, limit=groups_max)

    def _group(self, group_id: GroupId) -> ClassicGroup:
        group = self._groups.get(group_id)
        if group is None:
            group = ClassicGroup(group_id, self._timers, self._totals)
            self._put(group)
        return group

    def _put(self, group: ClassicGroup) -> None:
        self._groups[group.group_id] = group
        self.shared_totals.groups.change(group.group_id, 1)

    def _existing(self, group_id: GroupId) -> ClassicGroup:
        group = self._groups.get(group_id)
        if group is None:
            raise _not_found(group_id)
        return group

    def _of_member(self, group_id: GroupId, member_id: MemberId) -> ClassicGroup:
        _check_group_id(group_id)
        group = self._groups.get(group_id)
        if group is None:
            raise _unknown(group_id, member_id)
        return group

    def _forget_void(self, group: ClassicGroup) -> None:
        """Drop the group if it has no member and no record."""
        if group.is_void:
            self._drop(group.group_id)

    def _drop(self, group_id: GroupId) -> None:
        group = self._groups.pop(group_id, None)
        if group is not None:
            self.shared_totals.groups.change(group_id, -1)
            group.stop()

    def _topics_read(self, group: ClassicGroup) -> frozenset[TopicName] | None:
        """Return the topics that the members read; None if some metadata cannot be decoded."""
        read: set[TopicName] = set()
        if group.protocol_type == CONSUMER:
            for member in group.members:
                metadata = member.protocols.get(group.protocol or "")
                names = None if metadata is None else self._subscription(metadata)
                if names is None:
                    return None
                read |= names
        return frozenset(read)

    def _is_old(
        self, group: ClassicGroup, wall_ms: int, retention_ms: int
    ) -> Callable[[OffsetCommit], bool]:
        """Return a test for offsets that have expired."""
        is_empty = group.state is State.EMPTY
        read = self._topics_read(group)
        if not is_empty and (
            # As in Kafka, only a stable group of consumers says what it reads
            # (`ClassicGroup.offsetExpirationCondition`).
            read is None or group.state is not State.STABLE or group.protocol_type != CONSUMER
        ):
            return lambda _: False
        left_ms = group.since_ms if is_empty and group.protocol_type is not None else -1

        def is_old(commit: OffsetCommit) -> bool:
            if read is not None and commit.topic in read:
                return False
            if commit.committed.expires_ms is not None:
                return wall_ms >= commit.committed.expires_ms
            since_ms = commit.committed.committed_ms if left_ms < 0 else left_ms
            return wall_ms - since_ms >= retention_ms

        return is_old


def _check_labels(request: JoinRequest) -> None:
    """Raise InvalidRequest for texts that the group would store and that are too long."""
    for name, label in (
        ("instance id", request.instance_id),
        ("protocol type", request.protocol_type),
    ):
        if label is not None and len(label) > LABEL_CHARACTERS_MAX:
            raise InvalidRequest(
                f"group {request.group_id!r}: the {name} of a member has at most "
                f"{LABEL_CHARACTERS_MAX} characters, not {len(label)}"
            )


def _check_group_id(group_id: GroupId) -> None:
    if not group_id:
        raise InvalidGroupId("the group id is empty")


def _unknown(group_id: GroupId, member_id: MemberId) -> UnknownMemberId:
    return UnknownMemberId(
        f"there is no group {group_id!r}, so it has no member {member_id!r}: join without an id"
    )


def _not_found(group_id: GroupId) -> GroupIdNotFound:
    return GroupIdNotFound(f"group {group_id!r}: there is no such consumer group")


def _not_empty(group: ClassicGroup) -> NonEmptyGroup:
    return NonEmptyGroup(
        f"group {group.group_id!r} must be empty; it has {len(group.members)} members and is "
        f"{group.state}"
    )
