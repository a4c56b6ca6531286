"""Share sessions against a list of them: epochs, limits, connections that go, and fair turns."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sharegroup.core.share_session import EPOCH_MAX, Closed, Fetching, SessionKey, ShareSessions
from sharegroup.errors import (
    InvalidRequest,
    InvalidShareSessionEpoch,
    KafkaError,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)
from sharegroup.ids import GroupId, MemberId, TopicId, TopicPartition

EXAMPLES = os.environ.get("MODEL_EXAMPLES")
SESSIONS_MAX = 3
KEYS = st.sampled_from(
    [SessionKey(GroupId(group), MemberId(member)) for group in "gh" for member in "abc"]
)
CONNECTIONS = st.sampled_from(["c1", "c2"])
TOPIC = TopicId(UUID(int=1))
PARTITIONS = st.lists(
    st.integers(0, 4).map(lambda number: TopicPartition(TOPIC, number)), max_size=4
)


@dataclass
class Session:
    connection_id: str
    expected: int = 1
    order: list[TopicPartition] = field(default_factory=list)


def unique(partitions: list[TopicPartition]) -> list[TopicPartition]:
    return list(dict.fromkeys(partitions))


class ShareSessionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.sessions = ShareSessions(SESSIONS_MAX)
        self.model: dict[SessionKey, Session] = {}

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
        assert found == Fetching(tuple(unique(named)), opened=True)
        self.model[key] = Session(connection_id, order=unique(named))

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
        have = unique([*session.order, *named])
        session.order = [partition for partition in have if partition not in forgotten]
        found = self.fetch(key, epoch, "c1", named, forgotten, True)
        shift = epoch % max(1, len(session.order))
        turned = session.order[shift:] + session.order[:shift]
        assert found == Fetching(tuple(turned), opened=False)

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
        assert closed == Closed(key, tuple(self.model.pop(key).order))

    @rule(key=KEYS, returned=PARTITIONS)
    def records_returned(self, key: SessionKey, returned: list[TopicPartition]) -> None:
        self.sessions.records_returned(key, unique(returned))
        if key in self.model:
            session = self.model[key]
            last = [partition for partition in unique(returned) if partition in session.order]
            session.order = [each for each in session.order if each not in last] + last

    @rule(connection_id=CONNECTIONS)
    def connection_is_gone(self, connection_id: str) -> None:
        gone = {key: s for key, s in self.model.items() if s.connection_id == connection_id}
        closed = self.sessions.release_connection(connection_id)
        assert {each.key: each.partitions for each in closed} == {
            key: tuple(session.order) for key, session in gone.items()
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
        assert self.sessions.partition_count() == sum(len(s.order) for s in self.model.values())
        for group_id in (GroupId("g"), GroupId("h")):
            size = sum(key.group_id == group_id for key in self.model)
            assert self.sessions.group_size(group_id) == size
            assert self.sessions.group_has_sessions(group_id) == (size > 0)
        for key, session in self.model.items():
            assert key in self.sessions
            for connection_id in ("c1", "c2"):
                is_there = self.sessions.is_on_connection(key, connection_id)
                assert is_there == (connection_id == session.connection_id)
        nobody = SessionKey(GroupId("g"), MemberId("nobody"))
        assert not self.sessions.is_on_connection(nobody, "c1")


TestShareSession = ShareSessionMachine.TestCase
TestShareSession.settings = settings(
    max_examples=int(EXAMPLES or 100),
    stateful_step_count=40,
    derandomize=EXAMPLES is None,
    deadline=None,
    database=None,
)
