"""The partitions of a session: turns, doubts, and who is told what happened."""

from __future__ import annotations

from uuid import UUID

import pytest

from sharegroup.core.sessions.session_partitions import Owner, SessionPartitions, Watches
from sharegroup.ids import GroupId, MemberId, SharePartitionKey, TopicId, TopicIdPartition

TOPIC, OTHER_TOPIC = TopicId(UUID(int=7)), TopicId(UUID(int=8))
P0, P1, P2 = (TopicIdPartition(TOPIC, partition) for partition in range(3))
G, H = GroupId("g"), GroupId("h")
OWNER: Owner = (G, MemberId("m"))


def ready(
    *partitions: TopicIdPartition, owner: Owner = OWNER, watches: Watches | None = None
) -> SessionPartitions:
    """A session of these partitions, each of which may be used."""
    session = SessionPartitions(owner, Watches() if watches is None else watches)
    session.add(partitions)
    for partition in partitions:
        session.make_ready(partition)
    return session


def turns(session: SessionPartitions) -> list[TopicIdPartition]:
    """Take every turn there is, and find nothing."""
    return [session.take_turn() for _ in range(session.ready_count)]


def test_named_partitions_are_doubtful_until_they_can_be_used() -> None:
    session = SessionPartitions(OWNER, Watches())
    session.add([P1, P0, P1])
    assert (session.doubtful, session.ready, session.any_usable) == ((P1, P0), (), False)
    session.make_ready(P0)
    assert (session.doubtful, session.ready, session.any_usable) == ((P1,), (P0,), True)


def test_partition_named_again_keeps_its_place() -> None:
    session = ready(P0, P1)
    session.take_turn()
    session.add([P0, P1, P2])
    assert (session.ready, session.doubtful, len(session)) == ((P1,), (P2,), 3)


def test_partition_with_records_moves_to_the_end_and_one_without_is_quiet() -> None:
    session = ready(P0, P1, P2)
    assert session.take_turn() == P0
    session.make_ready(P0)
    assert session.take_turn() == P1
    assert session.ready == (P2, P0)
    assert tuple(session) == (P2, P0, P1)


def test_quiet_partitions_wake_in_the_order_in_which_they_fell_silent() -> None:
    session = ready(P2, P0, P1)
    turns(session)
    session.wake_one()
    assert session.ready == (P2,)
    session.wake_all()
    assert session.ready == (P2, P0, P1)
    session.wake_one()
    assert session.ready == (P2, P0, P1)


def test_event_during_a_turn_makes_the_partition_ready_again() -> None:
    watches = Watches()
    session = ready(P0, watches=watches)
    assert session.take_turn() == P0
    assert watches.happened(P0) == [OWNER]
    assert session.ready == (P0,)


def test_event_is_reported_once_until_the_next_turn() -> None:
    watches = Watches()
    session = ready(P0, watches=watches)
    turns(session)
    assert (watches.happened(P0), watches.happened(P0)) == ([OWNER], [])
    turns(session)
    assert watches.happened(P0) == [OWNER]


def test_new_records_wake_all_groups_and_released_records_only_their_group() -> None:
    watches, other = Watches(), (H, MemberId("m"))
    for owner in (OWNER, other):
        turns(ready(P0, P1, owner=owner, watches=watches))
    assert watches.happened(SharePartitionKey(H, *P0)) == [other]
    assert watches.happened(P0) == [OWNER]
    assert watches.happened(P1) == [OWNER, other]
    assert watches.happened(SharePartitionKey(G, *P1)) == []
    assert len(watches) == 0


@pytest.mark.parametrize("key", ["P0", OWNER, TopicIdPartition(OTHER_TOPIC, 0)])
def test_event_of_an_unwatched_partition_wakes_no_session(key: object) -> None:
    watches = Watches()
    turns(ready(P0, watches=watches))
    assert watches.happened(key) == []


def test_doubtful_partition_stays_doubtful_and_its_session_is_woken() -> None:
    watches = Watches()
    session = ready(P0, P1, watches=watches)
    session.take_turn()
    session.doubt(P0)
    session.doubt(P1)
    assert (session.doubtful, session.any_usable) == ((P0, P1), False)
    assert (watches.happened(P0), watches.happened(P1)) == ([OWNER], [OWNER])
    assert (session.doubtful, session.ready) == ((P0, P1), ())


def test_too_little_is_watched_and_nothing_is_quiet() -> None:
    watches = Watches()
    session = ready(P0, P1, watches=watches)
    session.quieten(P1)
    session.watch(P0)
    session.watch(P1)  # It is quiet, so it is watched already.
    assert session.ready == (P0,)
    assert (watches.happened(P0), watches.happened(P1)) == ([OWNER], [OWNER])
    assert session.ready == (P0, P1)


@pytest.mark.parametrize("kind", ["doubtful", "ready", "quiet"])
def test_removed_partition_is_not_watched(kind: str) -> None:
    watches = Watches()
    session = ready(P0, TopicIdPartition(OTHER_TOPIC, 1), watches=watches)
    if kind != "ready":
        session.take_turn()
    if kind == "doubtful":
        session.doubt(P0)
    session.remove(P0)
    session.remove(P0)
    assert tuple(session) == (TopicIdPartition(OTHER_TOPIC, 1),)
    assert list(session.topic_ids) == [OTHER_TOPIC]
    assert (P0 in session, len(watches)) == (False, 0)


def test_removed_partition_cannot_become_ready() -> None:
    session = ready(P0)
    session.remove(P0)
    session.make_ready(P0)
    assert len(session) == 0


def test_ended_session_watches_nothing_and_its_successor_is_woken() -> None:
    watches = Watches()
    before = ready(P0, P1, watches=watches)
    turns(before)
    before.end()
    assert (before.is_over, tuple(before), len(watches)) == (True, (P0, P1), 0)
    after = ready(P0, watches=watches)
    turns(after)
    watches.remove(P0, before)
    assert watches.happened(P0) == [OWNER]
    assert (before.ready, after.ready) == ((), (P0,))


def test_session_contains_its_partitions_and_share_partitions_of_its_group() -> None:
    session = ready(P0, P1)
    session.take_turn()
    session.add([P2])
    assert all(partition in session for partition in (P0, P1, P2))
    assert TopicIdPartition(OTHER_TOPIC, 0) not in session
    assert SharePartitionKey(G, *P0) in session
    assert SharePartitionKey(H, *P0) not in session
    assert "P0" not in session
