"""Records that failed for good, in one share partition: who gets them, what is written of them."""

from __future__ import annotations

import pytest

from sharegroup.core.delivery.delivery import (
    AckBatch,
    AcquireRequest,
    DeadLetterRange,
    Delta,
    LogBatches,
    Reason,
    RecordState,
    SharePartitionLimits,
    StateBatch,
)
from sharegroup.core.delivery.share_partition import SharePartition
from sharegroup.errors import InvalidRecordState
from sharegroup.ids import MemberId

A, B = MemberId("a"), MemberId("b")
GAP, ACCEPT, RELEASE, REJECT = range(4)
AVAILABLE, ACKNOWLEDGED = RecordState.AVAILABLE, RecordState.ACKNOWLEDGED
ARCHIVING, ARCHIVED = RecordState.ARCHIVING, RecordState.ARCHIVED
ON = SharePartitionLimits(lock_ms=100, delivery_count_max=2, in_flight_max=10, dead_letters=True)
OFF = SharePartitionLimits(lock_ms=100, delivery_count_max=2, in_flight_max=10)


def taken(partition: SharePartition, end: int, member_id: MemberId = A) -> SharePartition:
    """The member locks what is available below ``end``; each record is a log batch."""
    position = partition.next_fetch_offset()
    firsts = list(range(position, end))
    partition.acquire(
        member_id,
        LogBatches(position, firsts, [first + 1 for first in firsts]),
        request=AcquireRequest(len(firsts), 500),
        limits=ON,
        now_ms=0,
    )
    partition.check()
    return partition


def settle(
    partition: SharePartition, *acks: tuple[int, int, int], limits: SharePartitionLimits = ON
) -> Delta | None:
    batches = [AckBatch(first, end, (kind,)) for first, end, kind in acks]
    delta = partition.acknowledge(A, batches, limits=limits, now_ms=0)
    partition.check()
    return delta


def letters(
    partition: SharePartition, *, limits: SharePartitionLimits = ON, runs: int = 9
) -> list[DeadLetterRange]:
    return partition.dead_letters(limits=limits, runs_max=runs)


def rejected(end: int) -> SharePartition:
    partition = taken(SharePartition(0), end)
    settle(partition, (0, end, REJECT))
    return partition


def test_rejected_record_waits_and_keeps_the_start_offset_where_it_is() -> None:
    partition = taken(SharePartition(0), 3)
    assert settle(partition, (0, 1, REJECT), (1, 3, ACCEPT)) == (
        Delta(
            0,
            2,
            (
                StateBatch(0, 1, ARCHIVING, 1, reason=Reason.REJECTED),
                StateBatch(1, 3, ACKNOWLEDGED, 1),
            ),
        )
    )
    assert letters(partition) == [DeadLetterRange(0, 1, 1, Reason.REJECTED)]


def test_archiving_records_can_be_neither_acquired_nor_acknowledged() -> None:
    partition = rejected(2)
    assert partition.next_fetch_offset() == 2
    taken(partition, 5, B)
    with pytest.raises(InvalidRecordState, match=r"0 to 1 .*: they are ARCHIVING"):
        settle(partition, (0, 2, ACCEPT))
    assert partition.release_member(A, limits=ON) is None
    assert partition.next_expiry_ms() == 100


def test_record_is_copied_after_its_last_delivery_for_every_cause() -> None:
    partition = taken(SharePartition(0), 3)
    settle(partition, (0, 3, RELEASE))
    for _ in range(3):  # One by one: the last delivery of a record is of that record alone.
        taken(partition, 3)
    settle(partition, (0, 1, RELEASE))
    assert letters(partition) == [DeadLetterRange(0, 1, 2, Reason.EXHAUSTED)]
    partition.expire(limits=ON, now_ms=100)
    assert letters(partition) == [DeadLetterRange(0, 3, 2, Reason.EXHAUSTED)]
    again = taken(SharePartition(0), 1)
    settle(again, (0, 1, RELEASE))
    taken(again, 1)
    again.release_member(A, limits=ON)
    assert letters(again) == [DeadLetterRange(0, 1, 2, Reason.EXHAUSTED)]


def test_dead_letter_of_an_unreadable_record_has_the_reason_unreadable() -> None:
    partition = taken(SharePartition(0), 1)
    assert partition.release_unreadable(A, [(0, 1)], limits=ON) == (
        Delta(0, 0, (StateBatch(0, 1, AVAILABLE, 1),))
    )
    taken(partition, 1)
    assert partition.release_unreadable(B, [(0, 1)], limits=ON) is None
    partition.release_unreadable(A, [(0, 1)], limits=ON)
    partition.check()
    assert letters(partition) == [DeadLetterRange(0, 1, 2, Reason.UNREADABLE)]


def test_gaps_and_compacted_records_are_no_dead_letters() -> None:
    partition = taken(SharePartition(0), 2)
    settle(partition, (0, 1, GAP), (1, 2, RELEASE))
    partition.acquire(A, LogBatches(1, [2], [3]), request=AcquireRequest(1, 1), limits=ON, now_ms=0)
    partition.check()
    assert letters(partition) == []
    assert partition.start_offset == 2


def test_rejected_record_is_archived_immediately_without_a_dead_letter_queue() -> None:
    partition = taken(SharePartition(0), 2)
    assert settle(partition, (0, 2, REJECT), limits=OFF) == Delta(2, 0)


def test_archived_record_lets_the_start_offset_pass() -> None:
    partition = rejected(4)
    assert partition.archived([(1, 3)]) == Delta(0, 2, (StateBatch(1, 3, ARCHIVED, 1),))
    partition.check()
    assert letters(partition) == [
        DeadLetterRange(0, 1, 1, Reason.REJECTED),
        DeadLetterRange(3, 4, 1, Reason.REJECTED),
    ]
    assert partition.archived([(0, 1), (3, 4)]) == Delta(4, 0)


def test_archiving_twice_changes_nothing_the_second_time() -> None:
    partition = rejected(3)
    partition.archived([(1, 2)])
    assert partition.archived([(1, 2)]) is None
    assert partition.archived([(0, 0)]) is None
    partition.check()


def test_archived_changes_only_archiving_records() -> None:
    partition = taken(SharePartition(0), 4)
    settle(partition, (1, 2, REJECT), (2, 3, ACCEPT), (3, 4, RELEASE))
    before = [run for run in partition.runs() if run.first != 1]
    partition.archived([(0, 4)])
    partition.check()
    assert [run for run in partition.runs() if run.first not in (1, 2)] == [
        run for run in before if run.first != 2
    ]
    assert letters(partition) == []


def test_dead_letters_below_the_log_start_are_dropped() -> None:
    partition = rejected(4)
    assert partition.move_log_start(2) == Delta(2, 0)
    partition.check()
    assert letters(partition) == [DeadLetterRange(2, 4, 1, Reason.REJECTED)]
    assert partition.archived([(0, 3)]) == Delta(3, 0)


def test_archiving_records_count_as_runs_but_not_as_in_flight() -> None:
    partition = rejected(10)
    assert partition.can_acquire(ON)
    assert partition.snapshot().archiving_count == 10
    assert partition.is_full(SharePartitionLimits(runs_max=1))


@pytest.mark.parametrize("reason", Reason)
def test_reason_survives_a_restart(reason: Reason) -> None:
    partition = SharePartition.restore(
        0, [StateBatch(0, 2, ARCHIVING, 1, reason=reason)], log_end=9
    )
    assert letters(partition) == [DeadLetterRange(0, 2, 1, reason)]
    assert partition.checkpoint().batches == (StateBatch(0, 2, ARCHIVING, 1, reason=reason),)


def test_reason_of_a_later_release_counts_as_unknown() -> None:
    partition = SharePartition.restore(0, [StateBatch(0, 2, ARCHIVING, 2, reason=9)], log_end=9)
    assert letters(partition) == [DeadLetterRange(0, 2, 2, Reason.EXHAUSTED)]


def test_restart_from_kafkas_state_derives_the_reason_from_the_count() -> None:
    batches = [StateBatch(0, 2, ARCHIVING, 1), StateBatch(3, 4, ARCHIVING, 2)]
    partition = SharePartition.restore(0, batches, log_end=10)
    partition.check()
    assert letters(partition) == letters(partition, limits=OFF)
    assert letters(partition) == [
        DeadLetterRange(0, 2, 1, Reason.REJECTED),
        DeadLetterRange(3, 4, 2, Reason.EXHAUSTED),
    ]
    assert partition.next_fetch_offset() == 2


def test_checkpoint_contains_archiving_records() -> None:
    partition = rejected(2)
    assert partition.checkpoint() == Delta(
        0, 0, (StateBatch(0, 2, ARCHIVING, 1, reason=Reason.REJECTED),)
    )


def test_dead_letters_are_returned_in_portions() -> None:
    partition = taken(SharePartition(0), 6)
    settle(partition, *((n, n + 1, ACCEPT if n % 2 else REJECT) for n in range(6)))
    assert [letter.first for letter in letters(partition, runs=4)] == [0, 2]
    partition.archived([(0, 1), (2, 3)])
    assert [letter.first for letter in letters(partition, runs=1)] == [4]
