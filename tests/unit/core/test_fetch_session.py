"""Fetch sessions (KIP-227): epochs, what is remembered, what counts as news."""

from __future__ import annotations

import pytest

from sharegroup.core import fetch_session
from sharegroup.core.fetch_session import FetchKey, FetchSessions, Picture, Wanted
from sharegroup.errors import FetchSessionIdNotFound, InvalidFetchSessionEpoch, InvalidRequest

A: FetchKey = ("a", 0)
B: FetchKey = ("b", 0)
FROM_5 = Wanted(fetch_offset=5, bytes_max=100, leader_epoch=-1)
FROM_9 = Wanted(fetch_offset=9, bytes_max=100, leader_epoch=-1)


def opened(sessions: FetchSessions, connection_id: int = 1) -> int:
    plan = sessions.plan(
        0, 0, connection_id=connection_id, named={A: FROM_5, B: FROM_5}, forgotten=()
    )
    assert not plan.incremental
    return plan.session_id


def test_request_without_session_stands_alone() -> None:
    sessions = FetchSessions(10)
    plan = sessions.plan(0, -1, connection_id=1, named={A: FROM_5}, forgotten=())
    assert plan == (0, {A: FROM_5}, False)
    assert len(sessions) == 0


def test_session_remembers_updates_and_forgets() -> None:
    sessions = FetchSessions(10)
    session_id = opened(sessions)
    plan = sessions.plan(session_id, 1, connection_id=1, named={A: FROM_9}, forgotten=[B])
    assert plan == (session_id, {A: FROM_9}, True)


def test_wrong_epoch_and_unknown_session_are_refused() -> None:
    sessions = FetchSessions(10)
    session_id = opened(sessions)
    with pytest.raises(InvalidFetchSessionEpoch, match="expected epoch 1, got 2"):
        sessions.plan(session_id, 2, connection_id=1, named={}, forgotten=())
    with pytest.raises(FetchSessionIdNotFound, match="77"):
        sessions.plan(77, 1, connection_id=1, named={}, forgotten=())


def test_session_never_has_more_partitions_than_one_request_could_name() -> None:
    sessions = FetchSessions(10)
    session_id = opened(sessions)
    more: dict[FetchKey, Wanted] = {("c", partition): FROM_5 for partition in range(29_999)}
    with pytest.raises(InvalidRequest, match="would have 30001 partitions, 30000 are allowed"):
        sessions.plan(session_id, 1, connection_id=1, named=more, forgotten=())
    plan = sessions.plan(session_id, 1, connection_id=1, named=more, forgotten=[A])
    assert len(plan.wanted) == 30_000


def test_full_cache_answers_without_a_session() -> None:
    sessions = FetchSessions(1)
    assert opened(sessions) == 1
    assert opened(sessions, connection_id=2) == 0


def test_only_what_changed_is_news() -> None:
    sessions = FetchSessions(10)
    session_id = opened(sessions)
    assert sessions.news(session_id, A, Picture(10, 0))
    assert not sessions.news(session_id, A, Picture(10, 0))
    assert sessions.news(session_id, A, Picture(11, 0))


def test_partition_with_records_moves_to_the_end() -> None:
    sessions = FetchSessions(10)
    session_id = opened(sessions)
    sessions.records_returned(session_id, [A])
    plan = sessions.plan(session_id, 1, connection_id=1, named={}, forgotten=())
    assert list(plan.wanted) == [B, A]


def test_session_ends_with_its_connection() -> None:
    sessions = FetchSessions(10)
    session_id = opened(sessions)
    sessions.release_connection(1)
    with pytest.raises(FetchSessionIdNotFound):
        sessions.plan(session_id, 1, connection_id=2, named={}, forgotten=())


def test_session_of_another_connection_stays() -> None:
    sessions = FetchSessions(10)
    first, second = opened(sessions, connection_id=1), opened(sessions, connection_id=2)
    sessions.release_connection(1)
    assert len(sessions) == 1
    assert sessions.plan(second, 1, connection_id=2, named={}, forgotten=()).session_id == second
    with pytest.raises(FetchSessionIdNotFound):
        sessions.plan(first, 1, connection_id=1, named={}, forgotten=())


def test_request_that_names_nothing_opens_no_session() -> None:
    sessions = FetchSessions(10)
    assert sessions.plan(0, 0, connection_id=1, named={}, forgotten=()) == (0, {}, False)
    assert len(sessions) == 0


def test_epoch_after_the_last_one_is_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """0 and -1 mean something else."""
    monkeypatch.setattr(fetch_session, "EPOCH_MAX", 3)
    sessions = FetchSessions(10)
    session_id = opened(sessions)
    for epoch in (1, 2, 3, 1, 2, 3, 1):
        sessions.plan(session_id, epoch, connection_id=1, named={}, forgotten=())
    with pytest.raises(InvalidFetchSessionEpoch, match="expected epoch 2, got 4"):
        sessions.plan(session_id, 4, connection_id=1, named={}, forgotten=())


def test_session_id_after_the_last_one_is_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """0 means that there is no session."""
    monkeypatch.setattr(fetch_session, "EPOCH_MAX", 3)
    sessions = FetchSessions(10)
    found = []
    for connection_id in range(5):
        found.append(opened(sessions, connection_id))
        sessions.release_connection(connection_id)
    assert found == [1, 2, 3, 1, 2]


def test_session_that_lives_on_keeps_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_session, "EPOCH_MAX", 4)
    sessions = FetchSessions(10)
    assert [opened(sessions, connection_id) for connection_id in (1, 2, 3, 4)] == [1, 2, 3, 4]
    sessions.release_connection(3)
    assert opened(sessions, 5) == 3
    assert len(sessions) == 4
