"""The group coordinator's decisions for consumer groups of the classic protocol.

Two kinds of things happen to a group, and they are kept in two ways:

    offsets      commands return records and change nothing; `replay` alone does
    membership   requests change the group (`consumer_group`), at once and for good; a `Decision`
                 says what has to be written of it, and who is answered when that is durable

A group is there from its first member or its first committed offset until it is deleted; one
that nobody is in and that committed nothing for long enough is deleted by itself (`expire`).  A
group that has only told somebody a member id is forgotten when nobody comes back.

What a peer can make us remember is bounded: groups, members of a group, their metadata, member
ids given out (from a number on new members are let in at once instead), offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from sharegroup.core.consumer_group import ConsumerGroup
from sharegroup.core.consumer_group_member import (
    UNKNOWN_MEMBER,
    Call,
    Decision,
    Identity,
    JoinRequest,
    Limits,
    Now,
    State,
    SyncRequest,
    Timers,
)
from sharegroup.core.consumer_group_members import Totals
from sharegroup.core.consumer_group_offsets import CommittedOffsets, OffsetsOfGroup
from sharegroup.core.consumer_group_records import (
    ConsumerGroupRecord,
    GroupMetadata,
    GroupTombstone,
    OffsetCommit,
    OffsetTombstone,
    Records,
)
from sharegroup.errors import (
    GroupIdNotFound,
    GroupSubscribedToTopic,
    InvalidGroupId,
    InvalidSessionTimeout,
    KafkaError,
    NonEmptyGroup,
    PolicyViolation,
    UnknownMemberId,
)
from sharegroup.ids import GroupId, MemberId, TopicId, TopicName

GROUPS_MAX = 20_000
OFFSETS_MAX = 1_000_000
PENDING_MAX = 10_000
"""Member ids given out that have not come back, of all groups."""

CONSUMER = "consumer"
"""The protocol type of groups whose members read topics."""

Subscription = Callable[[bytes], frozenset[TopicName] | None]
"""The topics that a member's metadata names; None when it cannot be understood."""


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list."""

    group_id: GroupId
    protocol_type: str
    state: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member as an administrator sees it; without metadata while the group rebalances."""

    member_id: MemberId
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as an administrator sees it."""

    group_id: GroupId
    state: str
    protocol_type: str
    protocol: str
    members: tuple[MemberDescription, ...]


@dataclass(frozen=True, slots=True)
class Committer:
    """Who commits offsets; a generation below 0 is nobody's, of an administrator or by hand."""

    group_id: GroupId
    member_id: MemberId
    instance_id: str | None
    generation: int


class ConsumerGroups:
    """See the module's text."""

    __slots__ = ("_groups", "_offsets", "_subscription", "_timers", "_totals")

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._groups: dict[GroupId, ConsumerGroup] = {}
        self._offsets = CommittedOffsets()
        self._timers = Timers()
        self._totals = Totals()

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, group_id: GroupId) -> bool:
        return group_id in self._groups

    # Membership

    def join(self, request: JoinRequest, call: Call, *, now: Now, limits: Limits) -> Decision:
        """A member joins; its answer may be in a later decision."""
        _check_group_id(request.group_id)
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
            group = self._new(request.group_id)
        if self._totals.pending >= PENDING_MAX:
            request = replace(request, must_return=False)
        try:
            group.join(request, call, now, limits)
        finally:
            self._forget_void(group)
        return group.take()

    def sync(self, request: SyncRequest, call: Call, *, now: Now) -> Decision:
        """A member asks for its assignment; its answer may be in a later decision."""
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
        """The member lives; whether it has to join again."""
        group = self._of_member(group_id, member_id)
        return group.heartbeat(member_id, instance_id, generation, now)

    def leave(
        self, group_id: GroupId, leaving: tuple[Identity, ...], *, now: Now, limits: Limits
    ) -> tuple[Decision, list[KafkaError | None]]:
        """Members leave; why each cannot, or None."""
        _check_group_id(group_id)
        group = self._groups.get(group_id)
        if group is None:
            nothing = Decision(group_id, (), ())
            return nothing, [_unknown(group_id, one.member_id) for one in leaving]
        outcomes = group.leave(leaving, now, limits)
        self._forget_void(group)
        return group.take(), outcomes

    def hang_up(self, group_id: GroupId, call: Call, *, now: Now, limits: Limits) -> Decision:
        """Nobody hears the answer to a call any more.

        A new member does not know its id yet, or has nothing to do with it: it is gone, and the
        others need not wait for it.  Any other member may ask again over another connection.
        """
        group = self._groups.get(group_id)
        member_id = None if group is None else group.members.new_that_waits(call)
        if group is None or member_id is None:
            return Decision(group_id, (), ())
        group.session_ended(member_id, now, limits)
        self._forget_void(group)
        return group.take()

    def next_due_ms(self) -> int | None:
        """When `pass_time` has something to do; None while nothing is waited for."""
        return self._timers.next_ms()

    def pass_time(self, *, now: Now, limits: Limits) -> Iterator[Decision]:
        """End the sessions and the phases whose time is over, one after the other."""
        while (timer := self._timers.pop(now.ms)) is not None:
            group = self._groups[timer.group_id]
            if timer.member_id == UNKNOWN_MEMBER:
                group.phase_ended(now, limits)
            else:
                group.session_ended(timer.member_id, now, limits)
            self._forget_void(group)
            yield group.take()

    # Offsets

    def check_commit(self, committer: Committer, *, count: int, now: Now) -> None:
        """Raise what keeps so many offsets from being committed."""
        group = self._groups.get(committer.group_id)
        if group is not None:
            group.check_commit(
                committer.member_id, committer.instance_id, committer.generation, now
            )
        elif committer.generation >= 0:
            raise _not_found(committer.group_id)
        elif len(self._groups) >= GROUPS_MAX:
            raise _too_many_groups(committer.group_id)
        if len(self._offsets) + count > OFFSETS_MAX:
            raise PolicyViolation(
                f"group {committer.group_id!r}: {count} offsets more than the "
                f"{len(self._offsets)} of all groups would pass {OFFSETS_MAX}"
            )

    def offsets(self, group_id: GroupId) -> OffsetsOfGroup:
        """What the group has committed."""
        return self._offsets.of_group(group_id)

    def delete_offsets(
        self, group_id: GroupId, partitions: Mapping[TopicName, Iterable[int]]
    ) -> tuple[Records, dict[TopicName, KafkaError]]:
        """Forget offsets; the topics that the group reads are refused."""
        _check_group_id(group_id)
        group = self._existing(group_id)
        if group.state is not State.EMPTY and group.protocol_type != CONSUMER:
            raise _not_empty(group)
        read = self._topics_read(group)
        refused: dict[TopicName, KafkaError] = {}
        wanted: set[tuple[TopicName, int]] = set()
        for topic, indexes in partitions.items():
            if read is None or topic in read:
                text = f"group {group_id!r} has members that read topic {topic!r}"
                refused[topic] = GroupSubscribedToTopic(text)
            else:
                wanted.update((topic, index) for index in indexes)
        records = self._offsets.tombstones(
            group_id, lambda one: (one.topic, one.partition) in wanted
        )
        return records, refused

    def topic_deleted(self, name: TopicName, topic_id: TopicId) -> dict[GroupId, Records]:
        """No group is anywhere in the topic any more."""
        found: dict[GroupId, Records] = {}
        for group_id in self._groups:
            partitions = self._offsets.of_group(group_id).get(name, {})
            gone = tuple(
                OffsetTombstone(group_id, name, partition)
                for partition, committed in partitions.items()
                if committed.topic_id in (None, topic_id)
            )
            if gone:
                found[group_id] = gone
        return found

    def all_offsets(self) -> Iterator[OffsetCommit]:
        """Every offset that was committed."""
        return iter(self._offsets)

    def group_ids(self) -> tuple[GroupId, ...]:
        """All groups."""
        return tuple(self._groups)

    def expire(self, group_id: GroupId, *, now: Now, retention_ms: int) -> Records:
        """Forget the offsets that nobody came back for, and the group if it is left with none.

        Of a group without members they count from its last member's leaving; of topics that the
        members do not read any more, and of offsets committed by hand, from the commit.
        """
        group = self._groups.get(group_id)
        if group is None:
            return ()
        is_old = self._is_old(group, now.wall_ms, retention_ms)
        records = self._offsets.tombstones(group_id, is_old)
        kept = sum(map(len, self._offsets.of_group(group_id).values())) - len(records)
        if kept or group.state is not State.EMPTY or group.members.expects_any:
            return records
        return (*records, GroupTombstone(group_id))

    # Administration

    def list_groups(self) -> tuple[GroupListing, ...]:
        """All groups, by id."""
        return tuple(
            GroupListing(group_id, group.protocol_type or "", group.state)
            for group_id, group in sorted(self._groups.items())
        )

    def describe(self, group_id: GroupId) -> GroupDescription:
        """The group and its members."""
        group = self._existing(group_id)
        protocol = group.protocol if group.state is State.STABLE else None
        return GroupDescription(
            group_id,
            group.state,
            group.protocol_type or "",
            protocol or "",
            tuple(
                MemberDescription(
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

    def delete_group(self, group_id: GroupId) -> Records:
        """Delete an empty group and its offsets."""
        group = self._existing(group_id)
        if group.state is not State.EMPTY:
            raise _not_empty(group)
        return (*self._offsets.tombstones(group_id), GroupTombstone(group_id))

    # The records

    def replay(self, record: ConsumerGroupRecord) -> None:
        """Let a record have happened.

        That of a group's metadata is replayed only when the log is read: it tells of what has
        happened to a group that lives.
        """
        match record:
            case OffsetCommit():
                self._offsets.put(record)
                self._group(record.group_id).was_recorded = True
            case OffsetTombstone():
                self._offsets.remove(record)
            case GroupMetadata():
                self._drop(record.group_id)
                self._groups[record.group_id] = ConsumerGroup.load(
                    record, self._timers, self._totals
                )
            case GroupTombstone():
                self._drop(record.group_id)

    def start(self, *, now: Now, limits: Limits) -> None:
        """The log was read: every member has its whole session from now on."""
        for group in self._groups.values():
            group.start(now, limits)

    def _new(self, group_id: GroupId) -> ConsumerGroup:
        if len(self._groups) >= GROUPS_MAX:
            raise _too_many_groups(group_id)
        return self._group(group_id)

    def _group(self, group_id: GroupId) -> ConsumerGroup:
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = ConsumerGroup(group_id, self._timers, self._totals)
        return group

    def _existing(self, group_id: GroupId) -> ConsumerGroup:
        group = self._groups.get(group_id)
        if group is None:
            raise _not_found(group_id)
        return group

    def _of_member(self, group_id: GroupId, member_id: MemberId) -> ConsumerGroup:
        _check_group_id(group_id)
        group = self._groups.get(group_id)
        if group is None:
            raise _unknown(group_id, member_id)
        return group

    def _forget_void(self, group: ConsumerGroup) -> None:
        """After something that may leave nothing of a group."""
        if group.is_void:
            self._drop(group.group_id)

    def _drop(self, group_id: GroupId) -> None:
        group = self._groups.pop(group_id, None)
        if group is not None:
            group.stop()

    def _topics_read(self, group: ConsumerGroup) -> frozenset[TopicName] | None:
        """The topics that the members read; None when one of them cannot be understood."""
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
        self, group: ConsumerGroup, wall_ms: int, retention_ms: int
    ) -> Callable[[OffsetCommit], bool]:
        """Which of the group's offsets need not be kept any more."""
        is_empty = group.state is State.EMPTY
        read = self._topics_read(group)
        if not is_empty and (
            read is None or group.state is not State.STABLE or group.protocol_type != CONSUMER
        ):
            return lambda _: False
        left_ms = group.since_ms if is_empty and group.protocol_type is not None else -1

        def is_old(one: OffsetCommit) -> bool:
            if read is not None and one.topic in read:
                return False
            if one.committed.expires_ms is not None:
                return wall_ms >= one.committed.expires_ms
            since_ms = one.committed.committed_ms if left_ms < 0 else left_ms
            return wall_ms - since_ms >= retention_ms

        return is_old


def _check_group_id(group_id: GroupId) -> None:
    if not group_id:
        raise InvalidGroupId("the group id is empty")


def _unknown(group_id: GroupId, member_id: MemberId) -> UnknownMemberId:
    return UnknownMemberId(
        f"there is no group {group_id!r}, so it has no member {member_id!r}: join without an id"
    )


def _not_found(group_id: GroupId) -> GroupIdNotFound:
    return GroupIdNotFound(f"group {group_id!r}: there is no such consumer group")


def _not_empty(group: ConsumerGroup) -> NonEmptyGroup:
    return NonEmptyGroup(
        f"group {group.group_id!r} must be empty; it has {len(group.members)} members and is "
        f"{group.state}"
    )


def _too_many_groups(group_id: GroupId) -> PolicyViolation:
    return PolicyViolation(
        f"group {group_id!r}: there are {GROUPS_MAX} consumer groups already; delete some"
    )
