"""One consumer group of the classic protocol: how its members agree on an assignment.

    Empty ──join──▶ PreparingRebalance ──all joined──▶ CompletingRebalance ──assigned──▶ Stable
      ▲                 │      ▲                                │                          │
      └──no member left─┘      └────── a member joins, leaves or times out ────────────────┘

A *generation* is one agreement. Members join until all have joined, or until the rebalance timeout
(for an empty group its initial delay) has passed. Each member receives the new generation, the
leader also the metadata of all members. The leader assigns, and all members fetch their assignment
by syncing. From then on they send heartbeats until something changes. Requests of another
generation are refused: that is the fencing (KIP-62, KIP-394, KIP-345).

Only the last complete agreement survives a restart (`GroupMetadata`); waiting requests do not. So
this class changes itself and returns the record along with the change, unlike state that is
replayed. The group in memory is ahead of its record. When a record cannot be written, the group is
dropped and the durable state is loaded (ADR 0004).

Time is an argument; `Timers` says when to call `session_ended` and `phase_ended`. The results of
calls are collected, and `take` returns them.
"""

from __future__ import annotations

from dataclasses import replace

from sharegroup.core.deadlines import Now
from sharegroup.core.groups.classic.member import (
    UNKNOWN_MEMBER,
    Answers,
    Call,
    ClassicGroupLimits,
    ClassicGroupMember,
    ClassicTimerKey,
    Decision,
    JoinReply,
    JoinRequest,
    LeavingMember,
    NewMemberId,
    State,
    SyncReply,
    SyncRequest,
    Timers,
)
from sharegroup.core.groups.classic.members import Members, Totals, check_same
from sharegroup.core.groups.classic.records import ClassicGroupRecord, GroupMetadata
from sharegroup.errors import (
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    KafkaError,
    RebalanceInProgress,
    UnknownMemberId,
)
from sharegroup.ids import GroupId, MemberId

NEW_MEMBER_JOIN_MS = 300_000
"""Longest time that a new member waits; after that it has gone or joins again.  Kafka's value."""

RETRY_MS_MIN = 1_000
"""Shortest time between two checks whether a static member has joined."""


class ClassicGroup:
    """A consumer group of the classic protocol: its state, its generation and its members."""

    __slots__ = (
        "_answers",
        "_initial_left_ms",
        "_joined_meanwhile",
        "_records",
        "_timers",
        "_unsynced",
        "generation",
        "group_id",
        "members",
        "protocol",
        "protocol_type",
        "since_ms",
        "state",
        "was_recorded",
    )

    def __init__(self, group_id: GroupId, timers: Timers, totals: Totals) -> None:
        self.group_id = group_id
        self.members = Members(group_id, totals)
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.since_ms = -1
        self.was_recorded = False
        """Whether the log has records of the group; then it exists until it is deleted."""
        self._unsynced: set[MemberId] = set()
        self._initial_left_ms: int | None = None  # None except in a first rebalance.
        self._joined_meanwhile = False
        self._timers = timers
        self._records: list[ClassicGroupRecord] = []
        self._answers = Answers()

    @classmethod
    def load(cls, metadata: GroupMetadata, timers: Timers, totals: Totals) -> ClassicGroup:
        """Return the group that a record describes."""
        group = cls(metadata.group_id, timers, totals)
        group.was_recorded = True
        group.generation = metadata.generation
        group.protocol_type = metadata.protocol_type or None
        group.protocol = metadata.protocol
        group.since_ms = metadata.since_ms
        group.members.load(metadata)
        group.state = State.STABLE if len(group.members) else State.EMPTY
        return group

    def take(self) -> Decision:
        """Return the records and answers of the calls since the last `take`."""
        decision = Decision(self.group_id, tuple(self._records), self._answers.take())
        self._records.clear()
        return decision

    def start(self, now: Now, limits: ClassicGroupLimits) -> None:
        """Start a loaded group: begin all sessions, and rebalance if there are too many members."""
        for member in self.members:
            self._renew(member, now)
        # group.max.size may be smaller since the restart. The rebalance lets members commit their
        # offsets before some are refused (GroupMetadataManager.java).
        if len(self.members) > limits.members_max:
            self._prepare(now, limits)

    def rebalance(self, now: Now, limits: ClassicGroupLimits) -> None:
        """Begin a rebalance of a stable group."""
        self._prepare(now, limits)

    def end_requests(self, error: KafkaError) -> None:
        """Answer all waiting requests with an error."""
        for member in self.members:
            self._answers.end(member, error)

    def stop(self) -> None:
        """Remove all members and cancel all timers, because the group is deleted."""
        for member_id in (UNKNOWN_MEMBER, *self.members.clear()):
            self._timers.cancel(ClassicTimerKey(self.group_id, member_id))

    @property
    def is_void(self) -> bool:
        """Whether the group has no member and no record, so it does not exist."""
        return not self.was_recorded and not self.members.expects_any and not len(self.members)

    # Joining

    def join(self, request: JoinRequest, call: Call, now: Now, limits: ClassicGroupLimits) -> None:
        """Handle a request to join; the answer may come much later."""
        self.members.check_protocols(request, protocol_type=self.protocol_type)
        self.members.check_metadata(request)
        member_id = request.member_id
        if not self._accepts(member_id, limits):
            self._refuse_for_size(member_id, call, now, limits)
        elif member_id == UNKNOWN_MEMBER:
            self._join_new(request, call, now, limits)
        # A pending id never belongs to a static member: those join at once (KIP-394).
        elif self.members.expects(member_id) and request.instance_id is None:
            self._add(request, member_id, call, now, limits)
        else:
            self.members.check(member_id, request.instance_id)
            self._join_again(self.members[member_id], request, call, now, limits)

    def _refuse_for_size(
        self, member_id: MemberId, call: Call, now: Now, limits: ClassicGroupLimits
    ) -> None:
        """Refuse a member for which there is no place, and remove it if it was a member before."""
        self._remove(member_id)
        self._answers.give(
            call,
            GroupMaxSizeReached(
                f"group {self.group_id!r} has {len(self.members)} members; "
                f"group.max.size is {limits.members_max}"
            ),
        )
        # The others may have waited for this member alone.
        if self.state is State.PREPARING_REBALANCE:
            self._rebalance_or_complete(now, limits)

    def _join_new(
        self, request: JoinRequest, call: Call, now: Now, limits: ClassicGroupLimits
    ) -> None:
        member_id = request.new_member_id
        if self.members.static(request.instance_id) is not None:
            self._replace_static(request, call, now, limits)
        elif request.instance_id is None and request.must_return:
            self.members.expect(member_id)
            session = ClassicTimerKey(self.group_id, member_id)
            self._timers.set(session, due_ms=now.ms + request.session_timeout_ms)
            self._answers.give(call, NewMemberId(member_id))
        else:
            self._add(request, member_id, call, now, limits)

    def _join_again(
        self,
        member: ClassicGroupMember,
        request: JoinRequest,
        call: Call,
        now: Now,
        limits: ClassicGroupLimits,
    ) -> None:
        """Handle a member that joins again: it changes the group, or it missed the last answer."""
        same = list(member.protocols.items()) == list(request.protocols.items())
        is_leader = self.members.leader == member.member_id
        if same and (
            self.state is State.COMPLETING_REBALANCE
            or (self.state is State.STABLE and not is_leader)
        ):
            self._answers.give(call, self._join_reply(member))
            return
        # A leader that joins a stable group wants to assign anew: topics may have grown.
        self.members.ask(member, request)
        self._answers.park_join(member, call)
        self._rebalance_or_complete(now, limits)

    def _add(
        self,
        request: JoinRequest,
        member_id: MemberId,
        call: Call,
        now: Now,
        limits: ClassicGroupLimits,
    ) -> None:
        member = ClassicGroupMember(
            member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
        )
        if not len(self.members):
            self.protocol_type = request.protocol_type
        self.members.add(member)
        self.members.ask(member, request)
        self._joined_meanwhile = True
        self._answers.park_join(member, call)
        # It has no generation yet, so it cannot send heartbeats, and its connection may be lost
        # unnoticed.
        session = ClassicTimerKey(self.group_id, member_id)
        self._timers.set(session, due_ms=now.ms + NEW_MEMBER_JOIN_MS)
        self._rebalance_or_complete(now, limits)

    def _replace_static(
        self, request: JoinRequest, call: Call, now: Now, limits: ClassicGroupLimits
    ) -> None:
        """Let a static member that returns under a new id keep its place; fence the old id.

        A stable group does not rebalance unless it would choose another protocol: the restart of a
        static member is no reason for a rebalance (KIP-345).
        """
        leader_before = self.members.leader
        member = self._rename(request)
        self._renew(member, now)
        self.members.ask(member, request)
        if self.state is not State.STABLE or self.members.select_protocol() != self.protocol:
            self._answers.park_join(member, call)
            self._rebalance_or_complete(now, limits)
            return
        reply = self._join_reply(member)
        if request.skips_assignment:
            reply = replace(reply, skip_assignment=self.members.leader == member.member_id)
        else:
            # The member must not believe that it leads, because it would assign.
            assert leader_before is not None
            reply = replace(reply, leader=leader_before, members=())
        # Its new id must survive a restart, although the generation stays.
        self._record()
        self._answers.give(call, reply)

    def _rename(self, request: JoinRequest) -> ClassicGroupMember:
        """Return the member under its new id; fence requests that wait under the old one."""
        old_id = self.members.static(request.instance_id)
        assert old_id is not None
        new_id = request.new_member_id
        member = self.members.rename(old_id, new_id)
        reason = f"instance {member.instance_id!r} has joined again as {new_id!r}"
        self._answers.end(member, FencedInstanceId(f"group {self.group_id!r}: {reason}"))
        self._timers.cancel(ClassicTimerKey(self.group_id, old_id))
        if old_id in self._unsynced:
            self._unsynced.remove(old_id)
            self._unsynced.add(new_id)
        return member

    # The two phases of a rebalance

    def _rebalance_or_complete(self, now: Now, limits: ClassicGroupLimits) -> None:
        """Begin a rebalance after a change, or complete the one under way if all have joined."""
        if self.state is not State.PREPARING_REBALANCE:
            self._prepare(now, limits)
        # The first rebalance ends by its timer alone, because more members may come.
        elif self._initial_left_ms is None and self.members.all_joined():
            self._complete_join(now)

    def _prepare(self, now: Now, limits: ClassicGroupLimits) -> None:
        if self.state is State.COMPLETING_REBALANCE:
            error = RebalanceInProgress(f"group {self.group_id!r}: another rebalance has started")
            for member in self.members:
                # The former assignments are void: no later sync may return one of an earlier
                # generation.
                self.members.assign(member, b"")
                if member.syncing is not None:
                    self._answers.end_sync(member, error)
                    # Its timer may have ended while it waited (see `session_ended`).
                    self._renew(member, now)
        self._unsynced.clear()
        was_empty = self.state is State.EMPTY
        self._move(State.PREPARING_REBALANCE, now)
        if was_empty:
            # The first members of a group start together; waiting for them saves rebalances
            # (KIP-134).
            delay_ms = limits.initial_delay_ms
            self._initial_left_ms = max(self.members.rebalance_timeout_ms() - delay_ms, 0)
            self._joined_meanwhile = False
            self._set_phase(now.ms + delay_ms)
        elif self.members.all_joined():
            self._complete_join(now)
        else:
            self._set_phase(now.ms + self.members.rebalance_timeout_ms())

    def phase_ended(self, now: Now, limits: ClassicGroupLimits) -> None:
        """Handle the end of the time for joining or for syncing."""
        if self.state is State.PREPARING_REBALANCE:
            left_ms = self._initial_left_ms
            if left_ms and self._joined_meanwhile:
                # Members are still joining: wait for more, up to the rebalance timeout.
                self._joined_meanwhile = False
                more_ms = min(limits.initial_delay_ms, left_ms)
                self._initial_left_ms = left_ms - more_ms
                self._set_phase(now.ms + more_ms)
            else:
                self._complete_join(now)
        # In a stable group, too, as in Kafka: nobody reads the partitions of a member that never
        # fetches its assignment.
        elif self._unsynced:
            # Sorted, because events must not depend on the order of a set of strings (ADR 0015).
            for member_id in sorted(self._unsynced):
                self._remove(member_id)
            self._prepare(now, limits)

    def _complete_join(self, now: Now) -> None:
        """Make the members that joined the next generation; static members may be late."""
        self._timers.cancel(ClassicTimerKey(self.group_id, UNKNOWN_MEMBER))
        for member in list(self.members):
            # A static member may be restarting: it keeps its place until its session ends
            # (KIP-345).
            if member.joining is None and member.instance_id is None:
                self._remove(member.member_id)
        if len(self.members) and not self.members.elect_leader():
            # Only static members are left and none has joined: wait until their sessions end.
            timeout_ms = max(self.members.rebalance_timeout_ms(), RETRY_MS_MIN)
            self._set_phase(now.ms + timeout_ms)
            return
        self.generation += 1
        self._initial_left_ms = None
        if len(self.members):
            self._begin_sync(now)
        else:
            self.protocol = None
            self._move(State.EMPTY, now)
            if self.was_recorded:  # Otherwise no generation was ever complete.
                self._record()

    def _begin_sync(self, now: Now) -> None:
        self.protocol = self.members.select_protocol()
        self._move(State.COMPLETING_REBALANCE, now)
        for member in self.members:
            self._answers.end_join(member, self._join_reply(member))
            member.is_new = False
            self._renew(member, now)
            self._unsynced.add(member.member_id)
        self._set_phase(now.ms + self.members.rebalance_timeout_ms())

    def sync(self, request: SyncRequest, call: Call, now: Now) -> None:
        """Handle a member's request for its assignment; the leader's request answers all."""
        self.members.check(request.member_id, request.instance_id)
        self._check_generation(request.generation)
        check_same(request, protocol_type=self.protocol_type, protocol=self.protocol)
        if self.state is State.PREPARING_REBALANCE:
            raise RebalanceInProgress(f"group {self.group_id!r} is rebalancing: join again")
        member = self.members[request.member_id]
        assigns = (
            self.state is State.COMPLETING_REBALANCE and self.members.leader == member.member_id
        )
        # Before the first change: after a refusal the group still waits for its leader.
        if assigns:
            self.members.check_assignments(request)
        self._unsynced.discard(member.member_id)
        if not self._unsynced:
            self._timers.cancel(ClassicTimerKey(self.group_id, UNKNOWN_MEMBER))
        # The group is stable before the others have synced: the leader's request has all
        # assignments.
        if self.state is State.STABLE:
            self._answers.give(call, self._sync_reply(member))
            return
        self._answers.park_sync(member, call)
        if assigns:
            self._stabilize(request.assignments, now)

    def _stabilize(self, assignments: dict[MemberId, bytes], now: Now) -> None:
        self._move(State.STABLE, now)
        for member in self.members:
            self.members.assign(member, assignments.get(member.member_id, b""))
        self._record()
        for member in self.members:
            if member.syncing is not None:
                self._answers.end_sync(member, self._sync_reply(member))
                self._renew(member, now)

    # Staying and leaving

    def heartbeat(
        self, member_id: MemberId, instance_id: str | None, generation: int, now: Now
    ) -> bool:
        """Renew the member's session; return whether it has to join again."""
        self.members.check(member_id, instance_id)
        self._check_generation(generation)
        self._renew(self.members[member_id], now)
        # While the group waits for its leader, heartbeats are normal ones: members may send them as
        # soon as they have joined (GroupMetadataManager.java).
        return self.state is State.PREPARING_REBALANCE

    def leave(
        self, leaving: tuple[LeavingMember, ...], now: Now, limits: ClassicGroupLimits
    ) -> list[KafkaError | None]:
        """Remove members; return the error of each, or None."""
        outcomes = [self._leave(identity) for identity in leaving]
        # From an empty group only pending ids can leave.
        if None in outcomes and self.state is not State.EMPTY:
            self._rebalance_or_complete(now, limits)
        return outcomes

    def _leave(self, identity: LeavingMember) -> KafkaError | None:
        member_id, instance_id = identity
        if member_id == UNKNOWN_MEMBER:
            # An administrator removes a static member by its instance id alone (KIP-345).
            member_id = self.members.static(instance_id) or UNKNOWN_MEMBER
        try:
            if not self.members.expects(member_id):
                self.members.check(member_id, instance_id)
        except KafkaError as error:
            return error
        self._remove(member_id)
        return None

    def session_ended(self, member_id: MemberId, now: Now, limits: ClassicGroupLimits) -> None:
        """Remove a member, or a pending member id, whose session timeout has passed."""
        member = self.members.get(member_id)
        if member is not None and member.waits:
            return  # The rebalance that it waits for renews its session.
        self._remove(member_id)
        if self.state is State.PREPARING_REBALANCE:
            if self.members.all_joined():
                self._complete_join(now)
        elif member is not None:
            self._rebalance_or_complete(now, limits)

    def check_commit(
        self, member_id: MemberId, instance_id: str | None, generation: int, now: Now
    ) -> None:
        """Raise if the member may not commit offsets; a commit renews the session like a heartbeat.

        A commit without a generation comes from an administrator or from a consumer with a manual
        assignment. It is allowed only while the group is empty.
        """
        if generation < 0 and self.state is State.EMPTY:
            return
        self.members.check(member_id, instance_id)
        self._check_generation(generation)
        # Not an error of the generation, as in Kafka: the member has the right one, and only its
        # assignment is missing.
        if self.state is State.COMPLETING_REBALANCE:
            raise RebalanceInProgress(
                f"group {self.group_id!r}: generation {generation} has no assignment yet"
            )
        self._renew(self.members[member_id], now)

    def check_transactional_commit(
        self, member_id: MemberId, instance_id: str | None, generation: int
    ) -> None:
        """Raise if the member may not commit offsets in a transaction.

        Old versions of TxnOffsetCommit name no member; then only the transactional id fences the
        producer.  A rebalance does not matter, and the session is not renewed (KIP-447).
        """
        if generation < 0 and (
            self.state is State.EMPTY or (not member_id and instance_id is None)
        ):
            return
        self.members.check(member_id, instance_id)
        self._check_generation(generation)

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise IllegalGeneration(
                f"group {self.group_id!r} is in generation {self.generation}, not {generation}"
            )

    def _accepts(self, member_id: MemberId, limits: ClassicGroupLimits) -> bool:
        """Return whether there is room; during a rebalance, members that joined first have it."""
        member = self.members.get(member_id)
        if self.state is State.EMPTY:
            return True
        if self.state is State.PREPARING_REBALANCE:
            if member is not None and member.joining is not None:
                return True
            # Not by the size of the group, as in Kafka: it may be above a limit that was lowered,
            # and then the last members to join again have to go.
            return self.members.joined_count() < limits.members_max
        return member is not None or len(self.members) < limits.members_max

    # Changes

    def _move(self, state: State, now: Now) -> None:
        self.state = state
        self.since_ms = now.wall_ms

    def _remove(self, member_id: MemberId) -> None:
        """Remove a member or a pending member id; end its waiting requests."""
        self._timers.cancel(ClassicTimerKey(self.group_id, member_id))
        member = self.members.remove(member_id)
        if member is not None:
            reason = f"group {self.group_id!r}: member {member_id!r} was removed; join again"
            self._answers.end(member, UnknownMemberId(reason))

    def _renew(self, member: ClassicGroupMember, now: Now) -> None:
        session = ClassicTimerKey(self.group_id, member.member_id)
        self._timers.set(session, due_ms=now.ms + member.session_timeout_ms)

    def _set_phase(self, due_ms: int) -> None:
        self._timers.set(ClassicTimerKey(self.group_id, UNKNOWN_MEMBER), due_ms=due_ms)

    def _join_reply(self, member: ClassicGroupMember) -> JoinReply:
        leader = self.members.leader
        assert leader is not None
        leads = leader == member.member_id
        return JoinReply(
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            leader,
            self.members.told(self.protocol) if leads else (),
        )

    def _sync_reply(self, member: ClassicGroupMember) -> SyncReply:
        return SyncReply(self.protocol_type, self.protocol, member.assignment)

    def _record(self) -> None:
        self.was_recorded = True
        self._records.append(
            GroupMetadata(
                self.group_id,
                self.protocol_type or "",
                self.generation,
                self.protocol,
                self.members.leader,
                self.since_ms,
                self.members.stored(self.protocol),
            )
        )
