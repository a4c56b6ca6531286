"""The group coordinator's decisions for consumer groups of KIP-848.

A command returns records and a reply and changes no group. Only `ModernGroups.replay` changes
groups, from a record just appended or from the log at start. Timers are the exception: heartbeats
set them directly, because a record for each heartbeat would cost too much, and after a restart
every timer begins anew.

Committed offsets are kept by `core.groups.classic`, for groups of both protocols.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from sharegroup.core.deadlines import Now
from sharegroup.core.groups.classic.classic_groups import Committer
from sharegroup.core.groups.classic.member import UNKNOWN_MEMBER, JoinRequest, SyncRequest
from sharegroup.core.groups.modern.advance import (
    Change,
    Cluster,
    ModernGroupLimits,
    advance,
    advance_steps,
    assignor_name,
)
from sharegroup.core.groups.modern.commits import check_commit, check_fetch
from sharegroup.core.groups.modern.group import (
    ModernGroup,
    group_tombstones,
    metadata_hash,
    subscribed_names,
    with_replaced,
)
from sharegroup.core.groups.modern.heartbeat import (
    GroupVersion,
    HeartbeatPlan,
    ModernHeartbeat,
    check_all_bytes,
    check_epoch,
    check_released,
    check_request,
    check_room,
    described_member,
    identified_member,
    is_long,
    size_with,
)
from sharegroup.core.groups.modern.member import (
    JOIN_EPOCH,
    NO_PARTITIONS,
    STATIC_LEAVE_EPOCH,
    DescribedModernGroup,
    DescribedModernMember,
    ModernMember,
)
from sharegroup.core.groups.modern.migration import (
    ClassicSubscription,
    check_generation,
    check_protocols,
    check_synced_protocol,
    joined_member,
    must_rejoin,
    must_rejoin_to_sync,
    partitions_of,
)
from sharegroup.core.groups.modern.records import (
    ModernGroupRecord,
    ModernGroupRecordType,
    ModernGroupTombstone,
    Records,
    member_tombstones,
)
from sharegroup.core.groups.modern.sizes import PATTERNS_MAX, counted_bytes, memory_of_groups
from sharegroup.core.groups.modern.timers import MemberTimers, Timer, must_revoke
from sharegroup.core.groups.share.assignor import NOTHING, Assignment
from sharegroup.core.groups.share.records import GroupEpoch, TargetAssignmentEpoch
from sharegroup.core.groups.share.share_group import HeartbeatReply, ListedGroup, names_bytes
from sharegroup.core.groups.share.sizes import SizeLimits, check_names, check_new_group
from sharegroup.core.security.principal import Principal
from sharegroup.core.shared_totals import SharedTotal, text_bytes
from sharegroup.errors import GroupIdNotFound, InvalidRequest, NonEmptyGroup, RebalanceInProgress
from sharegroup.ids import GroupId, MemberId, TopicIdPartition, TopicName
from sharegroup.steps import Steps


class JoinedClassicMember(NamedTuple):
    """The reply to a JoinGroup request of a classic member."""

    member_id: MemberId
    generation: int
    protocol: str


class ModernGroups:
    """All consumer groups of KIP-848 of this broker."""

    __slots__ = ("_groups", "_timers", "memory")

    def __init__(self, memory: SharedTotal[GroupId] | None = None) -> None:
        self._groups: dict[GroupId, ModernGroup] = {}
        self._timers = MemberTimers()
        self.memory = memory or memory_of_groups()
        """Estimated memory of all groups."""

    def claim(self, group_id: GroupId, user: Principal | None) -> None:
        """Give a group that belongs to nobody to the user who uses it."""
        if user is not None and (group := self._groups.get(group_id)) is not None:
            self.memory.claim(group_id, user, counted_bytes(group.size_bytes))

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, group_id: GroupId) -> bool:
        return group_id in self._groups

    def ids(self) -> tuple[GroupId, ...]:
        """Return the ids of all groups."""
        return tuple(self._groups)

    def find(self, group_id: GroupId) -> ModernGroup | None:
        """Return the group with this id, which must not be changed; None if there is none."""
        return self._groups.get(group_id)

    # Heartbeats

    def check_heartbeat(self, request: ModernHeartbeat, limits: ModernGroupLimits) -> None:
        """Raise if the heartbeat is invalid for any group."""
        check_request(request, limits)
        check_names(
            f"group {request.group_id!r}, member {request.member_id!r}",
            request.subscribed_topic_names,
            SizeLimits(topic_names_max=limits.sizes.topic_names_max),
        )
        if request.group_id not in self._groups:
            # Only a join makes a group. A member that stays or leaves has lost its group by a
            # deletion, and must learn it.
            if request.member_epoch != JOIN_EPOCH:
                raise self._not_found(request.group_id)
            check_new_group(request.group_id)

    def patterns(self, request: ModernHeartbeat, version: int) -> tuple[str, ...]:
        """Return the regular expressions whose topics `heartbeat` needs.

        ``version`` is that of the cluster's topics.
        """
        group = self._groups.get(request.group_id)
        new = request.subscribed_topic_regex or ""
        if group is None or request.leaves:
            return (new,) if new and not request.leaves else ()
        # Any pattern may match other topics now. While the topics stay the same, those in the
        # records are valid, so most heartbeats match no name.
        if group.topics_version != version:
            return tuple(dict.fromkeys((*group.patterns, new) if new else group.patterns))
        return (new,) if new and new not in group.regexes else ()

    def heartbeat(
        self,
        request: ModernHeartbeat,
        cluster: Cluster,
        *,
        limits: ModernGroupLimits,
        now: Now,
        upgraded: Records = (),
        plan: HeartbeatPlan | None = None,
    ) -> tuple[Records, HeartbeatReply]:
        """Let a member join or stay; its session begins anew.

        ``upgraded`` are the records that a classic group becomes, if it is upgraded;
        they are part of the result. ``plan`` was made by `plan`; it is used if nothing has changed
        since.
        """
        group, records, change = self._changed(request, cluster, limits, upgraded)
        stored_member = change.known
        stored_group = self._groups.get(request.group_id)
        # `plan` works without an upgrade, so its result says nothing about a group that is one.
        if plan is not None and not upgraded and plan.fits(stored_group, change, cluster, limits):
            more, after = plan.result
        else:
            more, after = advance(group, change, cluster, limits, now.wall_ms)
        records += more
        due_ms = now.ms + limits.session_timeout_ms
        self._timers.set(request.group_id, after.member_id, Timer.SESSION, due_ms)
        self._timers.follow_protocol(request.group_id, stored_member, after)
        self._timers.follow_reconciliation(request.group_id, stored_member, after, now.ms)
        sends_assignment = (
            request.member_epoch == JOIN_EPOCH
            or request.is_full
            or stored_member is None
            or (
                # A reconciliation that changes nothing keeps the object; comparing thousands of
                # keys each time would be slow.
                stored_member.assigned is not after.assigned
                and stored_member.assigned.keys() != after.assigned.keys()
            )
        )
        reply = HeartbeatReply(
            after.member_id,
            after.member_epoch,
            limits.heartbeat_interval_ms,
            frozenset(after.assigned) if sends_assignment else None,
        )
        return tuple(records), reply

    def is_long(self, request: ModernHeartbeat, cluster: Cluster) -> bool:
        """Return whether the heartbeat should be worked out ahead by `plan`."""
        return is_long(self._groups.get(request.group_id), request, cluster)

    def plan(
        self, request: ModernHeartbeat, cluster: Cluster, limits: ModernGroupLimits, wall_ms: int
    ) -> Steps[HeartbeatPlan | None]:
        """Work out a heartbeat in steps, without changing anything.

        Returns None if the group was changed meanwhile. Raises as `heartbeat` does.
        """
        version = GroupVersion.of(self._groups.get(request.group_id))
        group, _, change = self._changed(request, cluster, limits, ())
        steps = advance_steps(group, change, cluster, limits, wall_ms)
        # Not by `yield from`: after each step another request may have changed the group.
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return HeartbeatPlan(version, change, cluster, limits, end.value)
            yield
            if not version.is_current(self._groups.get(request.group_id)):
                return None

    def _changed(
        self,
        request: ModernHeartbeat,
        cluster: Cluster,
        limits: ModernGroupLimits,
        upgraded: Records,
    ) -> tuple[ModernGroup, list[ModernGroupRecord], Change]:
        """Check a heartbeat; return its group, the records so far and the change of its member."""
        group, records = self._begun(request.group_id, upgraded)
        # Before `_sender`, which copies the whole group for a static member that returns.
        check_room(group, request.member_id, request.instance_id, limits.members_max)
        group, stored_member, more = self._sender(group, request)
        records += more
        member = described_member(stored_member or ModernMember(request.member_id), request)
        self._check_size(group, member, cluster, limits, request.user)
        return group, records, Change(stored_member, member, request.owned)

    def _begun(
        self, group_id: GroupId, upgraded: Records
    ) -> tuple[ModernGroup, list[ModernGroupRecord]]:
        """Return the group to decide for, and the records of an upgrade if there is one."""
        # Not stored: only `replay` adds a group.
        group = self._groups.get(group_id) or ModernGroup(group_id)
        if upgraded:
            group = ModernGroup(group_id)
            for record in upgraded:
                group.replay(record)
        return group, list(upgraded)

    def _sender(
        self, group: ModernGroup, request: ModernHeartbeat
    ) -> tuple[ModernGroup, ModernMember | None, Records]:
        """Return the group and the sender of a heartbeat; None if it is a new member.

        A static member that returns under a new id replaces its former self, which takes records.
        """
        joins = request.member_epoch == JOIN_EPOCH
        if request.instance_id is None or not joins:
            if joins:
                stored_member = group.members.get(request.member_id)
            else:
                stored_member = identified_member(group, request.member_id, request.instance_id)
            if stored_member is not None:
                check_epoch(stored_member, request)
            return group, stored_member, ()
        former = group.static(request.instance_id)
        if former is None:
            return group, group.members.get(request.member_id), ()
        # A member of the classic protocol cannot say that it leaves for a while, so it is replaced
        # at once, as in Kafka.
        if former.classic is None:
            check_released(group, former, request.member_id)
        return with_replaced(group, former, request.member_id)

    def _check_size(
        self,
        group: ModernGroup,
        member: ModernMember,
        cluster: Cluster,
        limits: ModernGroupLimits,
        user: Principal | None,
    ) -> None:
        stored_member = group.members.get(member.member_id)
        # Nearly every heartbeat ends here: it stores nothing new, so it needs no count of the
        # group's partitions.
        if stored_member is not None and stored_member.has_metadata_of(member):
            return
        # The topics of a known pattern are in the size of the group already; only a new one adds to
        # it.
        pattern, matched = member.subscribed_topic_regex, frozenset[TopicName]()
        if pattern not in group.regexes:
            matched = cluster.matches.get(pattern, matched)
        if pattern not in group.patterns and len(group.patterns) >= PATTERNS_MAX:
            raise InvalidRequest(
                f"group {group.group_id!r}, member {member.member_id!r}: the members of a group "
                f"may subscribe to {PATTERNS_MAX} different regular expressions"
            )
        # The topics of all members: `PARTITION_BYTES` counts for every partition that the group
        # assigns, whichever member gets it.
        names = subscribed_names(member, group.regexes) | matched | group.names_without(None)
        topics = (cluster.topics[name] for name in names if name in cluster.topics)
        partitions = sum(topic.partition_count for topic in topics)
        size = size_with(
            group,
            member,
            partitions=partitions,
            pattern_bytes=names_bytes(matched) + text_bytes(pattern),
        )
        # `memory` has no part of a group that is new, or is just upgraded.
        before = counted_bytes(group.size_bytes) if group.group_id in self._groups else 0
        added_bytes = counted_bytes(size) - before
        if size > group.size_bytes and added_bytes:
            check_all_bytes(group.group_id, self.memory.used + added_bytes, limits.sizes)
            sizes_max = limits.sizes.all_bytes_max
            self.memory.check(group.group_id, user, added_bytes, limit=sizes_max)

    def seen(self, group_id: GroupId, cluster: Cluster) -> None:
        """Note that a decision, which is written now, has compared the group with the topics."""
        group = self._groups.get(group_id)
        # A pattern without matches was not compared with these topics.
        if group is not None and all(pattern in cluster.matches for pattern in group.patterns):
            group.topics_version = cluster.version

    # Leaving

    def leave(self, request: ModernHeartbeat) -> Records | None:
        """Return the records of a static member that leaves for a while; None for all others.

        Members that leave for good are removed by `removed`.
        """
        group = self.existing(request.group_id)
        member = identified_member(group, request.member_id, request.instance_id)
        if request.member_epoch != STATIC_LEAVE_EPOCH:
            return None
        absent = replace(
            member,
            member_epoch=STATIC_LEAVE_EPOCH,
            previous_member_epoch=member.member_epoch,
            # Its successor gets the partitions as assigned from the beginning.
            assigned=dict.fromkeys(member.assigned, 0),
            pending_revocation=NO_PARTITIONS,
        )
        return (absent.current_assignment(group.group_id),)

    def removed(
        self, group_id: GroupId, member_ids: Collection[MemberId], cluster: Cluster
    ) -> Records:
        """Return the records that remove members: the group epoch is raised once."""
        group = self._groups[group_id]
        if not member_ids:
            return ()
        records: list[ModernGroupRecord] = []
        for member_id in member_ids:
            records += member_tombstones(group_id, member_id)
        staying = [group.members[other] for other in group.members if other not in member_ids]
        used = {member.subscribed_topic_regex for member in staying}
        kept = {pattern: regex for pattern, regex in group.regexes.items() if pattern in used}
        records += (
            ModernGroupTombstone(
                ModernGroupRecordType.REGULAR_EXPRESSION, group_id, pattern=pattern
            )
            for pattern in group.regexes
            if pattern not in used
        )
        names: set[TopicName] = set()
        for member in staying:
            names |= subscribed_names(member, kept)
        epoch = group.epoch + 1
        # With the hash of the remaining topics: with the old one, the next comparison with changed
        # topics would raise the epoch again although no topic of the group has changed.
        records.append(GroupEpoch(group_id, epoch, metadata_hash(names, cluster.topics)))
        if not staying:
            # An empty group has nothing to assign.  The timestamp is 0, so the assignment interval
            # does not delay the first assignment of the next member.
            records.append(TargetAssignmentEpoch(group_id, epoch, 0))
        return tuple(records)

    # Members of the classic protocol

    def join_classic(
        self,
        request: JoinRequest,
        subscription: ClassicSubscription,
        cluster: Cluster,
        *,
        limits: ModernGroupLimits,
        now: Now,
    ) -> tuple[Records, JoinedClassicMember | None]:
        """Let a member join with the classic protocol; None if it has to join again with an id."""
        group = self._groups[request.group_id]
        is_new = request.member_id == UNKNOWN_MEMBER
        member_id = request.new_member_id if is_new else request.member_id
        check_room(group, member_id, request.instance_id, limits.members_max)
        check_protocols(group, request)
        # KIP-394: a client that never returns with its id leaves nothing in the group.
        if is_new and request.instance_id is None and request.must_return:
            return (), None
        records: Records = ()
        if request.instance_id is None:
            stored_member = group.members.get(member_id)
        elif not is_new:
            stored_member = identified_member(group, member_id, request.instance_id)
        else:
            stored_member = group.static(request.instance_id)
            if stored_member is not None:
                group, stored_member, records = with_replaced(group, stored_member, member_id)
        member = joined_member(stored_member or ModernMember(member_id), request, subscription)
        self._check_size(group, member, cluster, limits, request.user)
        owned = partitions_of(subscription.owned, cluster.topics)
        change = Change(stored_member, member, owned)
        more, after = advance(group, change, cluster, limits, now.wall_ms)
        # The JOIN timer began with a heartbeat that asked for this join; left alone, it would
        # remove a member that has done so.
        self._timers.cancel(group.group_id, member_id, Timer.JOIN)
        self._timers.follow_protocol(group.group_id, stored_member, after)
        self._timers.set(
            group.group_id, after.member_id, Timer.SESSION, now.ms + request.session_timeout_ms
        )
        # The partitions are the member's from the join on, but it learns of them by a sync. If it
        # never syncs, nobody reads them, so it is removed.
        self._timers.set(
            group.group_id, after.member_id, Timer.SYNC, now.ms + request.rebalance_timeout_ms
        )
        # Its own first one: the broker assigns, so the members need not agree
        # (`check_synced_protocol`).
        protocol = next(iter(request.protocols))
        return (*records, *more), JoinedClassicMember(member_id, after.member_epoch, protocol)

    def sync_classic(self, request: SyncRequest, now_ms: int) -> tuple[Assignment, bytes]:
        """Return the partitions of a classic member, and its subscription."""
        group = self.existing(request.group_id)
        member = identified_member(group, request.member_id, request.instance_id)
        classic = check_generation(group, member, generation=request.generation)
        check_synced_protocol(group, classic, request)
        # Before the SYNC timer is cancelled: a member that is sent back to join has not got its
        # assignment.
        if must_rejoin_to_sync(group, member):
            self._ask_to_join(group, member, now_ms)
        self._timers.cancel(group.group_id, member.member_id, Timer.SYNC)
        self._timers.set(
            group.group_id, member.member_id, Timer.SESSION, now_ms + classic.session_timeout_ms
        )
        return frozenset(member.assigned), classic.protocols[0][1]

    def heartbeat_classic(
        self,
        group_id: GroupId,
        member_id: MemberId,
        *,
        instance_id: str | None,
        generation: int,
        now_ms: int,
    ) -> None:
        """Renew the session of a classic member; raise RebalanceInProgress if it must join."""
        group = self.existing(group_id)
        member = identified_member(group, member_id, instance_id)
        classic = check_generation(group, member, generation=generation)
        # First: a member that is asked to join again is alive.
        self._timers.set(
            group_id, member.member_id, Timer.SESSION, now_ms + classic.session_timeout_ms
        )
        if must_rejoin(group, member):
            self._ask_to_join(group, member, now_ms)

    def _ask_to_join(self, group: ModernGroup, member: ModernMember, now_ms: int) -> None:
        # Not set anew: a member that only sends heartbeats would never come to its end.
        if not self._timers.has(group.group_id, member.member_id, Timer.JOIN):
            due_ms = now_ms + max(member.rebalance_timeout_ms, 0)
            self._timers.set(group.group_id, member.member_id, Timer.JOIN, due_ms)
        raise RebalanceInProgress(
            f"group {group.group_id!r}, member {member.member_id!r}: the assignment has changed; "
            "join again"
        )

    def leaving_classic(
        self, group_id: GroupId, member_id: MemberId, instance_id: str | None
    ) -> MemberId:
        """Return the id of a member that leaves by LeaveGroup; raise if it is not a member."""
        group = self.existing(group_id)
        if instance_id is not None and not member_id:
            # An administrator removes a static member by its instance id alone.
            member = group.static(instance_id)
            if member is not None:
                return member.member_id
        return identified_member(group, member_id, instance_id).member_id

    # Timers

    def next_due_ms(self) -> int | None:
        """Return the time at which to call `expired`; None if no timer is set."""
        return self._timers.next_ms()

    def expired(self, now_ms: int) -> dict[GroupId, dict[MemberId, Timer]]:
        """Return the members whose time is over, by group, with the timer that has ended.

        Their timers stay until the members are removed, so a failed write is repeated.
        """
        timers: dict[GroupId, dict[MemberId, Timer]] = {}
        for key in self._timers.passed(now_ms):
            group = self._groups.get(key.group_id)
            member = None if group is None else group.members.get(key.member_id)
            if member is None or (key.timer is Timer.REVOCATION and not must_revoke(member)):
                # The write that belongs to the timer has failed, or a static member is away.
                self._timers.cancel(*key)
            else:
                timers.setdefault(key.group_id, {})[key.member_id] = key.timer
        return timers

    def start(
        self, group_ids: Iterable[GroupId], now_ms: int, session_timeouts_ms: Mapping[GroupId, int]
    ) -> None:
        """Give the members of groups that were loaded or upgraded all their time."""
        for group_id in group_ids:
            for member in self._groups[group_id].members.values():
                session_ms = session_timeouts_ms[group_id]
                if member.classic is not None:
                    session_ms = member.classic.session_timeout_ms
                self._timers.set(group_id, member.member_id, Timer.SESSION, now_ms + session_ms)
                if member.classic is None and must_revoke(member):
                    # The timeout is -1 if the log has no metadata record of the member.
                    due_ms = now_ms + max(member.rebalance_timeout_ms, 0)
                    self._timers.set(group_id, member.member_id, Timer.REVOCATION, due_ms)

    # Offsets

    def check_commit(
        self,
        committer: Committer,
        partitions: Iterable[TopicIdPartition],
        *,
        api_version: int,
        is_transactional: bool = False,
    ) -> None:
        """Raise if a member may not commit offsets of these partitions."""
        group = self.existing(committer.group_id)
        check_commit(
            group,
            committer,
            partitions,
            api_version=api_version,
            is_transactional=is_transactional,
        )

    def check_fetch(self, group_id: GroupId, member_id: MemberId | None, epoch: int) -> None:
        """Raise if a member may not fetch the committed offsets, because its epoch is old."""
        check_fetch(self.existing(group_id), member_id, epoch)

    # Administration

    def existing(self, group_id: GroupId) -> ModernGroup:
        """Return the group, which must not be changed; raise GroupIdNotFound if there is none."""
        group = self._groups.get(group_id)
        if group is None:
            raise self._not_found(group_id)
        return group

    def list_groups(self) -> tuple[ListedGroup, ...]:
        """Return all groups, in the order of their ids."""
        return tuple(
            ListedGroup(group_id, group.state) for group_id, group in sorted(self._groups.items())
        )

    def describe(self, group_id: GroupId, limits: ModernGroupLimits) -> DescribedModernGroup:
        """Return the group and its members, in the order of their ids."""
        group = self.existing(group_id)
        return DescribedModernGroup(
            group_id,
            group.state,
            group.epoch,
            group.assignment_epoch,
            assignor_name(group, limits),
            tuple(
                DescribedModernMember(
                    group.members[member_id], group.target.get(member_id, NOTHING)
                )
                for member_id in sorted(group.members)
            ),
        )

    def deleted(self, group_id: GroupId) -> Records:
        """Return the records that delete an empty group."""
        group = self.existing(group_id)
        if group.members:
            raise NonEmptyGroup(
                f"group {group_id!r} must be empty; it has {len(group.members)} members"
            )
        return group_tombstones(group)

    def tombstones(self, group_id: GroupId) -> Records:
        """Return the records that delete a group with its members."""
        return group_tombstones(self._groups[group_id])

    # The records

    def replay(self, record: ModernGroupRecord) -> None:
        """Apply a record."""
        group_id = record.group_id
        group = self._groups.get(group_id)
        # A tombstone makes no group: compaction keeps those of deleted groups for a while.
        if isinstance(record, ModernGroupTombstone):
            if group is None:
                return
            if record.record_type is ModernGroupRecordType.METADATA:
                del self._groups[group_id]
                self.memory.change(group_id, -counted_bytes(group.size_bytes))
                for member_id in group.members:
                    self._timers.cancel_all(group_id, member_id)
                return
            if (
                record.record_type is ModernGroupRecordType.MEMBER_METADATA
                and record.member_id is not None
            ):
                self._timers.cancel_all(group_id, record.member_id)
        size_bytes = 0 if group is None else counted_bytes(group.size_bytes)
        if group is None:
            group = self._groups[group_id] = ModernGroup(group_id)
        group.replay(record)
        self.memory.change(group_id, counted_bytes(group.size_bytes) - size_bytes)

    def _not_found(self, group_id: GroupId) -> GroupIdNotFound:
        return GroupIdNotFound(f"there is no consumer group {group_id!r} of the consumer protocol")
