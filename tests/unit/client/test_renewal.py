"""Which locks are renewed, when, and which are let go."""

from uuid import UUID

import pytest

from sharegroup.client.records import TopicPartition
from sharegroup.client.share.consumer.held_records import HeldRecords
from sharegroup.client.share.consumer.locks import AcquisitionLock, due_locks, say_let_go
from sharegroup.client.share.session.acquired_records import AcquiredRecords
from sharegroup.client.share.session.renewal_schedule import interval_seconds, look_seconds
from sharegroup.ids import TopicId, TopicIdPartition

HELD = HeldRecords(TopicIdPartition(TopicId(UUID(int=1)), 0), TopicPartition("t", 0), explicit=True)


def lock(*, acquired_at: float, deadline: float) -> AcquisitionLock:
    return AcquisitionLock(
        HELD,
        AcquiredRecords.of_range(7, 9, 1),
        acquired_at=acquired_at,
        deadline=deadline,
        record_bytes=1,
    )


def names(now: float, held: AcquisitionLock) -> str:
    due, let_go = due_locks([held], now=now, lock_seconds=30, age_max_seconds=100)
    return "due" if due else "let go" if let_go else "-"


def test_lock_is_due_for_renewal_after_a_third_of_its_duration() -> None:
    held = lock(acquired_at=0, deadline=30)
    assert [names(now, held) for now in (0, 9.9, 10, 20, 29.9, 30)] == [
        "-", "-", "due", "due", "due", "-",
    ]  # fmt: skip


def test_lock_past_its_maximum_age_is_let_go_once() -> None:
    held = lock(acquired_at=0, deadline=120)
    assert [names(now, held) for now in (89, 100, 101, 102)] == ["-", "due", "let go", "-"]


def test_check_interval_allows_several_renewal_attempts() -> None:
    assert look_seconds(30_000) == 1.0
    assert look_seconds(1_200) == pytest.approx(0.1)
    assert look_seconds(1) == 0.02


def test_locks_let_go_are_one_log_line_per_partition(caplog: pytest.LogCaptureFixture) -> None:
    say_let_go("g", [lock(acquired_at=0, deadline=1), lock(acquired_at=0, deadline=1)], 300_000)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(
        "event=renewal.ended group=g topic=t partition=0 offsets=7-8,7-8 renew_age_max_ms=300000"
    )


@pytest.mark.parametrize(
    ("lock_ms", "seconds"), [(None, 1 / 3), (30_000, 10.0), (60, 0.02), (1, 0.02)]
)
def test_all_locks_are_renewed_in_each_third_but_never_all_the_time(
    lock_ms: int | None, seconds: float
) -> None:
    assert interval_seconds(lock_ms) == pytest.approx(seconds)
