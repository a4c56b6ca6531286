"""What a share partition of 200,000 runs costs, in calls and not in time; and expiry in slices.

Costs are counted as calls of Python and C functions (`sys.setprofile`), which are the same on
every machine.  A binary search counts as one call whatever its length, so equal counts mean: no
step of ours per run.  Moving what lies behind a change in memory is one call, too; at 200,000
runs it takes about 40 microseconds (see `offset_runs`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from sharegroup.core.delivery.delivery import (
    AckBatch,
    Acquired,
    AcquireRequest,
    LogBatches,
    RecordState,
    SharePartitionLimits,
    StateBatch,
)
from sharegroup.core.delivery.offset_runs import OffsetRuns
from sharegroup.core.delivery.share_partition import SharePartition
from sharegroup.errors import InvalidRecordState
from sharegroup.ids import MemberId

A, B = MemberId("a"), MemberId("b")
ACCEPT, RELEASE = 1, 2
LIMITS = SharePartitionLimits(
    lock_ms=100, delivery_count_max=5, in_flight_max=1_000_000, runs_max=1_000_000
)
FEW, MANY = 2_000, 200_000


def every_other_settled(run_count: int) -> SharePartition:
    """Offsets that wait and offsets that are settled, in turn."""
    settled = [
        StateBatch(offset, offset + 1, RecordState.ACKNOWLEDGED, 1)
        for offset in range(1, run_count, 2)
    ]
    partition = SharePartition.restore(0, settled, log_end=run_count)
    assert partition.snapshot().run_count == run_count
    return partition


def acquire(
    partition: SharePartition, member_id: MemberId, *, now_ms: int = 0, records_max: int = 1
) -> tuple[Acquired, ...]:
    """From a read of up to a hundred batches of one record each."""
    position = partition.next_fetch_offset()
    firsts = list(range(position, position + 100))
    log = LogBatches(position, firsts, [first + 1 for first in firsts])
    wanted = AcquireRequest(records_max, 1)
    return partition.acquire(member_id, log, request=wanted, limits=LIMITS, now_ms=now_ms).ranges


def calls(operation: Callable[[], object]) -> int:
    """How many functions are called meanwhile."""
    counted = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        operation()
    finally:
        sys.setprofile(None)
    return counted


def cost_of_a_life(run_count: int) -> dict[str, int]:
    """Of one acquire, accept, release, look at the locks and expiry, in the middle of all runs."""
    partition = every_other_settled(run_count)
    middle = run_count // 2
    while acquire(partition, A, records_max=100)[-1].first < middle:
        pass
    [[offset, _, _]] = acquire(partition, B, now_ms=50)
    [[second, _, _]] = acquire(partition, B, now_ms=60)
    accepted, released = (
        [AckBatch(offset, offset + 1, (ACCEPT,))],
        [AckBatch(second, second + 1, (RELEASE,))],
    )
    return {
        "accept": calls(
            lambda: partition.acknowledge(B, accepted, limits=LIMITS, now_ms=70),
        ),
        "release": calls(
            lambda: partition.acknowledge(B, released, limits=LIMITS, now_ms=70),
        ),
        "acquire": calls(lambda: acquire(partition, B, now_ms=80)),
        "expire": calls(lambda: partition.expire(limits=LIMITS, now_ms=100, runs_max=10)),
        "next expiry": calls(partition.next_expiry_ms),
        "next fetch offset": calls(partition.next_fetch_offset),
    }


def test_cost_of_operations_is_the_same_at_two_hundred_thousand_runs() -> None:
    cost_of_a_life(FEW)  # Deliveries that are made once and kept are made now.
    few, many = cost_of_a_life(FEW), cost_of_a_life(MANY)
    assert many == few
    assert max(few.values()) < 500, few


def test_expiry_in_slices_continues_where_it_stopped() -> None:
    """Six records have separate locks. Each slice expires two runs, earliest deadlines first."""
    partition = SharePartition(0)
    for now_ms in (30, 0, 20, 10, 50, 40):
        acquire(partition, MemberId(f"at-{now_ms}"), now_ms=now_ms)

    def waiting() -> list[tuple[int, int]]:
        partition.check()
        return [(run.first, run.end) for run in partition.runs() if not run.value.member_id]

    slices = []
    for _ in range(3):
        partition.expire(limits=LIMITS, now_ms=150, runs_max=2)
        slices.append((waiting(), partition.next_expiry_ms()))
    assert slices == [([(1, 2), (3, 4)], 120), ([(0, 4)], 140), ([(0, 6)], None)]


def test_one_lock_over_many_runs_expires_in_slices() -> None:
    """One lock of ten records of which every other was accepted: ten runs under one entry."""
    partition = SharePartition(0)
    acquire(partition, A, records_max=10)
    odd = [AckBatch(offset, offset + 1, (ACCEPT,)) for offset in range(1, 10, 2)]
    partition.acknowledge(A, odd, limits=LIMITS, now_ms=1)
    left = []
    while partition.next_expiry_ms() is not None:
        delta = partition.expire(limits=LIMITS, now_ms=100, runs_max=4)
        assert delta is not None
        partition.check()
        left.append(partition.snapshot().acquired_count)
    assert left == [3, 1, 0]


def test_ended_lock_is_invalid_before_its_expiry_is_processed() -> None:
    partition = SharePartition(0)
    for offset in range(4):
        assert acquire(partition, A) == (Acquired(offset, offset + 1, 1),)
    partition.expire(limits=LIMITS, now_ms=100, runs_max=1)
    held = [run for run in partition.runs() if run.value.member_id]
    assert held
    for first, end, _ in held:
        with pytest.raises(InvalidRecordState, match="its lock ended at 100 ms"):
            partition.acknowledge(A, [AckBatch(first, end, (ACCEPT,))], limits=LIMITS, now_ms=100)


def test_renewed_lock_is_passed_over_by_a_slice() -> None:
    partition = SharePartition(0)
    acquire(partition, A)
    acquire(partition, B)
    partition.acknowledge(A, [AckBatch(0, 1, (4,))], limits=LIMITS, now_ms=90)
    partition.expire(limits=LIMITS, now_ms=100, runs_max=1)  # Looks where the old lock was.
    partition.expire(limits=LIMITS, now_ms=100, runs_max=1)
    partition.check()
    assert [run.value.member_id for run in partition.runs()] == [A, ""]
    assert partition.next_expiry_ms() == 190


@pytest.mark.parametrize(
    ("first", "end", "runs_max", "expected"),
    [
        (0, 20, 9, (20, 3)),
        (0, 20, 3, (20, 3)),
        (0, 20, 2, (8, 2)),
        (3, 20, 1, (5, 1)),
        (5, 8, 1, (8, 1)),
        (6, 7, 1, (7, 1)),
        (-5, 2, 4, (2, 1)),
        (20, 30, 4, (20, 0)),
    ],
)
def test_reach_counts_runs_up_to_the_limit(
    first: int, end: int, runs_max: int, expected: tuple[int, int]
) -> None:
    runs: OffsetRuns[str] = OffsetRuns(0)
    for border, value in ((5, "a"), (8, "b"), (20, "c")):
        runs.append(border, value)
    assert runs.reach(first, end, runs_max=runs_max) == expected


def test_batches_that_hold_nothing_for_members_are_passed_at_the_end_too() -> None:
    """Three records and the marker of their transaction: nothing is left to wait for."""
    partition = SharePartition(0)
    log = LogBatches(0, [0], [3], looked_until=4)
    taken = partition.acquire(A, log, request=AcquireRequest(10, 10), limits=LIMITS, now_ms=0)
    assert taken.ranges == (Acquired(0, 3, 1),)
    assert taken.delta is not None
    assert taken.delta[1:] == (1, (StateBatch(3, 4, RecordState.ARCHIVED, 0),))
    partition.check()
    assert partition.next_fetch_offset() == 4
    delta = partition.acknowledge(A, [AckBatch(0, 3, (ACCEPT,))], limits=LIMITS, now_ms=0)
    assert delta is not None
    assert (partition.start_offset, delta.start_offset) == (4, 4)


def test_read_without_records_advances_the_offsets() -> None:
    partition = SharePartition(0)
    log = LogBatches(0, [], [], looked_until=7)
    taken = partition.acquire(A, log, request=AcquireRequest(10, 10), limits=LIMITS, now_ms=0)
    assert (taken.ranges, partition.start_offset, partition.end_offset) == ((), 7, 7)
    assert taken.delta == (7, 0, ())


def test_end_is_not_passed_while_records_before_it_are_left() -> None:
    partition = SharePartition(0)
    log = LogBatches(0, [0, 5], [3, 8], looked_until=9)
    wanted = AcquireRequest(1, 10)
    taken = partition.acquire(A, log, request=wanted, limits=LIMITS, now_ms=0)
    assert taken == ((Acquired(0, 3, 1),), None)
    assert partition.end_offset == 3


def test_released_records_that_the_read_lacks_are_archived() -> None:
    """The group now reads only committed records, and a released record was aborted."""
    partition = SharePartition(0)
    acquire(partition, A, records_max=2)
    partition.acknowledge(A, [AckBatch(0, 2, (RELEASE,))], limits=LIMITS, now_ms=1)
    log = LogBatches(0, [1], [2], looked_until=4)
    taken = partition.acquire(B, log, request=AcquireRequest(10, 10), limits=LIMITS, now_ms=2)
    assert taken.ranges == (Acquired(1, 2, 2),)
    assert (partition.start_offset, partition.end_offset) == (1, 4)
    partition.check()
