"""What of refused acknowledgements is sent again, and what is reported."""

import asyncio
from uuid import UUID

import pytest

from sharegroup.client.records import TopicPartition
from sharegroup.client.share.consumer.held_records import HeldRecords
from sharegroup.client.share.consumer.locks import AcquisitionLock
from sharegroup.client.share.consumer.settled import Settled, after_refusal
from sharegroup.client.share.session.acknowledgements import AckRun
from sharegroup.client.share.session.acquired_records import AcquiredRecords
from sharegroup.errors import (
    CoordinatorNotAvailable,
    FencedLeaderEpoch,
    GroupAuthorizationFailed,
    InvalidRecordState,
    InvalidRequest,
    KafkaError,
    KafkaStorageError,
    NetworkException,
    NotLeaderOrFollower,
    ShareSessionNotFound,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from sharegroup.ids import TopicId, TopicIdPartition

HELD = HeldRecords(TopicIdPartition(TopicId(UUID(int=1)), 0), TopicPartition("t", 0), explicit=True)
NOW = 10.0
Runs = list[tuple[int, int, int]]


def unit(*runs: tuple[int, int, int], locks: list[tuple[int, int, float]]) -> Settled:
    """Runs (first, end, type) under locks (first, end, deadline)."""
    made = [
        AcquisitionLock(
            HELD,
            AcquiredRecords.of_range(first, end, 1),
            acquired_at=0,
            deadline=deadline,
            record_bytes=1,
        )
        for first, end, deadline in locks
    ]
    return Settled(HELD, tuple(AckRun(*run) for run in runs), made)


def after(sent: Settled, error: KafkaError) -> tuple[list[Runs], Runs | None]:
    again, over = after_refusal(sent, error, NOW)
    return [[tuple(run) for run in batch.runs] for batch in again], (  # type: ignore[misc]
        None if over is None else [tuple(run) for run in over.runs]  # type: ignore[misc]
    )


@pytest.mark.parametrize("error", [CoordinatorNotAvailable(""), KafkaStorageError("")])
def test_transient_error_is_retried_unchanged_while_the_locks_last(error: KafkaError) -> None:
    sent = unit((0, 3, 1), (5, 6, 2), locks=[(0, 10, 30.0)])
    assert after(sent, error) == ([[(0, 3, 1), (5, 6, 2)]], None)
    ended = unit((0, 3, 1), locks=[(0, 10, 9.0)])
    assert after(ended, error) == ([], [(0, 3, 1)])


@pytest.mark.parametrize(
    "kind",
    [
        NotLeaderOrFollower,
        FencedLeaderEpoch,
        UnknownTopicId,
        UnknownTopicOrPartition,
        NetworkException,
        ShareSessionNotFound,
        GroupAuthorizationFailed,
    ],
)
def test_acknowledgement_without_locks_or_in_doubt_is_reported(kind: type[KafkaError]) -> None:
    assert after(unit((0, 3, 1), locks=[(0, 10, 30.0)]), kind("")) == ([], [(0, 3, 1)])


@pytest.mark.parametrize("kind", [InvalidRecordState, InvalidRequest])
def test_offsets_with_ended_locks_are_reported_and_the_rest_is_retried(
    kind: type[KafkaError],
) -> None:
    sent = unit((0, 8, 1), (9, 12, 3), locks=[(0, 4, 30.0), (4, 10, 9.0), (10, 12, 30.0)])
    assert after(sent, kind("")) == ([[(0, 4, 1), (10, 12, 3)]], [(4, 8, 1), (9, 10, 3)])


def test_refused_request_with_valid_locks_is_divided_in_halves() -> None:
    locks = [(0, 2, 30.0), (2, 4, 30.0), (4, 6, 30.0), (90, 99, 30.0)]
    sent = unit((0, 6, 1), locks=locks)
    assert after(sent, InvalidRecordState("")) == ([[(0, 2, 1)], [(2, 6, 1)]], None)


def test_refused_request_with_one_lock_is_reported() -> None:
    sent = unit((0, 6, 1), locks=[(0, 6, 30.0), (90, 99, 30.0)])
    assert after(sent, InvalidRecordState("")) == ([], [(0, 6, 1)])


@pytest.mark.parametrize(
    "error",
    [
        CoordinatorNotAvailable("away"),
        InvalidRecordState("share.renew.acknowledge.enable is false for this group"),
        InvalidRecordState("Renewal of locks is not enabled for the group g"),
        UnsupportedVersion("the broker has no renewal"),
    ],
)
def test_refused_renewal_is_reported_undivided(error: KafkaError) -> None:
    """Either the next check of the locks renews again, or the group allows no renewal."""
    sent = unit((0, 4, 4), locks=[(0, 2, 30.0), (2, 4, 30.0)])
    sent.renewals = ((sent.locks[0], None), (sent.locks[1], None))
    assert after(sent, error) == ([], [(0, 4, 4)])


def test_a_lock_that_ended_does_not_end_the_renewal_of_others() -> None:
    sent = unit((0, 6, 4), locks=[(0, 2, 30.0), (2, 4, 9.0), (4, 6, 30.0)])
    sent.renewals = ((sent.locks[0], None), (sent.locks[1], None), (sent.locks[2], 4))
    (again,), ended = after_refusal(sent, InvalidRecordState(""), NOW)
    assert again.runs == (AckRun(0, 2, 4), AckRun(4, 6, 4))
    assert again.renewals == ((sent.locks[0], None), (sent.locks[2], 4))
    assert ended is not None
    assert (ended.runs, ended.renewals) == ((AckRun(2, 4, 4),), ((sent.locks[1], None),))


def test_refused_renewal_is_divided_in_halves_until_one_lock_is_left() -> None:
    sent = unit((0, 4, 4), locks=[(0, 2, 30.0), (2, 4, 30.0)])
    sent.renewals = ((sent.locks[0], None), (sent.locks[1], 2))
    (low, high), ended = after_refusal(sent, InvalidRecordState(""), NOW)
    assert (low.runs, low.renewals) == ((AckRun(0, 2, 4),), ((sent.locks[0], None),))
    assert (high.runs, high.renewals) == ((AckRun(2, 4, 4),), ((sent.locks[1], 2),))
    assert ended is None
    assert after(low, InvalidRecordState("")) == ([], [(0, 2, 4)])


def test_a_renewal_that_is_divided_moves_no_deadline() -> None:
    """Of the older lock, 0 to 6, offsets 2 to 4 were delivered again and have a newer lock."""
    sent = unit((0, 6, 4), locks=[(0, 6, 30.0), (2, 4, 30.0)])
    sent.renewals = ((sent.locks[0], None), (sent.locks[1], None))
    (low, high), _ = after_refusal(sent, InvalidRecordState(""), NOW)
    assert (low.runs, low.renewals) == ((AckRun(0, 2, 4),), ())
    assert (high.runs, high.renewals) == ((AckRun(2, 6, 4),), ((sent.locks[1], None),))
    assert low.is_renewal


def test_renewed_lock_lasts_until_its_latest_deadline() -> None:
    sent = unit((0, 2, 1), locks=[(0, 2, 9.0)])
    sent.locks[0].renewed(1, 30.0)
    assert after(sent, CoordinatorNotAvailable("")) == ([[(0, 2, 1)]], None)


def test_a_ticket_is_done_when_every_piece_is_reported() -> None:
    async def scenario() -> None:
        sent = unit((0, 4, 1), locks=[(0, 2, 30.0), (2, 4, 30.0)])
        (low, high), _ = after_refusal(sent, InvalidRecordState(""), NOW)
        low.report(None)
        assert not sent.pending.done.is_set()
        high.report(InvalidRecordState("over"))
        assert sent.pending.done.is_set()
        assert [list(result.offsets) for result in sent.pending.results] == [[0, 1], [2, 3]]

    asyncio.run(scenario())


def test_ended_locks_among_many_are_separated_in_linear_time() -> None:
    """Ten thousand runs under as many locks, half of them ended: the time is not their product."""
    count = 10_000
    sent = unit(
        *((2 * n, 2 * n + 1, 1) for n in range(count)),
        locks=[(2 * n, 2 * n + 1, 30.0 if n % 2 else 9.0) for n in range(count)],
    )
    again, over = after_refusal(sent, InvalidRecordState(""), NOW)
    assert over is not None
    assert (len(again[0].runs), len(over.runs)) == (count // 2, count // 2)


def test_later_acknowledgements_are_merged_unless_they_repeat_an_offset() -> None:
    sent = unit((4, 6, 1), locks=[(0, 10, 30.0)])
    assert sent.absorb(unit((0, 2, 2), locks=[(0, 10, 30.0)]))
    assert not sent.absorb(unit((1, 2, 1), locks=[(0, 10, 30.0)]))
    assert sent.runs == (AckRun(0, 2, 2), AckRun(4, 6, 1))
