"""Share sessions against a list of them: epochs, limits, connections that go, and turns.

The model knows where records are.  A look at a partition finds them or nothing, as its turn comes;
events come at any time, also in the middle of a look.  Never may a partition with records be quiet:
that would be a wake-up that was missed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sharegroup.core.session_partitions import SessionPartitions
from sharegroup.core.share_session import EPOCH_MAX, Closed, Fetching, SessionKey, ShareSessions
from sharegroup.errors import (
    InvalidRequest,
    InvalidShareSessionEpoch,
    KafkaError,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)
from sharegroup.ids import GroupId, MemberId, SharePartitionKey, TopicId, TopicPartition

EXAMPLES = os.environ.get("MODEL_EXAMPLES")
SESSIONS_MAX = 3
KEYS = st.sampled_from(
    [SessionKey(GroupId(group), MemberId(member)) for group in "gh" for member in "abc"]
)
CONNECTIONS = st.sampled_from(["c1", "c2"])
TOPIC = TopicId(UUID(int=1))
PARTITION = st.integers(0, 4).map(lambda number: TopicPartition(TOPIC, number))
PARTITIONS = st.lists(PARTITION, max_size=4)
GROUPS = st.sampled_from([GroupId("g"), GroupId("h")])


@dataclass
class Session:
    connection_id: str
    found: SessionPartitions
    expected: int = 1
    doubtful: list[TopicPartition] = field(default_factory=list)
    ready: list[TopicPartition] = field(default_factory=list)
    quiet: list[TopicPartition] = field(default_factory=list)
    watched: set[TopicPartition] = field(default_factory=set)

    @property
    def all(self) -> list[TopicPartition]:
        return self.doubtful + self.ready + self.quiet

    def move(self, partition: TopicPartition, to: list[TopicPartition] | None) -> None:
        for kind in (self.doubtful, self.ready, self.quiet):
            if partition in kind:
                kind.remove(partition)
        if to is not None:
            to.append(partition)


def unique(partitions: list[TopicPartition]) -> list[TopicPartition]:
    return list(dict.fromkeys(partitions))


class ShareSessionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.sessions = ShareSessions(SESSIONS_MAX)
        self.model: dict[SessionKey, Session] = {}
        self.records: set[SharePartitionKey] = set()
        """Where there is something to fetch."""

    def refusal(self, key: SessionKey, epoch: int) -> type[KafkaError] | None:
        """Why a request that opens nothing is refused."""
        if key not in self.model:
            return ShareSessionNotFound
        if epoch not in (-1, self.model[key].expected):
            return InvalidShareSessionEpoch
        return None

    def advance(self, key: SessionKey) -> Session:
        session = self.model[key]
        session.expected = 1 if session.expected == EPOCH_MAX else session.expected + 1
        return session

    @rule(key=KEYS, connection_id=CONNECTIONS, named=PARTITIONS, has_acks=st.booleans())
    def open(
        self, key: SessionKey, connection_id: str, named: list[TopicPartition], has_acks: bool
    ) -> None:
        is_too_much = key not in self.model and len(self.model) >= SESSIONS_MAX
        refusal = InvalidRequest if has_acks else ShareSessionLimitReached if is_too_much else None
        if refusal is not None:
            with pytest.raises(refusal):
                self.fetch(key, 0, connection_id, named, [], has_acks)
            return
        found = self.fetch(key, 0, connection_id, named, [], has_acks)
        assert isinstance(found, Fetching)
        assert (tuple(found.partitions), found.opened) == (tuple(unique(named)), True)
        if key in self.model:
            assert self.model[key].found.is_over
        self.model[key] = Session(connection_id, found.partitions, doubtful=unique(named))

    @rule(
        key=KEYS,
        ahead=st.sampled_from([0, 0, 0, 0, -1, 1]),
        named=PARTITIONS,
        forgotten=PARTITIONS,
    )
    def go_on(
        self,
        key: SessionKey,
        ahead: int,
        named: list[TopicPartition],
        forgotten: list[TopicPartition],
    ) -> None:
        expected = self.model[key].expected if key in self.model else 1
        epoch = max(1, expected + ahead)
        refusal = self.refusal(key, epoch)
        if refusal is not None:
            with pytest.raises(refusal):
                self.fetch(key, epoch, "c1", named, forgotten, True)
            return
        session = self.advance(key)
        session.doubtful += [one for one in unique(named) if one not in session.all]
        for partition in forgotten:
            session.move(partition, None)
            session.watched.discard(partition)
        if session.quiet:
            session.move(session.quiet[0], session.ready)
        assert self.fetch(key, epoch, "c1", named, forgotten, True) == (session.found, False)

    @rule(key=KEYS, ahead=st.sampled_from([0, 0, 1]))
    def acknowledge(self, key: SessionKey, ahead: int) -> None:
        epoch = (self.model[key].expected if key in self.model else 1) + ahead
        refusal = self.refusal(key, epoch)
        if refusal is None:
            assert self.sessions.acknowledge(key, epoch) is None
            self.advance(key)
        else:
            with pytest.raises(refusal):
                self.sessions.acknowledge(key, epoch)

    @rule(key=KEYS)
    def an_acknowledgement_opens_nothing(self, key: SessionKey) -> None:
        with pytest.raises(InvalidShareSessionEpoch):
            self.sessions.acknowledge(key, 0)

    @rule(key=KEYS, by_fetch=st.booleans(), named=PARTITIONS)
    def close(self, key: SessionKey, by_fetch: bool, named: list[TopicPartition]) -> None:
        if key not in self.model:
            with pytest.raises(ShareSessionNotFound):
                self.sessions.acknowledge(key, -1)
            return
        closed = (
            self.fetch(key, -1, "c1", named, [], True)
            if by_fetch
            else self.sessions.acknowledge(key, -1)
        )
        assert isinstance(closed, Closed)
        assert (closed.key, sorted(closed.partitions)) == (key, sorted(self.model[key].all))
        assert self.model.pop(key).found.is_over

    @rule(group_id=GROUPS, partition=PARTITION, to_all=st.booleans())
    def records_come(self, group_id: GroupId, partition: TopicPartition, to_all: bool) -> None:
        self.come(group_id, partition, to_all=to_all)

    def come(self, group_id: GroupId, partition: TopicPartition, *, to_all: bool) -> None:
        """New ones for all groups, or given back ones for one."""
        groups = [GroupId("g"), GroupId("h")] if to_all else [group_id]
        self.records |= {SharePartitionKey(one, *partition) for one in groups}
        told = [
            (key, session)
            for key, session in self.model.items()
            if key.group_id in groups and partition in session.watched
        ]
        for _, session in told:
            session.watched.remove(partition)
            if partition in session.quiet:
                session.move(partition, session.ready)
        event = partition if to_all else SharePartitionKey(group_id, *partition)
        assert sorted(self.sessions.happened(event)) == sorted(key for key, _ in told)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), turns_max=st.integers(0, 5), is_last=st.booleans())
    def look(self, data: st.DataObject, turns_max: int, is_last: bool) -> None:
        """As a fetch does; in the middle of each look others may give records back."""
        key = data.draw(st.sampled_from(sorted(self.model)))
        session = self.model[key]
        found = session.found
        if is_last:
            found.wake_all()
            for partition in tuple(session.quiet):
                session.move(partition, session.ready)
        for partition in found.doubtful:
            if data.draw(st.booleans()):
                found.make_ready(partition)
                session.move(partition, session.ready)
            else:
                found.doubt(partition)
                session.watched.add(partition)
        for _ in range(min(turns_max, found.ready_count)):
            partition = found.take_turn()
            assert partition == session.ready[0]
            session.move(partition, session.quiet)
            session.watched.add(partition)
            self.look_at(key, partition, data)

    def look_at(self, key: SessionKey, partition: TopicPartition, data: st.DataObject) -> None:
        session, share_partition = self.model[key], SharePartitionKey(key.group_id, *partition)
        what = data.draw(st.sampled_from(["found", "given back", "unusable"]))
        if what == "unusable":
            session.found.doubt(partition)
            session.move(partition, session.doubtful)
        elif share_partition in self.records:
            self.records.remove(share_partition)
            session.found.make_ready(partition)
            session.move(partition, session.ready)
        if what == "given back":
            self.come(key.group_id, partition, to_all=False)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def too_little(self, data: st.DataObject) -> None:
        """What is ready does not suffice: some of it has nothing, and all of it is watched."""
        session = self.model[data.draw(st.sampled_from(sorted(self.model)))]
        group_id = session.found.owner[0]
        assert session.found.ready == tuple(session.ready)
        for partition in session.found.ready:
            if SharePartitionKey(group_id, *partition) not in self.records:
                session.found.quieten(partition)
                session.move(partition, session.quiet)
            session.watched.add(partition)
        session.found.watch_ready()

    @rule(connection_id=CONNECTIONS)
    def connection_is_gone(self, connection_id: str) -> None:
        gone = {key: s for key, s in self.model.items() if s.connection_id == connection_id}
        closed = self.sessions.release_connection(connection_id)
        assert {each.key: sorted(each.partitions) for each in closed} == {
            key: sorted(session.all) for key, session in gone.items()
        }
        for key in gone:
            del self.model[key]

    @precondition(lambda self: self.model)
    @rule()
    def close_all(self) -> None:
        self.sessions.close_all()
        self.model.clear()

    def fetch(
        self,
        key: SessionKey,
        epoch: int,
        connection_id: str,
        named: list[TopicPartition],
        forgotten: list[TopicPartition],
        has_acks: bool,
    ) -> Fetching | Closed:
        return self.sessions.fetch(
            key,
            epoch,
            connection_id=connection_id,
            partitions=named,
            forgotten=forgotten,
            has_acks=has_acks,
        )

    @invariant()
    def sessions_are_the_model(self) -> None:
        assert len(self.sessions) == len(self.model)
        assert self.sessions.partition_count() == sum(len(s.all) for s in self.model.values())
        for group_id in (GroupId("g"), GroupId("h")):
            size = sum(key.group_id == group_id for key in self.model)
            assert self.sessions.group_size(group_id) == size
            assert self.sessions.group_has_sessions(group_id) == (size > 0)
        for key, session in self.model.items():
            assert key in self.sessions
            for connection_id in ("c1", "c2"):
                is_there = self.sessions.is_on_connection(key, connection_id)
                assert is_there == (connection_id == session.connection_id)
            assert session.found.doubtful == tuple(session.doubtful)
            assert session.found.ready == tuple(session.ready)
            assert tuple(session.found) == tuple(session.all)
            assert set(session.found.topic_ids) == ({TOPIC} if session.all else set())
        nobody = SessionKey(GroupId("g"), MemberId("nobody"))
        assert not self.sessions.is_on_connection(nobody, "c1")

    @invariant()
    def no_wake_up_is_missed(self) -> None:
        for key, session in self.model.items():
            for partition in session.quiet:
                assert SharePartitionKey(key.group_id, *partition) not in self.records
                assert partition in session.watched


TestShareSession = ShareSessionMachine.TestCase
TestShareSession.settings = settings(
    max_examples=int(EXAMPLES or 100),
    stateful_step_count=40,
    derandomize=EXAMPLES is None,
    deadline=None,
    database=None,
)
