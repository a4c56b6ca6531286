"""Share groups with members that behave as clients do, while topics come, grow and go.

The clients know only what they were told.  What must hold of them, whatever happened before:
a join is answered with partitions wherever there are any; once everybody has sent a heartbeat
or two, everything that is subscribed to is read by somebody and then nothing changes any more.
Epochs never go back.  The groups are what their log says, compacted or not.  A crash loses what
was not answered yet.
Run longer: ``MODEL_EXAMPLES=5000 pytest tests/model/test_share_group.py``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from uuid import UUID

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sharegroup.core.groups.share.records import (
    GroupEpoch,
    Records,
    ShareGroupCurrentMemberAssignment,
    ShareGroupMemberMetadata,
    ShareGroupRecord,
    ShareGroupRecordType,
    ShareGroupStatePartitionMetadata,
    ShareGroupTombstone,
    TargetAssignment,
    TargetAssignmentEpoch,
)
from sharegroup.core.groups.share.share_group import HeartbeatReply
from sharegroup.core.groups.share.share_groups import (
    ShareGroupLimits,
    ShareGroups,
    ShareHeartbeat,
    TopicMetadata,
)
from sharegroup.core.groups.share.wide import Width
from sharegroup.errors import FencedMemberEpoch, GroupIdNotFound, NonEmptyGroup, UnknownMemberId
from sharegroup.ids import (
    GroupId,
    MemberId,
    SharePartitionKey,
    TopicId,
    TopicIdPartition,
    TopicName,
)

EXAMPLES = os.environ.get("MODEL_EXAMPLES")
GROUP = GroupId("orders")
WALL_MS = 1_700_000_000_000
LIMITS = ShareGroupLimits(session_timeout_ms=10_000, assignment_interval_ms=2_000)

member_ids = st.sampled_from([MemberId(name) for name in ("m", "n", "o", "p", "q")])
topic_names = st.sampled_from([TopicName(name) for name in ("a", "b", "c")])
subscriptions = st.lists(topic_names, min_size=1, max_size=3).map(tuple)

TYPE_OF = {
    ShareGroupMemberMetadata: ShareGroupRecordType.MEMBER_METADATA,
    GroupEpoch: ShareGroupRecordType.METADATA,
    TargetAssignmentEpoch: ShareGroupRecordType.TARGET_ASSIGNMENT_METADATA,
    TargetAssignment: ShareGroupRecordType.TARGET_ASSIGNMENT_MEMBER,
    ShareGroupCurrentMemberAssignment: ShareGroupRecordType.CURRENT_MEMBER_ASSIGNMENT,
    ShareGroupStatePartitionMetadata: ShareGroupRecordType.STATE_PARTITION_METADATA,
}


@dataclass
class Client:
    """What a member knows of itself.

    ``says_all``: the last reply did not come, so the next heartbeat says what it subscribes to.
    """

    wants: tuple[TopicName, ...]
    epoch: int = 0
    says_all: bool = False
    has: frozenset[TopicIdPartition] = frozenset()


def compacted(log: list[ShareGroupRecord]) -> list[ShareGroupRecord]:
    """The last record of each key, in order."""
    last: dict[tuple, tuple[int, ShareGroupRecord]] = {}
    for position, record in enumerate(log):
        buried = isinstance(record, ShareGroupTombstone)
        record_type = record.record_type if buried else TYPE_OF[type(record)]
        key = (record_type, record.group_id, getattr(record, "member_id", None))
        last[key] = (position, record)
    return [record for _, record in sorted(last.values(), key=lambda entry: entry[0])]


def replayed(log: list[ShareGroupRecord]) -> ShareGroups:
    groups = ShareGroups()
    for record in log:
        groups.replay(record)
    return groups


class ShareGroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.groups = ShareGroups()
        self.limits = LIMITS
        self.log: list[ShareGroupRecord] = []
        self.ends = [0]  # The log's length after each command: its records are one batch.
        self.topics: dict[TopicName, TopicMetadata] = {}
        self.topics_made = 0
        self.clients: dict[MemberId, Client] = {}
        self.now_ms = 0
        self.epochs = (0, 0)
        self.state_epochs: dict[SharePartitionKey, int] = {}

    @initialize(counts=st.lists(st.integers(1, 5), min_size=2, max_size=2))
    def two_topics_and_two_members(self, counts: list[int]) -> None:
        for name, count in zip(("a", "b"), counts, strict=True):
            self.topic_appears_or_grows(TopicName(name), count)
        for member_id in ("m", "n"):
            self.join_or_subscribe(MemberId(member_id), (TopicName("a"), TopicName("b")))

    def teardown(self) -> None:
        if self.clients:
            self.everybody_settles()

    def state_is_made(self, key: SharePartitionKey, state_epoch: int) -> None:
        """A state that is made again fences whoever works on the one before."""
        assert state_epoch > self.state_epochs.get(key, 0)
        self.state_epochs[key] = state_epoch

    def append(self, records: Records) -> None:
        for record in records:
            self.groups.replay(record)
        self.log += records
        self.ends.append(len(self.log))

    def send(self, member_id: MemberId, epoch: int, wants: tuple | None) -> HeartbeatReply:
        """One heartbeat, as the broker serves it."""
        request = ShareHeartbeat(GROUP, member_id, epoch, subscribed_topic_names=wants)
        self.groups.check_heartbeat(request, limits=self.limits)
        uninitialized = self.groups.uninitialized(request, self.topics)
        for key in uninitialized:
            self.state_is_made(key.key, key.state_epoch)
        self.append(self.groups.initialized(GROUP, uninitialized))
        records, reply = self.groups.heartbeat(
            request,
            self.topics,
            limits=self.limits,
            now_ms=self.now_ms,
            wall_ms=WALL_MS + self.now_ms,
        )
        self.append(records)
        return reply

    def beat(self, member_id: MemberId, wants: tuple | None = None) -> None:
        """A client's heartbeat; a client that is fenced forgets what it had and joins again."""
        client = self.clients[member_id]
        if wants is not None:
            client.wants = wants
        joins = client.epoch == 0
        try:
            says = client.wants if joins or client.says_all else wants
            reply = self.send(member_id, client.epoch, says)
        except (FencedMemberEpoch, UnknownMemberId, GroupIdNotFound):
            assert not joins, "a join is never fenced"
            client.epoch, client.has = 0, frozenset()
            self.beat(member_id)
            return
        assert reply.member_epoch >= max(client.epoch, 1)
        client.epoch, client.says_all = reply.member_epoch, False
        if reply.assignment is not None:
            client.has = reply.assignment
        members = self.groups.describe(GROUP).members
        if len(members) == 1:
            assert client.has == self.partitions_of(client.wants), "nobody else has any"
        if joins:
            assert reply.assignment is not None
            assert bool(client.has) == bool(self.partitions_of(client.wants))

    def partitions_of(self, names: tuple[TopicName, ...]) -> frozenset[TopicIdPartition]:
        return frozenset(
            TopicIdPartition(self.topics[name].topic_id, partition)
            for name in names
            if name in self.topics
            for partition in range(self.topics[name].partition_count)
        )

    @rule(member_id=member_ids, wants=subscriptions)
    def join_or_subscribe(self, member_id: MemberId, wants: tuple) -> None:
        self.clients.setdefault(member_id, Client(wants))
        self.beat(member_id, wants)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        self.beat(data.draw(st.sampled_from(sorted(self.clients))))

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        member_id = data.draw(st.sampled_from(sorted(self.clients)))
        self.beat(member_id)  # It may have been removed; it leaves as a member.
        del self.clients[member_id]
        epoch = self.groups.describe(GROUP).epoch
        assert self.send(member_id, -1, None).member_epoch == -1
        described = self.groups.describe(GROUP)
        assert described.epoch == epoch + 1
        assert described.members or described.assignment_epoch == epoch + 1

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def vanish(self, data: st.DataObject) -> None:
        """The client is gone and nobody tells; its session will end some day."""
        del self.clients[data.draw(st.sampled_from(sorted(self.clients)))]

    @rule(elapsed_ms=st.sampled_from([1, 1_000, 3_000, 11_000]))
    def time_passes(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms
        records, removed = self.groups.expire_sessions(self.now_ms)
        self.append(records)
        assert bool(records) == bool(removed)
        due_ms = self.groups.next_session_expiry_ms()
        assert due_ms is None or self.now_ms < due_ms <= self.now_ms + LIMITS.session_timeout_ms

    @rule(width=st.none() | st.builds(Width, st.integers(1, 9), st.integers(1, 3)))
    def assignor_changes(self, width: Width | None) -> None:
        self.limits = replace(LIMITS, width=width)

    @rule(name=topic_names, count=st.integers(1, 5))
    def topic_appears_or_grows(self, name: TopicName, count: int) -> None:
        topic = self.topics.get(name)
        if topic is None:
            self.topics_made += 1
            topic = TopicMetadata(name, TopicId(UUID(int=self.topics_made)), 0)
        self.topics[name] = topic._replace(partition_count=max(count, topic.partition_count))

    @precondition(lambda self: self.topics)
    @rule(data=st.data())
    def topic_vanishes(self, data: st.DataObject) -> None:
        topic = self.topics.pop(data.draw(st.sampled_from(sorted(self.topics))))
        self.append(self.groups.topic_deleted(topic.topic_id))
        assert all(key.topic_id != topic.topic_id for key in self.groups.initialized_keys())

    @precondition(lambda self: GROUP in self.groups)
    @rule()
    def delete_group(self) -> None:
        try:
            records, keys = self.groups.delete_group(GROUP)
        except NonEmptyGroup:
            assert self.groups.describe(GROUP).members
            return
        assert frozenset(keys) == self.groups.initialized_keys()
        self.append(records)
        self.epochs = (0, 0)
        self.state_epochs.clear()
        assert all(isinstance(record, ShareGroupTombstone) for record in compacted(self.log))

    @precondition(lambda self: self.topics)
    @rule(data=st.data())
    def alter_offsets(self, data: st.DataObject) -> None:
        topic = self.topics[data.draw(st.sampled_from(sorted(self.topics)))]
        before = self.groups.describe(GROUP).epoch if GROUP in self.groups else 1
        try:
            records, altered = self.groups.alter_offsets(
                GROUP, {TopicIdPartition(topic.topic_id, 0): 5}, self.topics
            )
        except NonEmptyGroup:
            assert self.groups.describe(GROUP).members
            return
        self.append(records)
        assert [state.state_epoch for state in altered] == [before + 1]
        self.state_is_made(altered[0].key, altered[0].state_epoch)

    @precondition(lambda self: GROUP in self.groups)
    @rule(data=st.data())
    def delete_offsets(self, data: st.DataObject) -> None:
        topics = [topic.topic_id for topic in self.topics.values()]
        deleted = data.draw(st.frozensets(st.sampled_from(topics))) if topics else frozenset()
        try:
            records, keys = self.groups.delete_offsets(GROUP, deleted)
        except NonEmptyGroup:
            assert self.groups.describe(GROUP).members
            return
        before = self.groups.initialized_keys()
        self.append(records)
        assert self.groups.initialized_keys() == before - frozenset(keys)
        assert {key.topic_id for key in keys} <= deleted

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), wants=st.none() | subscriptions)
    def reply_is_lost(self, data: st.DataObject, wants: tuple | None) -> None:
        """A heartbeat is served but not answered; perhaps because the broker crashed in it."""
        member_id = data.draw(st.sampled_from(sorted(self.clients)))
        client = self.clients[member_id]
        self.beat(member_id)
        durable = len(self.ends)
        client.wants = client.wants if wants is None else wants
        client.says_all = True
        self.send(member_id, client.epoch, client.wants)
        kept = data.draw(st.integers(durable, len(self.ends)))
        if kept < len(self.ends):
            del self.ends[kept:]
            del self.log[self.ends[-1] :]
            self.state_epochs.clear()  # What was made in this heartbeat may be made again.
            self.restart()
        if data.draw(st.booleans()):
            assert self.send(member_id, client.epoch, client.wants).assignment is not None

    @rule()
    def restart(self) -> None:
        """The broker is back with what is durable; every member gets a fresh session."""
        self.groups = replayed(self.log)
        self.groups.restart_sessions(
            self.now_ms, session_timeout_ms=lambda _: LIMITS.session_timeout_ms
        )
        self.epochs = (0, 0)

    @precondition(lambda self: self.clients)
    @rule()
    def everybody_settles(self) -> None:
        """Who vanished is removed; the others send heartbeats until all is told."""
        for elapsed_ms in (6_000, 6_000, 3_000):
            self.time_passes(elapsed_ms)
            for member_id in sorted(self.clients):
                self.beat(member_id)
        before = len(self.log)
        for member_id in sorted(self.clients):
            self.beat(member_id)
        assert len(self.log) == before, "a settled group writes nothing"
        self.check_settled()

    def check_settled(self) -> None:
        described = self.groups.describe(GROUP)
        assert described.epoch == described.assignment_epoch
        assert {member.member_id: member.assignment for member in described.members} == {
            member_id: client.has for member_id, client in self.clients.items()
        }
        wanted = [self.partitions_of(client.wants) for client in self.clients.values()]
        assert frozenset().union(*wanted) == frozenset().union(
            *(client.has for client in self.clients.values())
        )
        for client in self.clients.values():
            assert client.has <= self.partitions_of(client.wants)
            assert bool(client.has) == bool(self.partitions_of(client.wants))
        if len(set(wanted)) == 1:
            self.check_sizes([len(client.has) for client in self.clients.values()], len(wanted[0]))

    def check_sizes(self, sizes: list[int], partition_count: int) -> None:
        width = self.limits.width
        if width is None:
            assert max(sizes) - min(sizes) <= 1
        else:
            least = -(-partition_count // len(sizes))
            assert max(sizes) <= max(width.member_partitions_max, least)
            assert sum(sizes) <= width.places(len(sizes), partition_count)

    @invariant()
    def epochs_never_go_back(self) -> None:
        if GROUP in self.groups:
            described = self.groups.describe(GROUP)
            epochs = (described.epoch, described.assignment_epoch)
            assert epochs >= self.epochs
            assert described.assignment_epoch >= self.epochs[1]
            assert described.assignment_epoch <= described.epoch
            assert all(
                0 < member.member_epoch <= described.assignment_epoch
                for member in described.members
            )
            self.epochs = epochs

    @invariant()
    def groups_are_what_their_log_says(self) -> None:
        for log in (self.log, compacted(self.log)):
            again = replayed(log)
            assert again.list_groups() == self.groups.list_groups()
            assert again.initialized_keys() == self.groups.initialized_keys()
            for listing in again.list_groups():
                assert again.describe(listing.group_id) == self.groups.describe(listing.group_id)


TestShareGroup = ShareGroupMachine.TestCase
TestShareGroup.settings = settings(
    max_examples=int(EXAMPLES or 75),
    stateful_step_count=30,
    derandomize=EXAMPLES is None,
    database=None,
)
