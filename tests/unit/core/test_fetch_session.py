"""Fetch sessions (KIP-227): epochs, what is remembered, what counts as news."""

from __future__ import annotations

import tracemalloc
from uuid import UUID, uuid4

import pytest

from sharegroup.core.sessions.fetch_session import (
    FetchKey,
    FetchSender,
    FetchSessions,
    ReportedOffsets,
    RequestedPartition,
)
from sharegroup.core.sessions.user_part import PARTITION_BYTES
from sharegroup.errors import (
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    InvalidRequest,
)

A: FetchKey = ("a", 0)
B: FetchKey = ("b", 0)
FROM_5 = RequestedPartition(fetch_offset=5, bytes_max=100, leader_epoch=-1)
FROM_9 = RequestedPartition(fetch_offset=9, bytes_max=100, leader_epoch=-1)


def opened(sessions: FetchSessions, connection_id: int = 1) -> int:
    plan = sessions.plan(
        0,
        0,
        sender=FetchSender(connection_id),
        named={A: FROM_5, B: FROM_5},
        forgotten=(),
        now_ms=0,
    )
    assert not plan.incremental
    return plan.session_id


def test_request_without_session_creates_none() -> None:
    sessions = FetchSessions(10)
    plan = sessions.plan(0, -1, sender=FetchSender(1), named={A: FROM_5}, forgotten=(), now_ms=0)
    assert plan == (0, {A: FROM_5}, False)
    assert len(sessions) == 0


def test_session_remembers_updates_and_forgets() -> None:
    sessions = FetchSessions(10)
    session_id = opened(sessions)
    plan = sessions.plan(
        session_id, 1, sender=FetchSender(1), named={A: FROM_9}, forgotten=[B], now_ms=0
    )
    assert plan == (session_id, {A: FROM_9}, True)


def test_wrong_epoch_and_unknown_session_are_refused() -> None:
    sessions = FetchSessions(10)
    session_id = opened(sessions)
    with pytest.raises(InvalidFetchSessionEpoch, match="expected epoch 1, got 2"):
        sessions.plan(session_id, 2, sender=FetchSender(1), named={}, forgotten=(), now_ms=0)
    with pytest.raises(FetchSessionIdNotFound, match="77"):
        sessions.plan(77, 1, sender=FetchSender(1), named={}, forgotten=(), now_ms=0)


def test_session_of_another_connection_can_be_neither_used_nor_closed() -> None:
    sessions = FetchSessions(10)
    session_id = opened(sessions, connection_id=1)
    with pytest.raises(FetchSessionIdNotFound, match=f"no fetch session {session_id} of this"):
        sessions.plan(session_id, 1, sender=FetchSender(2), named={}, forgotten=(), now_ms=0)
    for epoch in (-1, 0):
        sessions.plan(session_id, epoch, sender=FetchSender(2), named={}, forgotten=(), now_ms=0)
    plan = sessions.plan(session_id, 1, sender=FetchSender(1), named={}, forgotten=(), now_ms=0)
    assert plan == (session_id, {A: FROM_5, B: FROM_5}, True)


def test_session_never_has_more_partitions_than_one_request_could_name() -> None:
    sessions = FetchSessions(10)
    session_id = opened(sessions)
    more: dict[FetchKey, RequestedPartition] = {
        ("c", partition): FROM_5 for partition in range(29_999)
    }
    with pytest.raises(InvalidRequest, match="would have 30001 partitions, 30000 are allowed"):
        sessions.plan(session_id, 1, sender=FetchSender(1), named=more, forgotten=(), now_ms=0)
    plan = sessions.plan(session_id, 1, sender=FetchSender(1), named=more, forgotten=[A], now_ms=0)
    assert len(plan.partitions) == 30_000


def test_full_cache_answers_without_a_session() -> None:
    sessions = FetchSessions(1)
    assert opened(sessions) == 1
    assert opened(sessions, connection_id=2) == 0


def test_only_changed_offsets_are_news() -> None:
    sessions = FetchSessions(10)
    session_id = opened(sessions)
    assert sessions.news(session_id, A, ReportedOffsets(10, 0))
    assert not sessions.news(session_id, A, ReportedOffsets(10, 0))
    assert sessions.news(session_id, A, ReportedOffsets(11, 0))


def test_partition_with_records_moves_to_the_end() -> None:
    sessions = FetchSessions(10)
    session_id = opened(sessions)
    sessions.records_returned(session_id, [A])
    plan = sessions.plan(session_id, 1, sender=FetchSender(1), named={}, forgotten=(), now_ms=0)
    assert list(plan.partitions) == [B, A]


def test_session_ends_with_its_connection() -> None:
    sessions = FetchSessions(10)
    session_id = opened(sessions)
    sessions.release_connection(1)
    with pytest.raises(FetchSessionIdNotFound):
        sessions.plan(session_id, 1, sender=FetchSender(2), named={}, forgotten=(), now_ms=0)


def test_session_of_another_connection_stays() -> None:
    sessions = FetchSessions(10)
    first, second = opened(sessions, connection_id=1), opened(sessions, connection_id=2)
    sessions.release_connection(1)
    assert len(sessions) == 1
    assert (
        sessions.plan(second, 1, sender=FetchSender(2), named={}, forgotten=(), now_ms=0).session_id
        == second
    )
    with pytest.raises(FetchSessionIdNotFound):
        sessions.plan(first, 1, sender=FetchSender(1), named={}, forgotten=(), now_ms=0)


def test_request_that_names_nothing_opens_no_session() -> None:
    sessions = FetchSessions(10)
    assert sessions.plan(0, 0, sender=FetchSender(1), named={}, forgotten=(), now_ms=0) == (
        0,
        {},
        False,
    )
    assert len(sessions) == 0


def test_epoch_after_the_last_one_is_1() -> None:
    """0 and -1 mean something else."""
    sessions = FetchSessions(10, epoch_max=3)
    session_id = opened(sessions)
    for epoch in (1, 2, 3, 1, 2, 3, 1):
        sessions.plan(session_id, epoch, sender=FetchSender(1), named={}, forgotten=(), now_ms=0)
    with pytest.raises(InvalidFetchSessionEpoch, match="expected epoch 2, got 4"):
        sessions.plan(session_id, 4, sender=FetchSender(1), named={}, forgotten=(), now_ms=0)


def test_session_id_after_the_last_one_is_1() -> None:
    """0 means that there is no session."""
    sessions = FetchSessions(10, epoch_max=3)
    found = []
    for connection_id in range(5):
        found.append(opened(sessions, connection_id))
        sessions.release_connection(connection_id)
    assert found == [1, 2, 3, 1, 2]


def test_id_of_an_open_session_is_not_reused() -> None:
    sessions = FetchSessions(10, epoch_max=4)
    assert [opened(sessions, connection_id) for connection_id in (1, 2, 3, 4)] == [1, 2, 3, 4]
    sessions.release_connection(3)
    assert opened(sessions, 5) == 3
    assert len(sessions) == 4


def open_large(sessions: FetchSessions, size: int, *, now_ms: int = 0, at: int = 1) -> int:
    named: dict[FetchKey, RequestedPartition] = {
        ("t", partition): FROM_5 for partition in range(size)
    }
    plan = sessions.plan(0, 0, sender=FetchSender(at), named=named, forgotten=(), now_ms=now_ms)
    assert len(plan.partitions) == size
    return plan.session_id


def test_session_beyond_the_partitions_of_all_sessions_is_not_opened() -> None:
    sessions = FetchSessions(10, partitions_max=100)
    assert open_large(sessions, 60) == 1
    assert open_large(sessions, 51) == 0
    assert (sessions.partition_count, sessions.refused_count) == (60, 1)


def test_session_within_an_equal_share_gets_its_room_from_the_largest() -> None:
    sessions = FetchSessions(10, partitions_max=100)
    large, larger = open_large(sessions, 30), open_large(sessions, 70)
    small = open_large(sessions, 33)
    assert small != 0
    assert (sessions.partition_count, sessions.evicted_count) == (63, 1)
    with pytest.raises(FetchSessionIdNotFound):
        sessions.plan(larger, 1, sender=FetchSender(1), named={}, forgotten=(), now_ms=0)
    sessions.plan(large, 1, sender=FetchSender(1), named={}, forgotten=(), now_ms=0)


def test_session_that_grows_too_large_is_closed() -> None:
    sessions = FetchSessions(10, partitions_max=100)
    session_id = open_large(sessions, 60)
    more: dict[FetchKey, RequestedPartition] = {("u", partition): FROM_5 for partition in range(41)}
    with pytest.raises(FetchSessionIdNotFound, match="with 101 partitions all sessions would"):
        sessions.plan(session_id, 1, sender=FetchSender(1), named=more, forgotten=(), now_ms=0)
    assert (len(sessions), sessions.partition_count) == (0, 0)


def test_session_that_grows_within_an_equal_share_stays() -> None:
    sessions = FetchSessions(10, partitions_max=100)
    large, small = open_large(sessions, 90), open_large(sessions, 5)
    more: dict[FetchKey, RequestedPartition] = {("u", partition): FROM_5 for partition in range(45)}
    plan = sessions.plan(small, 1, sender=FetchSender(1), named=more, forgotten=(), now_ms=0)
    assert len(plan.partitions) == sessions.partition_count == 50
    with pytest.raises(FetchSessionIdNotFound):
        sessions.plan(large, 1, sender=FetchSender(1), named={}, forgotten=(), now_ms=0)


def test_connection_without_a_session_gets_a_place_from_the_connection_with_most() -> None:
    sessions = FetchSessions(4)
    first, second, third = (open_large(sessions, 1) for _ in range(3))
    alone = open_large(sessions, 1, at=2)
    sessions.plan(first, 1, sender=FetchSender(1), named={}, forgotten=(), now_ms=0)
    new = open_large(sessions, 1, at=3)
    assert new != 0
    with pytest.raises(FetchSessionIdNotFound):
        sessions.plan(second, 1, sender=FetchSender(1), named={}, forgotten=(), now_ms=0)
    assert [open_large(sessions, 1, at=connection) for connection in (1, 2, 3)] == [0, 0, 0]
    for session_id, epoch, owner in ((first, 2, 1), (third, 1, 1), (alone, 1, 2), (new, 1, 3)):
        sessions.plan(
            session_id, epoch, sender=FetchSender(owner), named={}, forgotten=(), now_ms=0
        )


def test_session_without_a_request_for_two_minutes_makes_room() -> None:
    sessions = FetchSessions(2, partitions_max=100)
    first, second = open_large(sessions, 20), open_large(sessions, 20)
    sessions.plan(first, 1, sender=FetchSender(1), named={}, forgotten=(), now_ms=1_000)
    assert open_large(sessions, 20, now_ms=120_000) == 0
    assert open_large(sessions, 20, now_ms=120_001) != 0
    with pytest.raises(FetchSessionIdNotFound):
        sessions.plan(second, 1, sender=FetchSender(1), named={}, forgotten=(), now_ms=120_001)
    sessions.plan(first, 2, sender=FetchSender(1), named={}, forgotten=(), now_ms=120_001)


def test_partitions_of_sessions_that_ended_are_room_again() -> None:
    sessions = FetchSessions(10, partitions_max=100)
    session_id = open_large(sessions, 50, at=1)
    open_large(sessions, 50, at=2)
    forgotten: list[FetchKey] = [("t", partition) for partition in range(10)]
    sessions.plan(session_id, 1, sender=FetchSender(1), named={}, forgotten=forgotten, now_ms=0)
    assert sessions.partition_count == 90
    sessions.release_connection(2)
    assert sessions.partition_count == 40
    sessions.plan(session_id, -1, sender=FetchSender(1), named={}, forgotten=(), now_ms=0)
    assert sessions.partition_count == 0


def test_late_offsets_of_a_forgotten_partition_are_not_kept() -> None:
    """A waiting fetch is answered after a later request of its session."""
    sessions = FetchSessions(10)
    session_id = opened(sessions)
    sessions.plan(session_id, 1, sender=FetchSender(1), named={}, forgotten=[A], now_ms=0)
    assert sessions.news(session_id, A, ReportedOffsets(10, 0))
    assert sessions.news(session_id, A, ReportedOffsets(10, 0))


def test_memory_of_a_session_partition_is_within_its_estimate() -> None:
    """Measured with 7,250 topics of one partition each, all with reported offsets."""
    sessions = FetchSessions(10)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        named: dict[FetchKey, RequestedPartition] = {
            (uuid4(), 1_000 + index): RequestedPartition(10_000 + index, 100_000 + index, -1)
            for index in range(7_250)
        }
        plan = sessions.plan(0, 0, sender=FetchSender(1), named=named, forgotten=(), now_ms=0)
        for index, key in enumerate(named):
            sessions.news(plan.session_id, key, ReportedOffsets(20_000 + index, 5_000 + index))
        del named, plan, key
        each = (tracemalloc.get_traced_memory()[0] - before) / sessions.partition_count
    finally:
        tracemalloc.stop()
    assert each <= PARTITION_BYTES


def test_session_with_topic_ids_refuses_a_request_with_names_and_continues() -> None:
    sessions = FetchSessions(10)
    by_id = {(UUID(int=1), 0): FROM_5}
    first = sessions.plan(
        0, 0, sender=FetchSender(1, uses_topic_ids=True), named=by_id, forgotten=(), now_ms=0
    )
    with pytest.raises(FetchSessionTopicIdError, match="names topics by id, and this one"):
        sessions.plan(
            first.session_id, 1, sender=FetchSender(1), named={A: FROM_5}, forgotten=(), now_ms=0
        )
    again = sessions.plan(
        first.session_id,
        1,
        sender=FetchSender(1, uses_topic_ids=True),
        named={},
        forgotten=(),
        now_ms=0,
    )
    assert again.partitions == by_id
