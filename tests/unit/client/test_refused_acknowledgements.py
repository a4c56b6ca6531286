"""What a refusal means, and how refused runs are divided."""

import pytest

from sharegroup.client.share.session.acknowledgements import AckRun
from sharegroup.client.share.session.refused_acknowledgements import (
    Division,
    Refusal,
    divide,
    divide_at_locks,
    divide_at_offset,
    refusal_of,
)
from sharegroup.errors import (
    CoordinatorNotAvailable,
    FencedLeaderEpoch,
    GroupAuthorizationFailed,
    InvalidRecordState,
    InvalidRequest,
    InvalidShareSessionEpoch,
    KafkaError,
    KafkaStorageError,
    NetworkException,
    NoAnswer,
    NotLeaderOrFollower,
    ShareSessionLimitReached,
    ShareSessionNotFound,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)

ACCEPT, REJECT = 1, 3


@pytest.mark.parametrize(
    ("kind", "refusal"),
    [
        (InvalidRecordState, Refusal.LOCK_ENDED),
        (InvalidRequest, Refusal.LOCK_ENDED),
        (NotLeaderOrFollower, Refusal.LOCKS_GONE),
        (FencedLeaderEpoch, Refusal.LOCKS_GONE),
        (UnknownTopicId, Refusal.LOCKS_GONE),
        (UnknownTopicOrPartition, Refusal.LOCKS_GONE),
        (NetworkException, Refusal.SESSION_GONE),
        (NoAnswer, Refusal.SESSION_GONE),
        (ShareSessionNotFound, Refusal.SESSION_GONE),
        (InvalidShareSessionEpoch, Refusal.SESSION_GONE),
        (ShareSessionLimitReached, Refusal.SESSION_GONE),
        (CoordinatorNotAvailable, Refusal.NOT_NOW),
        (KafkaStorageError, Refusal.NOT_NOW),
        (GroupAuthorizationFailed, Refusal.FOR_GOOD),
        (UnsupportedVersion, Refusal.FOR_GOOD),
    ],
)
def test_every_error_has_a_meaning(kind: type[KafkaError], refusal: Refusal) -> None:
    assert refusal_of(kind("")) is refusal


def test_runs_are_divided_at_ranges() -> None:
    runs = [AckRun(0, 8, ACCEPT), AckRun(9, 12, REJECT)]
    assert divide(runs, [(2, 4), (7, 10)]) == Division(
        (AckRun(2, 4, ACCEPT), AckRun(7, 8, ACCEPT), AckRun(9, 10, REJECT)),
        (AckRun(0, 2, ACCEPT), AckRun(4, 7, ACCEPT), AckRun(10, 12, REJECT)),
    )


def test_halves_have_equally_many_offsets_and_cut_one_run_at_most() -> None:
    runs = [AckRun(0, 2, ACCEPT), AckRun(2, 3, REJECT), AckRun(10, 13, ACCEPT)]
    assert divide_at_offset(runs) == Division(tuple(runs[:2]), (runs[2],))
    assert divide_at_offset([AckRun(0, 5, ACCEPT)]) == Division(
        (AckRun(0, 2, ACCEPT),), (AckRun(2, 5, ACCEPT),)
    )
    assert divide_at_offset([AckRun(7, 8, ACCEPT)]) == Division((), (AckRun(7, 8, ACCEPT),))


def test_locks_are_not_cut() -> None:
    runs = [AckRun(1, 6, ACCEPT)]
    locks = [(0, 2), (2, 5), (5, 7), (90, 99)]
    assert divide_at_locks(runs, locks) == Division(
        (AckRun(1, 2, ACCEPT),), (AckRun(2, 6, ACCEPT),)
    )
    assert divide_at_locks(runs, [(0, 9)]) == Division((), (AckRun(1, 6, ACCEPT),))
