"""A consumer group with a clock that is moved by hand, and what each member was told.

Members are named by letters; ``scene.join("a")`` is a whole join with the detour for a member id.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from uuid import UUID

from sharegroup.core.deadlines import Now
from sharegroup.core.groups.classic.classic_groups import ClassicGroups, Committer
from sharegroup.core.groups.classic.member import (
    ClassicGroupLimits,
    Decision,
    JoinReply,
    JoinRequest,
    LeavingMember,
    NewMemberId,
    Reply,
    SyncReply,
    SyncRequest,
)
from sharegroup.core.groups.classic.records import (
    ClassicGroupRecord,
    GroupMetadata,
    OffsetAndMetadata,
    OffsetCommit,
    Records,
)
from sharegroup.core.groups.classic.sizes import (
    ALL_OFFSETS_BYTES_MAX,
    DEFAULT_SIZE_LIMITS,
    ClassicGroupSizeLimits,
)
from sharegroup.ids import GroupId, MemberId, TopicId, TopicName

GROUP = GroupId("orders")
WALL_MS = 1_700_000_000_000
"""The wall clock's time when the monotonic clock shows 0."""
TOPIC_ID = TopicId(UUID(int=7))
NOBODY = MemberId("")


def read_topics(metadata: bytes) -> frozenset[TopicName] | None:
    """Metadata of these tests: topics with spaces between; b"?" cannot be understood."""
    return None if metadata == b"?" else frozenset(map(TopicName, metadata.decode().split()))


class Scene:
    """`groups` is what is tested; `log` is all that was ever written."""

    def __init__(
        self, *, sizes: ClassicGroupSizeLimits = DEFAULT_SIZE_LIMITS, **limits: int
    ) -> None:
        self.sizes = sizes
        self.groups = ClassicGroups(read_topics, sizes=sizes)
        self.limits = ClassicGroupLimits(**limits)
        self.log: list[ClassicGroupRecord] = []
        self.offsets_bytes_max = ALL_OFFSETS_BYTES_MAX
        self.now_ms = 0
        self.answers: dict[int, Reply] = {}
        self._calls = count()
        self._ids = count(1)

    @property
    def now(self) -> Now:
        return Now(self.now_ms, WALL_MS + self.now_ms)

    def request(self, name: str = "m", member_id: str = "", **fields: object) -> JoinRequest:
        base = JoinRequest(
            group_id=GROUP,
            member_id=MemberId(member_id),
            instance_id=None,
            protocol_type="consumer",
            protocols={"range": b"t"},
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            client_id=name,
            client_host="/127.0.0.1",
            new_member_id=MemberId(f"{name}-{next(self._ids)}"),
        )
        return replace(base, **fields)  # type: ignore[arg-type]

    def ask_to_join(self, name: str = "m", member_id: str = "", **fields: object) -> int:
        """One request; the number under which `answers` has its answer, some day."""
        call = next(self._calls)
        request = self.request(name, member_id, **fields)
        self.follow(self.groups.join(request, call, now=self.now, limits=self.limits))
        return call

    def knock(self, name: str, **fields: object) -> tuple[MemberId, int]:
        """Join with a member id that was asked for first."""
        told = self.answers[self.ask_to_join(name, **fields)]
        assert isinstance(told, NewMemberId)
        return told.member_id, self.ask_to_join(name, told.member_id, **fields)

    def joined(self, call: int) -> JoinReply:
        reply = self.answers[call]
        assert isinstance(reply, JoinReply), reply
        return reply

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        **fields: object,
    ) -> int:
        call = next(self._calls)
        request = SyncRequest(
            GROUP,
            MemberId(member_id),
            None,
            generation,
            "consumer",
            "range",
            {MemberId(member_id): part for member_id, part in (assignments or {}).items()},
        )
        request = replace(request, **fields)  # type: ignore[arg-type]
        self.follow(self.groups.sync(request, call, now=self.now))
        return call

    def synced(self, call: int) -> bytes:
        reply = self.answers[call]
        assert isinstance(reply, SyncReply), reply
        return reply.assignment

    def stable(self, *names: str, **fields: object) -> list[MemberId]:
        """A group in which these members have an assignment each: the name in capitals."""
        calls = {}
        for name in names:
            member_id, call = self.knock(name, **fields)
            calls[member_id] = call
        self.pass_ms(0)
        while any(call not in self.answers for call in calls.values()):
            for member_id, call in calls.items():
                if call in self.answers:
                    calls[member_id] = self.ask_to_join(
                        member_id.split("-")[0], member_id, **fields
                    )
        replies = {member_id: self.joined(call) for member_id, call in calls.items()}
        generation = max(reply.generation for reply in replies.values())
        leader = next(iter(replies.values())).leader
        parts = {member_id: member_id.split("-")[0].upper().encode() for member_id in calls}
        self.sync(leader, generation, parts)
        for member_id in calls:
            assert self.synced(self.sync(member_id, generation)) == parts[member_id]
        return list(calls)

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> bool:
        return self.groups.heartbeat(
            GROUP,
            MemberId(member_id),
            instance_id=instance_id,
            generation=generation,
            now=self.now,
        )

    def leave(self, *leaving: tuple[str, str | None]) -> list[object]:
        identities = tuple(
            LeavingMember(MemberId(member_id), instance) for member_id, instance in leaving
        )
        decision, outcomes = self.groups.leave(GROUP, identities, now=self.now, limits=self.limits)
        self.follow(decision)
        return [None if outcome is None else type(outcome) for outcome in outcomes]

    def commit(
        self,
        offset: int,
        *,
        member_id: str = "",
        generation: int = -1,
        topic: str = "t",
        partition: int = 0,
        group_id: GroupId = GROUP,
        expires_ms: int | None = None,
        note: str = "",
        topic_id: TopicId = TOPIC_ID,
        is_transactional: bool = False,
    ) -> None:
        who = Committer(group_id, MemberId(member_id), None, generation)
        committed = OffsetAndMetadata(
            offset, -1, note, self.now.wall_ms, expires_ms, None if expires_ms else topic_id
        )
        offsets = (OffsetCommit(group_id, TopicName(topic), partition, committed),)
        self.groups.check_commit(
            who,
            offsets,
            bytes_max=self.offsets_bytes_max,
            now=self.now,
            is_transactional=is_transactional,
        )
        self.write(offsets)

    def offset(self, topic: str = "t", partition: int = 0) -> int | None:
        found = self.groups.offsets(GROUP).get(TopicName(topic), {}).get(partition)
        return None if found is None else found.offset

    def expire(self, retention_ms: int) -> None:
        for group_id in self.groups.group_ids():
            self.write(self.groups.expire(group_id, now=self.now, retention_ms=retention_ms))

    def write(self, records: Records) -> None:
        self.log += records
        for record in records:
            self.groups.replay(record)

    def pass_ms(self, duration_ms: int) -> None:
        """Let time pass, and whatever is due happen when it is."""
        end_ms = self.now_ms + duration_ms
        while (due_ms := self.groups.next_due_ms()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            for decision in self.groups.pass_time(now=self.now, limits=self.limits):
                self.follow(decision)
        self.now_ms = end_ms

    def follow(self, decision: Decision) -> None:
        self.log += decision.records
        for call, reply in decision.answers:
            assert call not in self.answers, "answered twice"
            self.answers[call] = reply

    def restart(self) -> None:
        """Forget everything and read the log."""
        self.groups = ClassicGroups(read_topics, sizes=self.sizes)
        for record in self.log:
            self.groups.replay(record)
        self.groups.start(now=self.now, limits=self.limits)

    @property
    def state(self) -> str:
        return self.groups.describe(GROUP).state

    def generations(self) -> list[int]:
        """Those that were written, in order."""
        return [entry.generation for entry in self.log if isinstance(entry, GroupMetadata)]


def kinds(replies: Iterable[Reply]) -> list[type]:
    return [type(reply) for reply in replies]
