"""Share sessions against a list of them: epochs, limits, connections that go, and turns.

The model knows where records are.  A look at a partition finds them or nothing, as its turn comes;
events come at any time, also in the middle of a look.  Never may a partition with records be quiet:
that would be a wake-up that was missed.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sharegroup.core.sessions.session_partitions import SessionPartitions
from sharegroup.core.sessions.share_session import (
    EPOCH_MAX,
    Closed,
    Fetching,
    SessionKey,
    ShareSessions,
)
from sharegroup.errors import (
    InvalidRequest,
    InvalidShareSessionEpoch,
    KafkaError,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)
from sharegroup.ids import GroupId, MemberId, SharePartitionKey, TopicId, TopicIdPartition
from tests.support.share_sessions import fetch_filled

EXAMPLES = os.environ.get("MODEL_EXAMPLES")
SESSIONS_MAX = 3
PARTITIONS_MAX = 7
"""Of all sessions; one names up to 5."""
KEYS = st.sampled_from(
    [SessionKey(GroupId(group), MemberId(member)) for group in "gh" for member in "abc"]
)
CONNECTIONS = st.sampled_from(["c1", "c2", "c3"])
TOPIC = TopicId(UUID(int=1))
PARTITION = st.integers(0, 4).map(lambda number: TopicIdPartition(TOPIC, number))
PARTITIONS = st.lists(PARTITION, max_size=4)
GROUPS = st.sampled_from([GroupId("g"), GroupId("h")])


@dataclass
class Session:
    connection_id: str
    found: SessionPartitions
    expected: int = 1
    doubtful: list[TopicIdPartition] = field(default_factory=list)
    ready: list[TopicIdPartition] = field(default_factory=list)
    quiet: list[TopicIdPartition] = field(default_factory=list)
    watched: set[TopicIdPartition] = field(default_factory=set)

    @property
    def all(self) -> list[TopicIdPartition]:
        return self.doubtful + self.ready + self.quiet

    def move(self, partition: TopicIdPartition, to: list[TopicIdPartition] | None) -> None:
        for kind in (self.doubtful, self.ready, self.quiet):
            if partition in kind:
                kind.remove(partition)
        if to is not None:
            to.append(partition)


def unique(partitions: list[TopicIdPartition]) -> list[TopicIdPartition]:
    return list(dict.fromkeys(partitions))


class ShareSessionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.sessions = ShareSessions(SESSIONS_MAX, partitions_max=PARTITIONS_MAX)
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

    def has_room(self, key: SessionKey, size: int) -> bool:
        """Whether the session may have ``size`` partitions beside the others."""
        return sum(len(s.all) for k, s in self.model.items() if k != key) + size <= PARTITIONS_MAX

    def may_push(self, key: SessionKey, size: int) -> bool:
        """Whether it may have them in another's place: up to an equal share for each."""
        return size * len({*self.model, key}) <= PARTITIONS_MAX

    def check_evicted(
        self, key: SessionKey, evicted: tuple[Closed, ...], *, had_room: bool
    ) -> None:
        """Exactly one session went, and none was larger; or none, as there was room."""
        assert len(evicted) == (not had_room)
        for closed in evicted:
            assert closed.key != key
            gone = self.pop_closed(closed)
            assert len(gone.all) == max(
                len(s.all) for k, s in [*self.model.items(), (closed.key, gone)] if k != key
            )

    def pop_closed(self, closed: Closed) -> Session:
        gone = self.model.pop(closed.key)
        assert gone.found.is_over
        assert sorted(closed.partitions) == sorted(gone.all)
        return gone

    def crowded_out(self) -> SessionKey:
        """The oldest session of the connection with most of them; with three no two have most."""
        counts = Counter(session.connection_id for session in self.model.values())
        (crowded, _), *_ = counts.most_common(1)
        return next(k for k, session in self.model.items() if session.connection_id == crowded)

    @rule(key=KEYS, connection_id=CONNECTIONS, named=PARTITIONS, has_acks=st.booleans())
    def open(
        self, key: SessionKey, connection_id: str, named: list[TopicIdPartition], has_acks: bool
    ) -> None:
        size = len(unique(named))
        is_full = key not in self.model and len(self.model) >= SESSIONS_MAX
        # An equal share of three is one, or all for the only connection.
        is_refused = is_full and connection_id in {s.connection_id for s in self.model.values()}
        gone = key if not is_full else self.crowded_out()
        others = [len(s.all) for k, s in self.model.items() if k not in (key, gone)]
        had_room = sum(others) + size <= PARTITIONS_MAX
        may_push = size * (len(others) + 1) <= PARTITIONS_MAX
        is_too_much = is_refused or not (had_room or may_push)
        refusal = InvalidRequest if has_acks else ShareSessionLimitReached if is_too_much else None
        if refusal is not None:
            with pytest.raises(refusal):
                self.fetch(key, 0, connection_id, named, [], has_acks)
            return
        found = self.fetch(key, 0, connection_id, named, [], has_acks)
        assert isinstance(found, Fetching)
        assert (tuple(found.partitions), found.opened) == (tuple(unique(named)), True)
        for_place, for_partitions = found.evicted[:is_full], found.evicted[is_full:]
        if is_full:
            assert [closed.key for closed in for_place] == [gone]
            self.pop_closed(for_place[0])
        self.check_evicted(key, for_partitions, had_room=had_room)
        if key in self.model:
            assert self.model.pop(key).found.is_over
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
        named: list[TopicIdPartition],
        forgotten: list[TopicIdPartition],
    ) -> None:
        expected = self.model[key].expected if key in self.model else 1
        epoch = max(1, expected + ahead)
        refusal = self.refusal(key, epoch)
        if refusal is not None:
            with pytest.raises(refusal):
                self.fetch(key, epoch, "c1", named, forgotten, True)
            return
        size = len({*self.model[key].all, *named}.difference(forgotten))
        grows = size > len(self.model[key].all)
        had_room = not grows or self.has_room(key, size)
        if not had_room and not self.may_push(key, size):
            with pytest.raises(ShareSessionLimitReached):
                self.fetch(key, epoch, "c1", named, forgotten, True)
            return
        session = self.advance(key)
        session.doubtful += [key for key in unique(named) if key not in session.all]
        for partition in forgotten:
            session.move(partition, None)
            session.watched.discard(partition)
        if session.quiet:
            session.move(session.quiet[0], session.ready)
        found = self.fetch(key, epoch, "c1", named, forgotten, True)
        assert isinstance(found, Fetching)
        assert found[:2] == (session.found, False)
        self.check_evicted(key, found.evicted, had_room=had_room)

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
    def close(self, key: SessionKey, by_fetch: bool, named: list[TopicIdPartition]) -> None:
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
    def records_come(self, group_id: GroupId, partition: TopicIdPartition, to_all: bool) -> None:
        self.come(group_id, partition, to_all=to_all)

    def come(self, group_id: GroupId, partition: TopicIdPartition, *, to_all: bool) -> None:
        """New ones for all groups, or given back ones for one."""
        groups = [GroupId("g"), GroupId("h")] if to_all else [group_id]
        self.records |= {SharePartitionKey(group, *partition) for group in groups}
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
        assert sorted(self.sessions.watches.happened(event)) == sorted(key for key, _ in told)

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

    def look_at(self, key: SessionKey, partition: TopicIdPartition, data: st.DataObject) -> None:
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
        for partition in session.found.ready:
            session.found.watch(partition)

    @rule(connection_id=CONNECTIONS)
    def connection_is_gone(self, connection_id: str) -> None:
        gone = {key: s for key, s in self.model.items() if s.connection_id == connection_id}
        closed = self.sessions.release_connection(connection_id)
        assert {session.key: sorted(session.partitions) for session in closed} == {
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
        named: list[TopicIdPartition],
        forgotten: list[TopicIdPartition],
        has_acks: bool,
    ) -> Fetching | Closed:
        """Accept a fetch."""
        return fetch_filled(
            self.sessions,
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
        total = sum(len(s.all) for s in self.model.values())
        assert self.sessions.partition_count() == total <= PARTITIONS_MAX
        for group_id in (GroupId("g"), GroupId("h")):
            size = sum(key.group_id == group_id for key in self.model)
            assert self.sessions.group_size(group_id) == size
            assert self.sessions.group_has_sessions(group_id) == (size > 0)
        for key, session in self.model.items():
            assert key in self.sessions
            for connection_id in ("c1", "c2", "c3"):
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
    max_examples=int(EXAMPLES or 50),
    stateful_step_count=40,
    derandomize=EXAMPLES is None,
    database=None,
)
