"""The fetch session with one broker (KIP-227)."""

from __future__ import annotations

from uuid import UUID

from sharegroup.client.consume.fetch_session import FetchEntry, FetchSession, FetchSessionRequest
from sharegroup.errors import FetchSessionIdNotFound, InvalidFetchSessionEpoch
from sharegroup.ids import TopicId

A, B = TopicId(UUID(int=1)), TopicId(UUID(int=2))


def entry(offset: int) -> FetchEntry:
    return FetchEntry(offset, 4, 3, 1_000)


def named(request: FetchSessionRequest) -> dict[tuple[TopicId, int], int]:
    return {
        (topic.topic_id, partition.partition): partition.fetch_offset
        for topic in request.topics
        for partition in topic.partitions
        if topic.topic_id is not None
    }


def forgotten(request: FetchSessionRequest) -> list[tuple[object, tuple[int, ...]]]:
    return [(topic.topic_id, tuple(topic.partitions)) for topic in request.forgotten]


def test_first_request_names_everything_and_later_ones_what_changed() -> None:
    session = FetchSession()
    first = session.request({(A, 0): entry(5), (A, 1): entry(6), (B, 0): entry(7)})
    assert (first.session_id, first.session_epoch) == (0, 0)
    assert named(first) == {(A, 0): 5, (A, 1): 6, (B, 0): 7}
    session.answered(77)
    second = session.request({(A, 0): entry(9), (A, 1): entry(6), (B, 3): entry(1)})
    assert (second.session_id, second.session_epoch) == (77, 1)
    assert named(second) == {(A, 0): 9, (B, 3): 1}
    assert forgotten(second) == [(B, (0,))]
    session.answered(77)
    assert session.request({(A, 0): entry(9), (A, 1): entry(6), (B, 3): entry(1)}) == (
        77,
        2,
        (),
        (),
    )


def test_broker_without_room_for_a_session_gets_full_requests() -> None:
    session = FetchSession()
    session.request({(A, 0): entry(5)})
    session.answered(0)
    again = session.request({(A, 0): entry(5)})
    assert (again.session_id, again.session_epoch) == (0, 0)
    assert named(again) == {(A, 0): 5}
    assert session.closing_request() is None


def test_refused_epoch_begins_a_new_session_in_place_of_the_old_one() -> None:
    session = FetchSession()
    session.request({(A, 0): entry(5)})
    session.answered(77)
    session.refused(InvalidFetchSessionEpoch.code)
    again = session.request({(A, 0): entry(5)})
    assert (again.session_id, again.session_epoch) == (77, 0)
    assert named(again) == {(A, 0): 5}


def test_unknown_session_begins_anew() -> None:
    session = FetchSession()
    session.request({(A, 0): entry(5)})
    session.answered(77)
    session.refused(FetchSessionIdNotFound.code)
    assert session.request({(A, 0): entry(5)})[:2] == (0, 0)


def test_closing_request_has_the_final_epoch() -> None:
    session = FetchSession()
    session.request({(A, 0): entry(5)})
    session.answered(77)
    assert session.closing_request() == (77, -1, (), ())
