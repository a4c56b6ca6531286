"""One consumer group of the classic protocol: how its members agree who reads what.

    Empty ──join──▶ PreparingRebalance ──all joined──▶ CompletingRebalance ──assigned──▶ Stable
      ▲                 │      ▲                                │                          │
      └───nobody left───┘      └──── a member joins, leaves or falls silent ───────────────┘

A *generation* is one agreement.  Members join until all are there (or the rebalance timeout has
passed, or for a group that was empty its initial delay); each is told the new generation, the
leader also what everybody wants.  The leader assigns, everybody fetches its part by syncing,
and from then on heartbeats until something changes.  What a member says of another generation
is refused: that is the fencing (KIP-62, KIP-394, KIP-345).

Only the last complete agreement outlives a restart (`GroupMetadata`); who waits does not.  So
this class changes itself and gives the record along, other than the state that is replayed: a
group that lives is ahead of its record.  When a record cannot be written, the group is dropped
and what is durable is loaded (ADR 0004).

Time comes in; `Timers` says when to call `session_ended` and `phase_ended`.  What follows from a
call is collected, and `take` hands it out.
"""

from __future__ import annotations

from dataclasses import replace

from sharegroup.core.consumer_group_answers import Answers
from sharegroup.core.consumer_group_member import (
    UNKNOWN_MEMBER,
    Call,
    Decision,
    Identity,
    JoinReply,
    JoinRequest,
    Limits,
    Member,
    NewMemberId,
    Now,
    State,
    SyncReply,
    SyncRequest,
    Timer,
    Timers,
)
from sharegroup.core.consumer_group_members import Members, Totals, check_same
from sharegroup.core.consumer_group_records import ConsumerGroupRecord, GroupMetadata
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
"""A new member that waits longer than this is gone, or asks again."""

RETRY_MS_MIN = 1_000
"""At least this long lies between two looks at whether a static member has come."""


class ConsumerGroup:
    """See the module's text."""

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
        """Something of the group is in the log: it is there until it is deleted."""
        self._unsynced: set[MemberId] = set()
        self._initial_left_ms: int | None = None  # None: this is no first rebalance.
        self._joined_meanwhile = False
        self._timers = timers
        self._records: list[ConsumerGroupRecord] = []
        self._answers = Answers()

    @classmethod
    def load(cls, metadata: GroupMetadata, timers: Timers, totals: Totals) -> ConsumerGroup:
        """The group that a record tells of."""
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
        """What followed from the calls since the last `take`."""
        decision = Decision(self.group_id, tuple(self._records), self._answers.take())
        self._records.clear()
        return decision

    def start(self, now: Now, limits: Limits) -> None:
        """The group was loaded: every member has its whole session; too many must come again."""
        for member in self.members:
            self._renew(member, now)
        if len(self.members) > limits.members_max:
            self._prepare(now, limits)

    def stop(self) -> None:
        """The group is no more: nothing is waited for."""
        for member_id in (UNKNOWN_MEMBER, *self.members.clear()):
            self._timers.cancel(Timer(self.group_id, member_id))

    @property
    def is_void(self) -> bool:
        """Nobody is in it, and nothing of it was written: there is no such group."""
        return not self.was_recorded and not self.members.expects_any and not len(self.members)

    # Joining

    def join(self, request: JoinRequest, call: Call, now: Now, limits: Limits) -> None:
        """A member joins; the answer may come much later."""
        self.members.check_protocols(request, protocol_type=self.protocol_type)
        self.members.check_metadata(request)
        member_id = request.member_id
        if not self._accepts(member_id, limits):
            self._refuse_for_size(member_id, call, now, limits)
        elif member_id == UNKNOWN_MEMBER:
            self._join_new(request, call, now, limits)
        elif self.members.expects(member_id) and request.instance_id is None:
            self._add(request, member_id, call, now, limits)
        else:
            self.members.check(member_id, request.instance_id)
            self._join_again(self.members[member_id], request, call, now, limits)

    def _refuse_for_size(self, member_id: MemberId, call: Call, now: Now, limits: Limits) -> None:
        """A member that comes too late for the last place loses its old one, too."""
        self._remove(member_id)
        self._answers.give(
            call,
            GroupMaxSizeReached(
                f"group {self.group_id!r} has {len(self.members)} members; "
                f"group.max.size is {limits.members_max}"
            ),
        )
        if self.state is State.PREPARING_REBALANCE:
            self._rebalance_or_complete(now, limits)

    def _join_new(self, request: JoinRequest, call: Call, now: Now, limits: Limits) -> None:
        member_id = request.new_member_id
        if self.members.static(request.instance_id) is not None:
            self._replace_static(request, call, now, limits)
        elif request.instance_id is None and request.must_return:
            self.members.expect(member_id)
            session = Timer(self.group_id, member_id)
            self._timers.set(session, due_ms=now.ms + request.session_timeout_ms)
            self._answers.give(call, NewMemberId(member_id))
        else:
            self._add(request, member_id, call, now, limits)

    def _join_again(
        self, member: Member, request: JoinRequest, call: Call, now: Now, limits: Limits
    ) -> None:
        """Does a member that joins again change the group, or did it miss what it was told?"""
        same = list(member.protocols.items()) == list(request.protocols.items())
        is_leader = self.members.leader == member.member_id
        if same and (
            self.state is State.COMPLETING_REBALANCE
            or (self.state is State.STABLE and not is_leader)
        ):
            self._answers.give(call, self._join_reply(member))
            return
        # A leader that joins while all is well wants to assign anew: topics may have grown.
        self.members.ask(member, request)
        self._answers.park_join(member, call)
        self._rebalance_or_complete(now, limits)

    def _add(
        self, request: JoinRequest, member_id: MemberId, call: Call, now: Now, limits: Limits
    ) -> None:
        member = Member(
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
        # It has no generation yet and cannot send heartbeats; nor do we see that it hung up.
        session = Timer(self.group_id, member_id)
        self._timers.set(session, due_ms=now.ms + NEW_MEMBER_JOIN_MS)
        self._rebalance_or_complete(now, limits)

    def _replace_static(self, request: JoinRequest, call: Call, now: Now, limits: Limits) -> None:
        """A static member is back under a new id: its place is kept, the old id is fenced.

        While all is well nothing else happens, unless the group would choose another protocol:
        that a member restarts is no reason for a rebalance (KIP-345).
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
            # It must not take itself for the leader, or it would assign.
            assert leader_before is not None
            reply = replace(reply, leader=leader_before, members=())
        self._record()
        self._answers.give(call, reply)

    def _rename(self, request: JoinRequest) -> Member:
        """The member under its new id; whoever waits under the old one is fenced."""
        old_id = self.members.static(request.instance_id)
        assert old_id is not None
        new_id = request.new_member_id
        member = self.members.rename(old_id, new_id)
        again = f"instance {member.instance_id!r} has joined again as {new_id!r}"
        self._answers.end(member, FencedInstanceId(f"group {self.group_id!r}: {again}"))
        self._timers.cancel(Timer(self.group_id, old_id))
        if old_id in self._unsynced:
            self._unsynced.remove(old_id)
            self._unsynced.add(new_id)
        return member

    # The two phases of a rebalance

    def _rebalance_or_complete(self, now: Now, limits: Limits) -> None:
        """Something changed: begin a rebalance, or see whether the one that runs is complete."""
        if self.state is not State.PREPARING_REBALANCE:
            self._prepare(now, limits)
        elif self._initial_left_ms is None and self.members.all_joined():
            self._complete_join(now)

    def _prepare(self, now: Now, limits: Limits) -> None:
        if self.state is State.COMPLETING_REBALANCE:
            again = RebalanceInProgress(f"group {self.group_id!r}: another rebalance has begun")
            for member in self.members:
                self.members.assign(member, b"")
                if member.syncing is not None:
                    self._answers.end_sync(member, again)
                    self._renew(member, now)
        self._unsynced.clear()
        was_empty = self.state is State.EMPTY
        self._move(State.PREPARING_REBALANCE, now)
        if was_empty:
            delay_ms = limits.initial_delay_ms
            self._initial_left_ms = max(self.members.rebalance_timeout_ms() - delay_ms, 0)
            self._joined_meanwhile = False
            self._set_phase(now.ms + delay_ms)
        elif self.members.all_joined():
            self._complete_join(now)
        else:
            self._set_phase(now.ms + self.members.rebalance_timeout_ms())

    def phase_ended(self, now: Now, limits: Limits) -> None:
        """The time for joining, or for syncing, is over."""
        if self.state is State.PREPARING_REBALANCE:
            left_ms = self._initial_left_ms
            if left_ms and self._joined_meanwhile:
                # Members are still coming: wait for more, up to the rebalance timeout.
                self._joined_meanwhile = False
                more_ms = min(limits.initial_delay_ms, left_ms)
                self._initial_left_ms = left_ms - more_ms
                self._set_phase(now.ms + more_ms)
            else:
                self._complete_join(now)
        elif self._unsynced:
            for member_id in sorted(self._unsynced):
                self._remove(member_id)
            self._prepare(now, limits)

    def _complete_join(self, now: Now) -> None:
        """Those who joined are the next generation; static members may be late."""
        self._timers.cancel(Timer(self.group_id, UNKNOWN_MEMBER))
        for member in list(self.members):
            if member.joining is None and member.instance_id is None:
                self._remove(member.member_id)
        if len(self.members) and not self.members.elect_leader():
            # Only static members are left and none has come: wait until their sessions end.
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
            if self.was_recorded:  # Otherwise nobody ever agreed on anything.
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
        """A member asks for its assignment; the leader's request answers them all."""
        self.members.check(request.member_id, request.instance_id)
        self._check_generation(request.generation)
        check_same(request, protocol_type=self.protocol_type, protocol=self.protocol)
        if self.state is State.PREPARING_REBALANCE:
            raise RebalanceInProgress(f"group {self.group_id!r} rebalances: join again")
        member = self.members[request.member_id]
        assigns = (
            self.state is State.COMPLETING_REBALANCE and self.members.leader == member.member_id
        )
        if assigns:
            self.members.check_assignments(request)
        self._unsynced.discard(member.member_id)
        if not self._unsynced:
            self._timers.cancel(Timer(self.group_id, UNKNOWN_MEMBER))
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
        """The member lives; whether it has to join again."""
        self.members.check(member_id, instance_id)
        self._check_generation(generation)
        self._renew(self.members[member_id], now)
        return self.state is State.PREPARING_REBALANCE

    def leave(
        self, leaving: tuple[Identity, ...], now: Now, limits: Limits
    ) -> list[KafkaError | None]:
        """Members leave at once; why one cannot, or None."""
        outcomes = [self._leave(identity) for identity in leaving]
        if None in outcomes and self.state is not State.EMPTY:
            self._rebalance_or_complete(now, limits)
        return outcomes

    def _leave(self, identity: Identity) -> KafkaError | None:
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

    def session_ended(self, member_id: MemberId, now: Now, limits: Limits) -> None:
        """The member, or the one whose id was given out, was not heard of in time."""
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
        """Raise what keeps offsets from being committed; a commit is as good as a heartbeat.

        Without a generation they come from an administrator, or from a consumer that was
        assigned by hand: that is for groups that nobody is in.
        """
        if generation < 0 and self.state is State.EMPTY:
            return
        self.members.check(member_id, instance_id)
        self._check_generation(generation)
        if self.state is State.COMPLETING_REBALANCE:
            raise RebalanceInProgress(
                f"group {self.group_id!r}: generation {generation} has no assignment yet"
            )
        self._renew(self.members[member_id], now)

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise IllegalGeneration(
                f"group {self.group_id!r} is in generation {self.generation}, not {generation}"
            )

    def _accepts(self, member_id: MemberId, limits: Limits) -> bool:
        """Whether there is room; while a group rebalances, those who came first have it."""
        member = self.members.get(member_id)
        if self.state is State.EMPTY:
            return True
        if self.state is State.PREPARING_REBALANCE:
            if member is not None and member.joining is not None:
                return True
            return self.members.joined_count() < limits.members_max
        return member is not None or len(self.members) < limits.members_max

    # Changes

    def _move(self, state: State, now: Now) -> None:
        self.state = state
        self.since_ms = now.wall_ms

    def _remove(self, member_id: MemberId) -> None:
        """Let the member, or the id that was given out, be gone; who waits is told."""
        self._timers.cancel(Timer(self.group_id, member_id))
        member = self.members.remove(member_id)
        if member is not None:
            gone = f"group {self.group_id!r}: member {member_id!r} was removed; join again"
            self._answers.end(member, UnknownMemberId(gone))

    def _renew(self, member: Member, now: Now) -> None:
        session = Timer(self.group_id, member.member_id)
        self._timers.set(session, due_ms=now.ms + member.session_timeout_ms)

    def _set_phase(self, due_ms: int) -> None:
        self._timers.set(Timer(self.group_id, UNKNOWN_MEMBER), due_ms=due_ms)

    def _join_reply(self, member: Member) -> JoinReply:
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

    def _sync_reply(self, member: Member) -> SyncReply:
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
