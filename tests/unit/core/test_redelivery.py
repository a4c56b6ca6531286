"""Records that are released with a delay: the delay's length, and what a share partition does."""

from __future__ import annotations

import pytest

from sharegroup.core.delivery.delivery import (
    AckBatch,
    AcquireRequest,
    Delta,
    LogBatches,
    RecordState,
    SharePartitionLimits,
    StateBatch,
    still_due,
)
from sharegroup.core.delivery.redelivery import RedeliveryDelay, due_time
from sharegroup.core.delivery.share_partition import SharePartition
from sharegroup.errors import InvalidRequest
from sharegroup.ids import MemberId
from sharegroup.protocol_enums import DELAY_MS_MAX

A = MemberId("a")
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
AVAILABLE, DELAYED = RecordState.AVAILABLE, RecordState.DELAYED
PLAIN = SharePartitionLimits(delivery_count_max=5)
DELAY = SharePartitionLimits(delivery_count_max=5, delay=RedeliveryDelay(1_000, 3_000))


def acquired(
    partition: SharePartition, end: int, *, now_ms: int = 0, limits: SharePartitionLimits = DELAY
) -> list[int]:
    """The offsets that a member gets, of a log of one batch for each record."""
    position = partition.next_fetch_offset()
    firsts = list(range(position, end))
    acquisition = partition.acquire(
        A,
        LogBatches(position, firsts, [first + 1 for first in firsts]),
        request=AcquireRequest(1_000, 1),
        limits=limits,
        now_ms=now_ms,
    )
    partition.check()
    return [offset for first, after, _ in acquisition.ranges for offset in range(first, after)]


def release(
    partition: SharePartition,
    first: int,
    end: int,
    *,
    now_ms: int = 0,
    delay_ms: int = -1,
    limits: SharePartitionLimits = DELAY,
) -> Delta | None:
    ack = AckBatch(first, end, (RELEASE,), delay_ms)
    delta = partition.acknowledge(A, [ack], limits=limits, now_ms=now_ms)
    partition.check()
    return delta


@pytest.mark.parametrize(
    ("first_ms", "max_ms", "delays"),
    [
        (1_000, 10_000, [1_000, 2_000, 4_000, 8_000, 10_000]),
        (1_000, 0, [1_000] * 5),
        (5_000, 1_000, [5_000] * 5),
        (1, DELAY_MS_MAX, [1, 2, 4, 8, 16]),
    ],
)
def test_delay_doubles_with_each_delivery_up_to_its_maximum(
    first_ms: int, max_ms: int, delays: list[int]
) -> None:
    delay = RedeliveryDelay(first_ms, max_ms)
    assert [delay.after(count) for count in range(1, 6)] == delays
    assert delay.after(32_767) == max(first_ms, max_ms)


@pytest.mark.parametrize(
    ("now_ms", "delay_ms", "due_ms"),
    [
        (0, 1, 100),
        (100, 100, 200),
        (101, 100, 300),
        (0, 1_599, 1_600),
        (0, 3_200, 3_200),
        (1, 3_200, 3_400),
        (1, 3_600_000, 3_825_000),
    ],
)
def test_delay_ends_at_a_round_time_at_most_a_sixteenth_of_it_later(
    now_ms: int, delay_ms: int, due_ms: int
) -> None:
    assert due_time(now_ms, delay_ms) == due_ms


def test_released_record_is_stored_as_available_with_its_due_time() -> None:
    partition = SharePartition(0)
    acquired(partition, 3)
    assert release(partition, 0, 2, now_ms=10) == Delta(
        0, 0, (StateBatch(0, 2, AVAILABLE, 1, due_ms=1_100),)
    )
    counts = partition.snapshot()
    assert (counts.available_count, counts.delayed_count, counts.acquired_count) == (0, 2, 1)
    assert partition.next_expiry_ms() == 1_100


def test_delayed_record_is_delivered_again_when_its_delay_is_over() -> None:
    partition = SharePartition(0)
    acquired(partition, 2)
    release(partition, 0, 2)
    assert acquired(partition, 2, now_ms=999) == []
    assert not partition.end_delays(now_ms=999)
    assert partition.end_delays(now_ms=1_000)
    assert not partition.end_delays(now_ms=1_000)
    assert acquired(partition, 2, now_ms=1_000) == [0, 1]
    release(partition, 0, 1, now_ms=1_000)
    assert partition.next_expiry_ms() == 3_000, "twice the delay, after the second delivery"


def test_records_released_one_after_the_other_stay_one_run() -> None:
    """16 due times at most within a delay, plus the one of its end."""
    limits = SharePartitionLimits(lock_ms=100_000, delay=RedeliveryDelay(60_000, 0))
    partition = SharePartition(0)
    acquired(partition, 600, limits=limits)
    for offset in range(600):
        release(partition, offset, offset + 1, now_ms=offset * 100, limits=limits)
    assert partition.snapshot().run_count <= 17
    assert partition.snapshot().delayed_count == 600


def test_member_names_another_delay_or_none() -> None:
    partition = SharePartition(0)
    acquired(partition, 3)
    release(partition, 0, 1, delay_ms=0)
    release(partition, 1, 2, delay_ms=30_000)
    release(partition, 2, 3, delay_ms=200, limits=PLAIN)
    due = [run.value.due_ms for run in partition.runs()]
    assert due == [0, 30_000, 200]
    assert partition.next_fetch_offset() == 0


@pytest.mark.parametrize("delay_ms", [-2, DELAY_MS_MAX + 1])
def test_delay_out_of_range_is_refused_as_a_whole(delay_ms: int) -> None:
    partition = SharePartition(0)
    acquired(partition, 2)
    with pytest.raises(InvalidRequest, match=f"delay of {delay_ms} ms; expected 0 to 86400000"):
        release(partition, 0, 1, delay_ms=delay_ms)
    assert partition.snapshot().acquired_count == 2


def test_lost_locks_sessions_and_unreadable_records_have_no_delay() -> None:
    partition = SharePartition(0)
    acquired(partition, 3)
    assert partition.release_unreadable(A, [(2, 3)], limits=DELAY) == Delta(
        0, 0, (StateBatch(2, 3, AVAILABLE, 1),)
    )
    assert partition.release_member(A, limits=DELAY) == Delta(
        0, 0, (StateBatch(0, 2, AVAILABLE, 1),)
    )
    assert acquired(partition, 2) == [0, 1]
    partition.expire(limits=DELAY, now_ms=30_000)
    assert partition.snapshot().available_count == 3


def test_only_a_release_below_the_limit_has_a_delay() -> None:
    limits = SharePartitionLimits(delivery_count_max=1, delay=RedeliveryDelay(1_000, 0))
    partition = SharePartition(0)
    acquired(partition, 4, limits=limits)
    acks = [AckBatch(0, 4, (RELEASE, ACCEPT, REJECT, GAP), 5_000)]
    partition.acknowledge(A, acks, limits=limits, now_ms=0)
    assert partition.start_offset == 4


def test_delayed_records_need_no_room_and_are_limited_by_themselves() -> None:
    limits = SharePartitionLimits(in_flight_max=2, delayed_max=3, delay=RedeliveryDelay(1_000, 0))
    partition = SharePartition(0)
    for first in (0, 2):
        assert acquired(partition, 9, limits=limits) == [first, first + 1]
        release(partition, first, first + 2, limits=limits)
    assert partition.is_full(limits)
    assert not partition.can_acquire(limits)
    assert acquired(partition, 9, limits=limits) == []
    partition.end_delays(now_ms=1_000)
    assert acquired(partition, 9, limits=limits) == [0, 1]


def test_restart_keeps_the_delay() -> None:
    partition = SharePartition(0)
    acquired(partition, 2)
    release(partition, 0, 2)
    restored = SharePartition.restore(*partition.checkpoint()[::2], log_end=9)
    restored.check()
    assert restored.snapshot() == partition.snapshot()
    assert restored.next_fetch_offset() == 2
    assert restored.end_delays(now_ms=1_000)
    assert restored.next_fetch_offset() == 0


def test_log_start_passes_delayed_records() -> None:
    partition = SharePartition(0)
    acquired(partition, 4)
    release(partition, 0, 4)
    partition.move_log_start(3)
    partition.check()
    assert partition.next_expiry_ms() == 1_000
    partition.move_log_start(4)
    assert partition.next_expiry_ms() is None
    assert not partition.end_delays(now_ms=1_000)


def test_many_delays_end_in_portions() -> None:
    partition = SharePartition(0)
    acquired(partition, 10)
    for offset in range(0, 10, 2):
        release(partition, offset, offset + 1)
    assert partition.end_delays(now_ms=1_000, runs_max=3)
    assert partition.snapshot().available_count == 3
    assert partition.next_expiry_ms() == 1_000
    assert partition.end_delays(now_ms=1_000, runs_max=3)
    assert partition.snapshot().available_count == 5


def test_passed_due_times_are_left_out() -> None:
    batches = [StateBatch(n, n + 1, AVAILABLE, 1, due_ms=n * 100) for n in range(3)]
    assert [batch.due_ms for batch in still_due(batches, 100)] == [0, 0, 200]
