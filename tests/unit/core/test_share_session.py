"""Share sessions: epochs, limits, what is released when, and what a request looks at again."""

from __future__ import annotations

import tracemalloc
from uuid import UUID, uuid4

import pytest

from sharegroup.core.sessions.session_partitions import SessionPartitions
from sharegroup.core.sessions.share_session import (
    Closed,
    Fetching,
    SessionKey,
    ShareSessions,
)
from sharegroup.core.sessions.user_part import PARTITION_BYTES
from sharegroup.errors import (
    InvalidRequest,
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)
from sharegroup.ids import GroupId, MemberId, TopicId, TopicIdPartition
from sharegroup.steps import STEP_ELEMENTS
from tests.support.share_sessions import fetch_filled

TOPIC = TopicId(UUID(int=7))
P0, P1, P2 = (TopicIdPartition(TOPIC, partition) for partition in range(3))
KEY = SessionKey(GroupId("g"), MemberId("m"))
OTHER = SessionKey(GroupId("g"), MemberId("n"))


def fetch(
    sessions: ShareSessions,
    epoch: int,
    *partitions: TopicIdPartition,
    key: SessionKey = KEY,
    connection_id: str = "c1",
    forgotten: tuple[TopicIdPartition, ...] = (),
    has_acks: bool = False,
) -> tuple[tuple[TopicIdPartition, ...], bool] | Closed:
    """The session's partitions and whether it was opened, or what is to be released."""
    outcome = fetch_filled(
        sessions,
        key,
        epoch,
        connection_id=connection_id,
        partitions=partitions,
        forgotten=forgotten,
        has_acks=has_acks,
    )
    return outcome if isinstance(outcome, Closed) else (tuple(outcome.partitions), outcome.opened)


def partitions_of(
    sessions: ShareSessions, epoch: int, *partitions: TopicIdPartition
) -> SessionPartitions:
    """The session's partitions, after another request."""
    outcome = fetch_filled(
        sessions,
        KEY,
        epoch,
        connection_id="c1",
        partitions=partitions,
        forgotten=(),
        has_acks=False,
    )
    assert not isinstance(outcome, Closed)
    return outcome.partitions


def opened(*partitions: TopicIdPartition) -> ShareSessions:
    sessions = ShareSessions(sessions_max=2)
    fetch(sessions, 0, *partitions)
    return sessions


def test_epoch_zero_opens_a_session_with_the_partitions_of_the_request() -> None:
    sessions = ShareSessions(sessions_max=2)
    assert fetch(sessions, 0, P0, P1) == ((P0, P1), True)
    assert KEY in sessions
    assert sessions.partition_count() == 2


def test_later_epochs_remember_the_partitions() -> None:
    sessions = opened(P0, P1, P2)
    assert fetch(sessions, 1) == ((P0, P1, P2), False)
    assert fetch(sessions, 2) == ((P0, P1, P2), False)


def test_session_without_partitions_fetches_nothing() -> None:
    assert fetch(opened(), 1) == ((), False)


def test_named_partitions_are_added_and_forgotten_ones_removed() -> None:
    sessions = opened(P0)
    fetch(sessions, 1, P1, P0)
    assert fetch(sessions, 2, forgotten=(P0, P2)) == ((P1,), False)


def test_partition_both_named_and_forgotten_is_forgotten() -> None:
    assert fetch(opened(P0), 1, P1, forgotten=(P1,)) == ((P0,), False)


def test_session_never_has_more_partitions_than_one_request_could_name() -> None:
    many = tuple(TopicIdPartition(TOPIC, partition) for partition in range(30_001))
    sessions = opened(*many[:20_000])
    with pytest.raises(InvalidRequest, match="would have 30001 partitions, 30000 are allowed"):
        fetch(sessions, 1, *many[15_000:])
    assert sessions.partition_count() == 20_000
    fetch(sessions, 1, *many[15_000:], forgotten=(P0,))
    assert sessions.partition_count() == 30_000


def test_each_request_makes_the_longest_quiet_partition_ready() -> None:
    sessions = opened(P0, P1, P2)
    session = partitions_of(sessions, 1)
    for partition in (P0, P1, P2):
        session.make_ready(partition)
        assert session.take_turn() == partition
    for epoch, partition in enumerate((P0, P1, P2, P0), start=2):
        assert partitions_of(sessions, epoch) is session
        assert session.ready == (partition,)
        assert session.take_turn() == partition


def test_event_wakes_the_sessions_without_records_of_the_partition() -> None:
    sessions = opened(P0, P1)
    session = partitions_of(sessions, 1)
    session.make_ready(P0)
    assert sessions.watches.happened(P0) == []
    session.take_turn()
    assert sessions.watches.happened(P1) == []
    assert sessions.watches.happened(P0) == [KEY]
    assert session.ready == (P0,)


def test_closed_session_is_not_woken() -> None:
    sessions = opened(P0, P1)
    session = partitions_of(sessions, 1)
    session.make_ready(P0)
    session.take_turn()
    session.doubt(P1)
    fetch(sessions, -1)
    assert session.is_over
    assert (sessions.watches.happened(P0), sessions.watches.happened(P1)) == ([], [])


def test_session_opened_in_place_replaces_the_former_session() -> None:
    sessions = opened(P0)
    before = partitions_of(sessions, 1)
    before.make_ready(P0)
    before.take_turn()
    after = partitions_of(sessions, 0, P0)
    assert (before.is_over, after.is_over) == (True, False)
    assert (after.doubtful, after.ready) == ((P0,), ())
    assert sessions.watches.happened(P0) == []


@pytest.mark.parametrize("epoch", [2, 7, -2])
def test_wrong_epoch_is_refused_and_the_session_is_kept(epoch: int) -> None:
    sessions = opened(P0)
    with pytest.raises(InvalidShareSessionEpoch, match=f"'m': expected epoch 1, got {epoch}"):
        fetch(sessions, epoch, P1)
    assert fetch(sessions, 1) == ((P0,), False)


def test_epoch_of_a_lost_reply_is_not_served_again() -> None:
    sessions = opened(P0)
    fetch(sessions, 1)
    with pytest.raises(InvalidShareSessionEpoch, match="expected epoch 2, got 1"):
        fetch(sessions, 1)


def test_epoch_one_follows_the_largest() -> None:
    sessions = opened(P0)
    sessions._sessions[KEY].expected_epoch = 2**31 - 1  # Two thousand million requests later.
    fetch(sessions, 2**31 - 1)
    assert fetch(sessions, 1) == ((P0,), False)


@pytest.mark.parametrize("epoch", [1, -1, -2])
def test_unknown_session_is_refused(epoch: int) -> None:
    sessions = ShareSessions(sessions_max=2)
    with pytest.raises(ShareSessionNotFound, match="group 'g', member 'm'"):
        fetch(sessions, epoch)
    with pytest.raises(ShareSessionNotFound):
        sessions.acknowledge(KEY, epoch)


def test_opening_with_acknowledgements_is_refused_and_the_old_session_survives() -> None:
    sessions = opened(P0)
    with pytest.raises(InvalidRequest, match="cannot acknowledge"):
        fetch(sessions, 0, P1, has_acks=True)
    assert fetch(sessions, 1) == ((P0,), False)


def test_full_table_refuses_a_new_session_but_not_an_opening_in_place() -> None:
    sessions = opened(P0)
    fetch(sessions, 0, key=OTHER)
    third = SessionKey(GroupId("h"), MemberId("m"))
    with pytest.raises(ShareSessionLimitReached, match=r"there are 2 .* at most 2"):
        fetch(sessions, 0, key=third)
    assert fetch(sessions, 0, P1) == ((P1,), True)
    assert len(sessions) == 2


def test_acknowledgement_uses_up_an_epoch() -> None:
    sessions = opened(P0)
    assert sessions.acknowledge(KEY, 1) is None
    assert fetch(sessions, 2) == ((P0,), False)


def test_acknowledgement_cannot_open_a_session() -> None:
    sessions = opened(P0)
    with pytest.raises(InvalidShareSessionEpoch, match="got epoch 0"):
        sessions.acknowledge(KEY, 0)
    assert sessions.acknowledge(KEY, 1) is None


def test_acknowledgement_with_a_wrong_epoch_is_refused() -> None:
    with pytest.raises(InvalidShareSessionEpoch, match="expected epoch 1, got 3"):
        opened(P0).acknowledge(KEY, 3)


def test_close_returns_the_partitions_to_release_without_forgotten_ones() -> None:
    sessions = opened(P0, P1)
    fetch(sessions, 1, forgotten=(P0,))
    assert fetch(sessions, -1, P2) == Closed(KEY, (P1,))
    assert KEY not in sessions
    assert not sessions.group_has_sessions(KEY.group_id)


def test_acknowledgement_can_close_the_session() -> None:
    sessions = opened(P0, P1)
    assert sessions.acknowledge(KEY, -1) == Closed(KEY, (P0, P1))
    assert len(sessions) == 0


def test_lost_connection_closes_the_sessions_opened_on_it() -> None:
    sessions = opened(P0)
    fetch(sessions, 0, P1, key=OTHER, connection_id="c2")
    assert sessions.release_connection("c1") == (Closed(KEY, (P0,)),)
    assert sessions.group_has_sessions(KEY.group_id)
    assert sessions.release_connection("c2") == (Closed(OTHER, (P1,)),)
    assert not sessions.group_has_sessions(KEY.group_id)


def test_connection_may_carry_several_sessions() -> None:
    sessions = opened(P0)
    fetch(sessions, 0, P1, key=OTHER)
    assert sessions.release_connection("c1") == (Closed(KEY, (P0,)), Closed(OTHER, (P1,)))


def test_old_connection_does_not_close_a_session_opened_again_elsewhere() -> None:
    sessions = opened(P0)
    fetch(sessions, 0, P1, connection_id="c2")
    assert sessions.release_connection("c1") == ()
    assert fetch(sessions, 1, connection_id="c2") == ((P1,), False)


def test_connection_without_sessions_releases_nothing() -> None:
    assert opened(P0).release_connection("c9") == ()


def many(count: int, *, topic: int = 9) -> list[TopicIdPartition]:
    topic_id = TopicId(UUID(int=topic))
    return [TopicIdPartition(topic_id, partition) for partition in range(count)]


def member(name: str) -> SessionKey:
    return SessionKey(GroupId("g"), MemberId(name))


def hogged() -> ShareSessions:
    """Two sessions have all but 10 of 100 partitions."""
    sessions = ShareSessions(sessions_max=10, partitions_max=100)
    fetch(sessions, 0, *many(60), key=member("hog"))
    fetch(sessions, 0, *many(30), key=member("large"))
    return sessions


def test_session_beyond_the_partitions_of_all_sessions_is_refused() -> None:
    sessions = hogged()
    with pytest.raises(ShareSessionLimitReached, match="with its 40 partitions all share sessions"):
        fetch(sessions, 0, *many(40), key=member("new"))
    assert (len(sessions), sessions.partition_count(), sessions.refused_count) == (2, 90, 1)


def test_session_within_an_equal_share_gets_its_room_from_the_largest() -> None:
    sessions = hogged()
    outcome = fetch_filled(
        sessions,
        member("new"),
        0,
        connection_id="c1",
        partitions=many(33),
        forgotten=(),
        has_acks=False,
    )
    assert isinstance(outcome, Fetching)
    assert outcome.evicted == (Closed(member("hog"), tuple(many(60))),)
    assert member("hog") not in sessions
    assert sessions.partition_count() == 63


def crowded(**limits: int) -> ShareSessions:
    """A connection with three of four sessions, the first one opened later again; and another."""
    sessions = ShareSessions(sessions_max=4, **limits)
    for name in ("a", "b", "c", "a"):
        fetch(sessions, 0, *many(10), key=member(name), connection_id="crowd")
    fetch(sessions, 0, *many(30), key=member("alone"), connection_id="c2")
    return sessions


def test_connection_without_a_session_gets_a_place_from_the_connection_with_most() -> None:
    sessions = crowded()
    outcome = fetch_filled(
        sessions, member("new"), 0, connection_id="c3", partitions=(), forgotten=(), has_acks=False
    )
    assert isinstance(outcome, Fetching)
    assert outcome.evicted == (Closed(member("b"), tuple(many(10))),)
    assert len(sessions) == 4
    assert fetch(sessions, 1, key=member("alone"))[0] == tuple(many(30))


def test_place_and_partitions_may_come_from_two_sessions() -> None:
    sessions = crowded(partitions_max=60)
    outcome = fetch_filled(
        sessions,
        member("new"),
        0,
        connection_id="c3",
        partitions=many(15),
        forgotten=(),
        has_acks=False,
    )
    assert isinstance(outcome, Fetching)
    assert [closed.key for closed in outcome.evicted] == [member("b"), member("alone")]
    assert sessions.partition_count() == 35


def test_connection_with_an_equal_share_gets_no_further_place() -> None:
    sessions = crowded()
    fetch(sessions, 0, key=member("new"), connection_id="c3")
    for name, connection_id in (("d", "crowd"), ("new-2", "c3"), ("alone-2", "c2")):
        with pytest.raises(ShareSessionLimitReached, match=r"there are 4 .* at most 4"):
            fetch(sessions, 0, key=member(name), connection_id=connection_id)
    fetch(sessions, 0, key=member("fourth"), connection_id="c4")
    with pytest.raises(ShareSessionLimitReached):
        fetch(sessions, 0, key=member("fifth"), connection_id="c5")
    assert sessions.release_connection("crowd") == (Closed(member("a"), tuple(many(10))),)


def test_session_that_would_exceed_the_partition_limit_is_unchanged() -> None:
    sessions = hogged()
    with pytest.raises(ShareSessionLimitReached, match="with its 71 partitions"):
        fetch(sessions, 1, *many(71), key=member("hog"))
    assert sessions.partition_count() == 90
    assert fetch(sessions, 1, key=member("hog"))[0] == tuple(many(60))


def test_session_that_grows_within_an_equal_share_gets_its_room_from_the_largest() -> None:
    sessions = hogged()
    fetch(sessions, 0, *many(5), key=member("small"))
    assert len(fetch(sessions, 1, *many(33), key=member("small"))[0]) == 33
    assert member("hog") not in sessions


def test_partitions_of_sessions_that_ended_are_room_again() -> None:
    sessions = hogged()
    sessions.acknowledge(member("hog"), -1)
    sessions.release_connection("c1")
    assert sessions.partition_count() == 0
    fetch(sessions, 0, *many(100), key=member("new"))


def test_opening_in_place_counts_only_the_new_partitions() -> None:
    sessions = hogged()
    fetch(sessions, 0, *many(70), key=member("hog"))
    assert sessions.partition_count() == 100


def test_memory_of_a_session_partition_is_within_its_estimate() -> None:
    """Measured with 7,250 topics of one partition each; no partition has records."""
    sessions = ShareSessions(sessions_max=2)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        partitions = [TopicIdPartition(TopicId(uuid4()), 1_000 + index) for index in range(7_250)]
        outcome = fetch_filled(
            sessions,
            KEY,
            0,
            connection_id="c1",
            partitions=partitions,
            forgotten=(),
            has_acks=False,
        )
        assert isinstance(outcome, Fetching)
        for partition in outcome.partitions.doubtful:
            outcome.partitions.make_ready(partition)
        while outcome.partitions.ready_count:
            outcome.partitions.take_turn()
        del partitions, partition
        each = (tracemalloc.get_traced_memory()[0] - before) / sessions.partition_count()
    finally:
        tracemalloc.stop()
    assert each <= PARTITION_BYTES


def test_session_filled_in_steps_counts_all_its_partitions_from_the_start() -> None:
    sessions = ShareSessions(sessions_max=2, partitions_max=1_000)
    named = {TopicIdPartition(TOPIC, number): None for number in range(10 * STEP_ELEMENTS)}
    outcome = sessions.fetch(
        KEY, 0, connection_id="c1", partitions=named, forgotten=(), has_acks=False
    )
    assert isinstance(outcome, Fetching)
    filling = outcome.partitions.fill(named, (P0,))
    next(filling)
    assert len(outcome.partitions) == STEP_ELEMENTS
    assert sessions.partition_count() == len(named)
    assert sum(1 for _ in filling) == 9
    assert sessions.partition_count() == len(outcome.partitions) == len(named) - 1


@pytest.mark.parametrize("is_over", [True, False])
def test_unfilled_partitions_of_an_interrupted_session_do_not_count(is_over: bool) -> None:
    sessions = ShareSessions(sessions_max=2)
    named = {TopicIdPartition(TOPIC, number): None for number in range(10 * STEP_ELEMENTS)}
    outcome = sessions.fetch(
        KEY, 0, connection_id="c1", partitions=named, forgotten=(), has_acks=False
    )
    assert isinstance(outcome, Fetching)
    filling = outcome.partitions.fill(named, ())
    next(filling)
    if is_over:
        sessions.release_connection("c1")
        assert list(filling) == []
    else:
        filling.close()
    assert sessions.partition_count() == (0 if is_over else STEP_ELEMENTS)
