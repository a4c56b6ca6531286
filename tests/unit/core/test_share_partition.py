"""The life of records in one share partition, told in offsets and milliseconds.

The first section is about what the design sketch got wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from sharegroup.core.delivery.delivery import (
    AckBatch,
    Acquired,
    AcquireRequest,
    Acquisition,
    Delta,
    LogBatches,
    RecordState,
    SharePartitionLimits,
    StateBatch,
)
from sharegroup.core.delivery.share_partition import SharePartition
from sharegroup.errors import InvalidRecordState, InvalidRequest
from sharegroup.ids import MemberId
from sharegroup.protocol_enums import AcquireMode

A, B = MemberId("a"), MemberId("b")
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
AVAILABLE, ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED
ACKNOWLEDGED, ARCHIVED = RecordState.ACKNOWLEDGED, RecordState.ARCHIVED
LIMITS = SharePartitionLimits(lock_ms=100, delivery_count_max=3, in_flight_max=20)


class Shown:
    """A share partition over a log of one-record batches, checked after every call."""

    def __init__(self, partition: SharePartition | None = None, log_end: int = 100) -> None:
        self.partition = partition or SharePartition(0)
        self.log_end = log_end
        self.limits = LIMITS

    def acquire(
        self,
        member_id: MemberId,
        records_max: int,
        now_ms: int = 0,
        log: LogBatches | None = None,
        mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
    ) -> Acquisition:
        position = self.partition.next_fetch_offset()
        firsts = list(range(position, self.log_end))
        acquisition = self.partition.acquire(
            member_id,
            log or LogBatches(position, firsts, [first + 1 for first in firsts]),
            request=AcquireRequest(records_max, 500, mode),
            limits=self.limits,
            now_ms=now_ms,
        )
        self.partition.check()
        return acquisition

    def ranges(self, member_id: MemberId, records_max: int, now_ms: int = 0) -> list[Acquired]:
        acquisition = self.acquire(member_id, records_max, now_ms)
        assert acquisition.delta is None
        return list(acquisition.ranges)

    def ack(
        self, member_id: MemberId, *acks: tuple[int, int, int], now_ms: int = 0
    ) -> Delta | None:
        batches = [AckBatch(first, end, (kind,)) for first, end, kind in acks]
        delta = self.partition.acknowledge(member_id, batches, limits=self.limits, now_ms=now_ms)
        self.partition.check()
        return delta

    def expire(self, now_ms: int) -> Delta | None:
        delta = self.partition.expire(limits=self.limits, now_ms=now_ms)
        self.partition.check()
        return delta

    def picture(self) -> list[tuple[int, int, RecordState, int]]:
        return [
            (run.first, run.end, run.value.state, run.value.delivery_count)
            for run in self.partition.runs()
        ]


@pytest.fixture
def shown() -> Iterator[Shown]:
    shown = Shown()
    yield shown
    shown.partition.check()


# What the sketch got wrong.


def test_one_stuck_record_does_not_stall_its_partition(shown: Shown) -> None:
    """The limit of 20 counts locks: a span of 60 offsets with one lock at its start has room."""
    shown.acquire(A, 1)
    for first in range(1, 61, 10):
        assert shown.ranges(B, 10) == [Acquired(first, first + 10, 1)]
        shown.ack(B, (first, first + 10, ACCEPT))
    assert shown.picture() == [(0, 1, ACQUIRED, 1), (1, 61, ACKNOWLEDGED, 1)]


def test_record_may_appear_once_in_a_request(shown: Shown) -> None:
    shown.acquire(A, 5)
    before = shown.picture()
    with pytest.raises(InvalidRequest, match=r"0 to 2 must not begin before .* 0 to 2 ends"):
        shown.ack(A, (0, 3, ACCEPT), (0, 3, RELEASE))
    with pytest.raises(InvalidRecordState, match="offset 2 is acknowledged twice"):
        shown.ack(A, (0, 3, ACCEPT), (2, 4, RELEASE))
    assert shown.picture() == before


def test_lock_ends_at_its_deadline_whether_swept_or_not(shown: Shown) -> None:
    shown.acquire(A, 2)
    assert shown.ack(A, (0, 1, ACCEPT), now_ms=99) == Delta(1, 0)
    with pytest.raises(InvalidRecordState, match="its lock ended at 100 ms and it is 100 ms"):
        shown.ack(A, (1, 2, ACCEPT), now_ms=100)


def test_full_partition_delivers_released_records_and_no_new_ones(shown: Shown) -> None:
    shown.limits = SharePartitionLimits(lock_ms=100, runs_max=3)
    shown.acquire(A, 5)
    shown.ack(A, (1, 2, RELEASE))
    assert shown.partition.is_full(shown.limits)
    assert shown.partition.can_acquire(shown.limits)
    assert shown.ranges(B, 10) == [Acquired(1, 2, 2)]
    assert not shown.partition.can_acquire(shown.limits)
    assert shown.ranges(B, 10) == []
    shown.ack(A, (0, 1, ACCEPT))
    assert shown.ranges(B, 2) == [Acquired(5, 7, 1)]


# Acquire.


def test_first_delivery_locks_and_writes_nothing(shown: Shown) -> None:
    assert shown.acquire(A, 3) == Acquisition((Acquired(0, 3, 1),), None)
    assert shown.partition.next_fetch_offset() == 3
    assert shown.ranges(B, 2) == [Acquired(3, 5, 1)]


def test_two_members_never_hold_one_record(shown: Shown) -> None:
    shown.acquire(A, 3)
    shown.acquire(B, 3)
    with pytest.raises(InvalidRecordState, match=r"0 to 2 are not .* 'b': member 'a' holds them"):
        shown.ack(B, (0, 6, ACCEPT))


def test_released_record_is_redelivered_first_with_a_higher_count(shown: Shown) -> None:
    shown.acquire(A, 5)
    assert shown.ack(A, (1, 2, RELEASE)) == Delta(0, 0, (StateBatch(1, 2, AVAILABLE, 1),))
    assert shown.partition.next_fetch_offset() == 1
    assert shown.ranges(B, 2) == [Acquired(1, 2, 2), Acquired(5, 6, 1)]


def test_waiting_records_keep_their_room(shown: Shown) -> None:
    """20 in flight: 5 wait, 15 are locked.  The 5 may be locked again, nothing new fits."""
    shown.acquire(A, 20)
    assert not shown.partition.can_acquire(LIMITS)
    shown.ack(A, (0, 5, RELEASE))
    assert shown.partition.can_acquire(LIMITS)
    assert shown.ranges(B, 100) == [Acquired(0, 5, 2)]
    assert shown.ranges(B, 100) == []


def test_log_batch_at_the_lock_limit_is_completed_and_no_other_begun(shown: Shown) -> None:
    log = LogBatches(0, [0, 15, 30], [15, 30, 45])
    assert shown.acquire(A, 100, log=log).ranges == (Acquired(0, 30, 1),)
    assert not shown.partition.can_acquire(LIMITS)
    log = LogBatches(30, [30], [45])
    shown.ack(A, (0, 10, ACCEPT))
    assert shown.acquire(B, 100, log=log) == Acquisition()
    shown.ack(A, (10, 11, ACCEPT))
    assert shown.acquire(B, 100, log=log).ranges == (Acquired(30, 45, 1),)


@pytest.mark.parametrize(
    ("records_max", "bytes_max", "end"),
    [(15, 1_500, 30), (14, 1_500, 20), (15, 1_499, 20), (0, 1_500, 20), (15, 0, 20)],
)
def test_only_log_batches_up_to_a_size_are_completed(
    shown: Shown, records_max: int, bytes_max: int, end: int
) -> None:
    """The first batch is larger, but only the one at the limit counts."""
    shown.limits = replace(
        LIMITS, completion_records_max=records_max, completion_bytes_max=bytes_max
    )
    log = LogBatches(0, [0, 15], [15, 30], size_of={0: 9_999, 15: 1_500}.__getitem__)
    assert shown.acquire(A, 100, log=log).ranges == (Acquired(0, end, 1),)


def test_lock_limit_is_hard_with_a_record_limit(shown: Shown) -> None:
    log, mode = LogBatches(0, [0, 15], [15, 30]), AcquireMode.RECORD_LIMIT
    assert shown.acquire(A, 100, log=log, mode=mode).ranges == (Acquired(0, 20, 1),)
    assert shown.acquire(B, 100, log=LogBatches(20, [15], [30]), mode=mode) == Acquisition()


def test_log_batch_that_another_fetch_began_is_completed(shown: Shown) -> None:
    """The rest of a batch counts as large as the whole batch."""
    strict = AcquireMode.RECORD_LIMIT
    assert shown.acquire(A, 19, log=LogBatches(0, [0], [40]), mode=strict).ranges == (
        Acquired(0, 19, 1),
    )
    shown.limits = replace(LIMITS, completion_records_max=39)
    rest = LogBatches(19, [0, 40], [40, 80])
    assert shown.acquire(B, 100, log=rest).ranges == (Acquired(19, 20, 1),)
    shown.ack(B, (19, 20, ACCEPT))
    shown.limits = replace(LIMITS, completion_records_max=40)
    rest = LogBatches(20, [0, 40], [40, 80])
    assert shown.acquire(B, 100, log=rest).ranges == (Acquired(20, 40, 1),)


def test_records_of_a_completed_log_batch_that_return_stay_within_the_locks(shown: Shown) -> None:
    """Only unseen records exceed the limit; no new ones come while so many are in flight."""
    log = LogBatches(0, [0, 15, 30], [15, 30, 45])
    assert shown.acquire(A, 100, log=log).ranges == (Acquired(0, 30, 1),)
    shown.expire(now_ms=100)
    assert shown.acquire(B, 100, log=log).ranges == (Acquired(0, 20, 2),)
    assert shown.acquire(A, 100, log=log) == Acquisition()
    shown.ack(B, (0, 20, ACCEPT))
    assert shown.acquire(A, 100, log=LogBatches(20, [15, 30], [30, 45])).ranges == (
        Acquired(20, 30, 2),
        Acquired(30, 45, 1),
    )


def test_nothing_is_completed_beside_isolated_records(shown: Shown) -> None:
    """A poisonous part of a log batch comes alone, although the rest of the batch is unseen."""
    log, strict = LogBatches(0, [0], [40]), AcquireMode.RECORD_LIMIT
    for _ in range(2):
        shown.acquire(A, 4, log=log, mode=strict)
        shown.ack(A, (0, 4, RELEASE))
    assert shown.acquire(A, 100, log=log).ranges == (Acquired(0, 1, 3),)


def test_full_map_completes_no_log_batch(shown: Shown) -> None:
    shown.limits = replace(LIMITS, runs_max=1)
    shown.acquire(A, 5, log=LogBatches(0, [0], [5]))
    assert shown.acquire(B, 100, log=LogBatches(5, [5], [45])) == Acquisition()
    shown.limits = replace(LIMITS, runs_max=2)
    assert shown.acquire(B, 100, log=LogBatches(5, [5], [45])).ranges == (Acquired(5, 45, 1),)
    assert shown.partition.snapshot().run_count == 2, "completing makes no run"


def test_log_batch_behind_a_hole_is_completed(shown: Shown) -> None:
    """Holes need no lock: of twenty, fifteen are taken before the hole."""
    log = LogBatches(0, [0, 25, 45], [15, 45, 60])
    assert shown.acquire(A, 100, log=log).ranges == (Acquired(0, 15, 1), Acquired(25, 45, 1))


def test_records_that_wait_keep_their_room(shown: Shown) -> None:
    """Ten records wait below the read: of the room of twenty, ten are left for new records."""
    shown.acquire(A, 10)
    shown.ack(A, (0, 10, RELEASE))
    log = LogBatches(10, list(range(10, 100)), list(range(11, 101)))
    assert shown.acquire(B, 100, log=log).ranges == (Acquired(10, 20, 1),)


def test_records_max_finishes_its_log_batch(shown: Shown) -> None:
    log = LogBatches(0, [0, 6, 12], [6, 12, 18])
    assert shown.acquire(A, 7, log=log).ranges == (Acquired(0, 12, 1),)


def test_strict_records_max_leaves_the_rest_of_a_log_batch(shown: Shown) -> None:
    log = LogBatches(0, [0, 6, 12], [6, 12, 18])
    mode = AcquireMode.RECORD_LIMIT
    assert shown.acquire(A, 7, log=log, mode=mode).ranges == (Acquired(0, 7, 1),)
    shown.ack(A, (2, 4, RELEASE))
    log = LogBatches(2, [0, 6, 12], [6, 12, 18])
    assert shown.acquire(B, 3, log=log, mode=mode).ranges == (
        Acquired(2, 4, 2),
        Acquired(7, 8, 1),
    )


def test_lowered_in_flight_limit_still_delivers_released_records(shown: Shown) -> None:
    shown.acquire(A, 10)
    shown.ack(A, (0, 10, RELEASE))
    shown.limits = SharePartitionLimits(in_flight_max=4)
    assert shown.ranges(B, 100) == [Acquired(0, 4, 2)]
    assert shown.ranges(B, 100) == []


def test_nothing_is_taken_from_an_empty_read_or_for_no_records(shown: Shown) -> None:
    assert shown.acquire(A, 5, log=LogBatches(0, [], [])) == Acquisition()
    assert shown.acquire(A, 0) == Acquisition()


def test_record_released_below_the_read_waits_for_the_next_read(shown: Shown) -> None:
    """The record became available between the read and the acquisition, so the read lacks it."""
    shown.acquire(A, 5)
    shown.ack(A, (0, 3, RELEASE))
    log = LogBatches(5, [5, 6], [6, 7])
    assert shown.acquire(B, 10, log=log).ranges == (Acquired(5, 7, 1),)
    assert shown.partition.next_fetch_offset() == 0
    log = LogBatches(1, [1, 2], [2, 3])
    assert shown.acquire(B, 10, log=log).ranges == (Acquired(1, 3, 2),)
    assert shown.partition.next_fetch_offset() == 0


def test_position_past_the_map_is_a_bug_of_the_caller(shown: Shown) -> None:
    with pytest.raises(AssertionError, match="5 was read, past 0"):
        shown.acquire(A, 5, log=LogBatches(5, [5], [6]))


# Offsets without records.


def test_hole_in_the_log_is_archived_and_written(shown: Shown) -> None:
    log = LogBatches(0, [0, 5], [3, 8])
    assert shown.acquire(A, 10, log=log) == Acquisition(
        (Acquired(0, 3, 1), Acquired(5, 8, 1)), Delta(0, 2, (StateBatch(3, 5, ARCHIVED, 0),))
    )


def test_hole_at_the_front_moves_the_start(shown: Shown) -> None:
    log = LogBatches(0, [40], [45])
    assert shown.acquire(A, 10, log=log) == Acquisition((Acquired(40, 45, 1),), Delta(40, 0))
    assert shown.partition.start_offset == 40


def test_hole_is_not_passed_when_no_record_after_it_is_acquired(shown: Shown) -> None:
    log = LogBatches(0, [0, 50], [3, 60])
    assert shown.acquire(A, 2, log=log) == Acquisition((Acquired(0, 3, 1),), None)
    assert shown.partition.end_offset == 3


def test_waiting_record_that_compaction_removed_is_archived(shown: Shown) -> None:
    shown.acquire(A, 6)
    shown.ack(A, (1, 5, RELEASE))
    log = LogBatches(1, [3, 6], [6, 7])
    assert shown.acquire(B, 1, log=log) == Acquisition(
        (Acquired(3, 5, 2),), Delta(0, 2, (StateBatch(1, 3, ARCHIVED, 1),))
    )


def test_locked_record_in_a_hole_is_left_to_its_member(shown: Shown) -> None:
    shown.acquire(A, 6)
    assert shown.acquire(B, 1, log=LogBatches(0, [6], [7])) == Acquisition(
        (Acquired(6, 7, 1),), None
    )
    assert shown.ack(A, (0, 6, GAP)) == Delta(6, 0)


# Acknowledge.


def test_accepted_prefix_moves_the_start(shown: Shown) -> None:
    shown.acquire(A, 10)
    assert shown.ack(A, (0, 4, ACCEPT)) == Delta(4, 0)
    assert shown.ack(A, (6, 8, ACCEPT)) == Delta(4, 2, (StateBatch(6, 8, ACKNOWLEDGED, 1),))
    assert shown.ack(A, (4, 6, REJECT)) == Delta(8, 0)
    assert shown.partition.start_offset == 8


def test_types_may_differ_by_offset(shown: Shown) -> None:
    shown.acquire(A, 6)
    types = (RELEASE, ACCEPT, ACCEPT, REJECT, GAP, RELEASE)
    assert shown.partition.acknowledge(
        A, [AckBatch(0, 6, types)], limits=LIMITS, now_ms=0
    ) == Delta(
        0,
        4,
        (
            StateBatch(0, 1, AVAILABLE, 1),
            StateBatch(1, 3, ACKNOWLEDGED, 1),
            StateBatch(3, 5, ARCHIVED, 1),
            StateBatch(5, 6, AVAILABLE, 1),
        ),
    )


def test_equal_neighbours_of_a_delta_are_joined(shown: Shown) -> None:
    """Two locks of one member, taken at different times: two runs, one durable batch."""
    shown.acquire(A, 3, now_ms=0)
    shown.acquire(A, 3, now_ms=1)
    assert shown.ack(A, (1, 3, ACCEPT), (3, 5, ACCEPT)) == Delta(
        0, 4, (StateBatch(1, 5, ACKNOWLEDGED, 1),)
    )


def test_acknowledgements_below_the_start_offset_are_ignored(shown: Shown) -> None:
    shown.acquire(A, 5)
    shown.ack(A, (0, 3, ACCEPT))
    assert shown.ack(B, (0, 3, REJECT)) is None
    assert shown.ack(A, (1, 4, ACCEPT)) == Delta(4, 0)


def test_settled_record_cannot_be_acknowledged_again(shown: Shown) -> None:
    shown.acquire(A, 5)
    shown.ack(A, (1, 2, ACCEPT))
    with pytest.raises(InvalidRecordState, match=r"1 to 1 .*: they are ACKNOWLEDGED"):
        shown.ack(A, (1, 2, RELEASE))


def test_acknowledgement_past_the_end_is_an_invalid_request(shown: Shown) -> None:
    shown.acquire(A, 5)
    for end in (6, 2**63 - 1):
        with pytest.raises(InvalidRequest, match="past the last offset ever acquired, 4"):
            shown.ack(A, (0, end, ACCEPT))


def test_one_invalid_batch_refuses_the_whole_request(shown: Shown) -> None:
    shown.acquire(A, 3)
    shown.acquire(B, 3)
    before = shown.picture()
    with pytest.raises(InvalidRecordState):
        shown.ack(A, (0, 3, ACCEPT), (3, 4, ACCEPT))
    assert shown.picture() == before


def test_acknowledging_nothing_writes_nothing(shown: Shown) -> None:
    assert shown.ack(A) is None


def test_release_of_the_last_delivery_archives(shown: Shown) -> None:
    shown.acquire(A, 2)
    for count in (1, 2):
        assert shown.ack(A, (1, 2, RELEASE)) == Delta(0, 0, (StateBatch(1, 2, AVAILABLE, count),))
        shown.acquire(A, 1)
    assert shown.ack(A, (1, 2, RELEASE)) == Delta(0, 1, (StateBatch(1, 2, ARCHIVED, 3),))


def test_expiry_of_the_last_delivery_archives(shown: Shown) -> None:
    for count in (1, 2):
        shown.acquire(A, 1, now_ms=1_000 * count)
        assert shown.expire(1_000 * count + 100) == Delta(
            0, 0, (StateBatch(0, 1, AVAILABLE, count),)
        )
    shown.acquire(A, 1, now_ms=3_000)
    assert shown.expire(3_100) == Delta(1, 0)


def test_lowered_delivery_limit_applies_immediately(shown: Shown) -> None:
    shown.acquire(A, 2)
    shown.limits = SharePartitionLimits(delivery_count_max=1)
    assert shown.ack(A, (1, 2, RELEASE)) == Delta(0, 1, (StateBatch(1, 2, ARCHIVED, 1),))


# Isolation.


def test_batch_with_a_bad_record_is_delivered_in_halves_and_then_one_by_one(shown: Shown) -> None:
    """As seen on Kafka: limit 5, a batch of 100, all of it released each time."""
    shown.limits = SharePartitionLimits(delivery_count_max=5)
    sizes = []
    for _ in range(6):
        position = shown.partition.next_fetch_offset()
        [taken] = shown.acquire(A, 500, log=LogBatches(position, [0], [100])).ranges
        sizes.append(taken.end - taken.first)
        shown.ack(A, (taken.first, taken.end, RELEASE))
    assert sizes == [100, 100, 100, 50, 1, 1]


def test_often_redelivered_records_are_delivered_alone(shown: Shown) -> None:
    shown.limits = SharePartitionLimits(delivery_count_max=5)
    for _ in range(3):
        shown.acquire(A, 2)
        shown.ack(A, (0, 2, RELEASE))
    assert shown.ranges(A, 10) == [Acquired(0, 2, 4)]
    assert shown.ranges(B, 3) == [Acquired(2, 5, 1)]


def test_often_redelivered_records_wait_for_a_separate_response(shown: Shown) -> None:
    shown.limits = SharePartitionLimits(delivery_count_max=5)
    shown.acquire(A, 3)
    shown.ack(A, (0, 1, RELEASE), (1, 2, RELEASE))
    for now_ms in range(2):
        log = LogBatches(1, [1], [2])
        assert shown.acquire(B, 1, now_ms, log).ranges == (Acquired(1, 2, now_ms + 2),)
        shown.ack(B, (1, 2, RELEASE), now_ms=now_ms)
    assert shown.ranges(B, 10) == [Acquired(0, 1, 2)]
    assert shown.ranges(B, 10) == [Acquired(1, 2, 4)]
    assert shown.ranges(B, 2) == [Acquired(3, 5, 1)]


def test_records_released_while_others_were_settled_need_no_isolation(shown: Shown) -> None:
    """A worker that tries some records again later: they come along with others to the end."""
    shown.limits = SharePartitionLimits(delivery_count_max=5)
    assert shown.ranges(A, 4) == [Acquired(0, 4, 1)]
    shown.ack(A, (0, 1, RELEASE), (1, 4, ACCEPT))
    for delivery, first in ((2, 4), (3, 7), (4, 10), (5, 13)):
        assert shown.ranges(A, 4) == [Acquired(0, 1, delivery), Acquired(first, first + 3, 1)]
        shown.ack(A, (0, 1, RELEASE), (first, first + 3, ACCEPT))
    assert shown.partition.start_offset == 16


def test_individually_released_record_is_not_isolated_until_its_lock_ends(shown: Shown) -> None:
    shown.limits = SharePartitionLimits(delivery_count_max=5)
    shown.acquire(A, 2)
    shown.ack(A, (0, 1, RELEASE), (1, 2, ACCEPT))
    for delivery in (2, 3, 4):
        assert shown.ranges(A, 1) == [Acquired(0, 1, delivery)]
        shown.ack(A, (0, 1, RELEASE))
    assert shown.ranges(A, 2) == [Acquired(0, 1, 5), Acquired(2, 3, 1)]


def test_ended_lock_makes_an_individually_released_record_isolated_again(shown: Shown) -> None:
    shown.limits = SharePartitionLimits(lock_ms=100, delivery_count_max=4)
    shown.acquire(A, 2)
    shown.ack(A, (0, 1, RELEASE), (1, 2, ACCEPT))
    assert shown.ranges(A, 2) == [Acquired(0, 1, 2), Acquired(2, 3, 1)]
    shown.ack(A, (2, 3, ACCEPT))
    shown.expire(100)
    assert shown.ranges(A, 2, now_ms=100) == [Acquired(0, 1, 3)]


# Renewal.


def test_renewed_lock_holds_for_its_whole_time_again(shown: Shown) -> None:
    shown.acquire(A, 3, now_ms=0)
    assert shown.ack(A, (0, 3, RENEW), now_ms=60) is None
    assert shown.expire(100) is None
    assert shown.partition.next_expiry_ms() == 160
    assert shown.ack(A, (0, 1, ACCEPT), now_ms=159) == Delta(1, 0)
    assert shown.expire(160) == Delta(1, 0, (StateBatch(1, 3, AVAILABLE, 1),))


def test_renewal_of_a_part_leaves_the_rest_to_its_old_end(shown: Shown) -> None:
    shown.acquire(A, 6, now_ms=0)
    shown.ack(A, (2, 4, RENEW), now_ms=50)
    assert shown.expire(100) == Delta(
        0, 0, (StateBatch(0, 2, AVAILABLE, 1), StateBatch(4, 6, AVAILABLE, 1))
    )
    assert shown.partition.next_expiry_ms() == 150


def test_renewal_and_settlement_mix_in_one_request(shown: Shown) -> None:
    shown.acquire(A, 4, now_ms=0)
    types = (RENEW, ACCEPT, RELEASE, RENEW)
    delta = shown.partition.acknowledge(A, [AckBatch(0, 4, types)], limits=LIMITS, now_ms=70)
    assert delta == Delta(0, 1, (StateBatch(1, 2, ACKNOWLEDGED, 1), StateBatch(2, 3, AVAILABLE, 1)))
    assert shown.partition.next_expiry_ms() == 170


def test_refused_request_renews_nothing(shown: Shown) -> None:
    """Kafka keeps the renewals of a request that it refuses; here it is all or nothing."""
    shown.acquire(A, 2, now_ms=0)
    shown.acquire(B, 2, now_ms=0)
    with pytest.raises(InvalidRecordState, match="member 'b' holds them"):
        shown.ack(A, (0, 2, RENEW), (2, 3, ACCEPT), now_ms=50)
    assert shown.partition.next_expiry_ms() == 100


def test_lock_that_ended_cannot_be_renewed(shown: Shown) -> None:
    shown.acquire(A, 2, now_ms=0)
    with pytest.raises(InvalidRecordState, match="its lock ended at 100 ms and it is 100 ms"):
        shown.ack(A, (0, 2, RENEW), now_ms=100)


def test_renewal_can_be_switched_off(shown: Shown) -> None:
    shown.acquire(A, 2, now_ms=0)
    shown.limits = SharePartitionLimits(renewal=False)
    with pytest.raises(InvalidRecordState, match=r"offsets 0 to 1 cannot be renewed: share\.renew"):
        shown.ack(A, (0, 2, RENEW))
    assert shown.ack(A, (0, 2, ACCEPT)) == Delta(2, 0)


def test_renewal_takes_the_duration_of_now(shown: Shown) -> None:
    """A shortened duration lets a renewed lock end even sooner than it would have."""
    shown.acquire(A, 1, now_ms=0)
    shown.limits = SharePartitionLimits(lock_ms=10)
    shown.ack(A, (0, 1, RENEW), now_ms=5)
    assert shown.partition.next_expiry_ms() == 15


def test_repeated_renewals_do_not_grow_the_lock_heap(shown: Shown) -> None:
    shown.acquire(A, 10)
    for now_ms in range(1_000):
        shown.ack(A, (0, 10, RENEW), now_ms=now_ms)
    assert len(shown.partition._locks) < 100
    assert shown.picture() == [(0, 10, ACQUIRED, 1)]


# Release and expiry.


def test_release_member_releases_its_records(shown: Shown) -> None:
    shown.acquire(A, 3)
    shown.acquire(B, 3)
    shown.acquire(A, 3)
    assert shown.partition.release_member(A, limits=LIMITS) == Delta(
        0, 0, (StateBatch(0, 3, AVAILABLE, 1), StateBatch(6, 9, AVAILABLE, 1))
    )
    assert shown.partition.release_member(A, limits=LIMITS) is None
    assert shown.partition.snapshot().acquired_count == 3


def test_expiry_releases_only_due_locks(shown: Shown) -> None:
    shown.acquire(A, 2, now_ms=0)
    shown.acquire(B, 2, now_ms=10)
    assert shown.partition.next_expiry_ms() == 100
    assert shown.expire(99) is None
    assert shown.expire(100) == Delta(0, 0, (StateBatch(0, 2, AVAILABLE, 1),))
    assert shown.partition.next_expiry_ms() == 110
    assert shown.expire(110) == Delta(0, 0, (StateBatch(2, 4, AVAILABLE, 1),))
    assert shown.partition.next_expiry_ms() is None


def test_settled_lock_does_not_expire(shown: Shown) -> None:
    shown.acquire(A, 3, now_ms=0)
    shown.ack(A, (0, 2, ACCEPT))
    assert shown.expire(100) == Delta(2, 0, (StateBatch(2, 3, AVAILABLE, 1),))
    shown.acquire(A, 1, now_ms=200)
    shown.ack(A, (2, 3, ACCEPT), now_ms=200)
    assert shown.partition.next_expiry_ms() is None
    assert shown.expire(1_000) is None


def test_lock_taken_again_expires_by_its_new_deadline(shown: Shown) -> None:
    """Both deadlines pass before the sweep: the record is given back once, not twice."""
    shown.acquire(A, 2, now_ms=0)
    shown.ack(A, (0, 2, RELEASE), now_ms=50)
    shown.acquire(B, 2, now_ms=50)
    assert shown.expire(100) is None
    assert shown.partition.next_expiry_ms() == 150
    assert shown.expire(999) == Delta(0, 0, (StateBatch(0, 2, AVAILABLE, 2),))
    assert shown.partition.snapshot().available_count == 2


def test_shortened_lock_duration_expires_first(shown: Shown) -> None:
    shown.acquire(A, 1, now_ms=0)
    shown.limits = SharePartitionLimits(lock_ms=10)
    shown.acquire(B, 1, now_ms=5)
    assert shown.partition.next_expiry_ms() == 15
    assert shown.expire(15) == Delta(0, 0, (StateBatch(1, 2, AVAILABLE, 1),))


# The log's start.


def test_log_start_drops_all_lower_records(shown: Shown) -> None:
    shown.acquire(A, 6)
    shown.ack(A, (1, 2, RELEASE), (3, 4, ACCEPT))
    assert shown.partition.move_log_start(3) == Delta(4, 0)
    shown.partition.check()
    assert shown.picture() == [(4, 6, ACQUIRED, 1)]
    assert shown.ack(A, (0, 3, ACCEPT)) is None
    assert shown.expire(100) == Delta(4, 0, (StateBatch(4, 6, AVAILABLE, 1),))


def test_log_start_within_a_waiting_run_leaves_the_rest_available(shown: Shown) -> None:
    shown.acquire(A, 6)
    shown.ack(A, (0, 6, RELEASE))
    assert shown.partition.move_log_start(4) == Delta(4, 0)
    assert shown.partition.next_fetch_offset() == 4
    assert shown.ranges(B, 2) == [Acquired(4, 6, 2)]


def test_log_start_right_at_a_waiting_record_delivers_it_once(shown: Shown) -> None:
    """Found by the model: both the release and the log's start led to offset 1."""
    shown.acquire(A, 1)
    shown.acquire(B, 1)
    shown.ack(B, (1, 2, RELEASE))
    shown.partition.move_log_start(1)
    assert shown.ranges(A, 2) == [Acquired(1, 2, 2), Acquired(2, 3, 1)]


def test_log_start_past_the_end_empties_the_map(shown: Shown) -> None:
    shown.acquire(A, 6)
    assert shown.partition.move_log_start(50) == Delta(50, 0)
    assert (shown.partition.start_offset, shown.partition.end_offset) == (50, 50)
    assert shown.partition.next_fetch_offset() == 50
    assert shown.partition.next_expiry_ms() is None


def test_log_start_never_moves_the_start_back(shown: Shown) -> None:
    shown.acquire(A, 6)
    shown.ack(A, (0, 3, ACCEPT))
    assert shown.partition.move_log_start(3) is None
    assert shown.partition.move_log_start(1) is None


# Restore.


def test_restored_partition_forgets_locks_and_nothing_else() -> None:
    shown = Shown(
        SharePartition.restore(
            10,
            [StateBatch(16, 18, AVAILABLE, 2), StateBatch(12, 14, ACKNOWLEDGED, 1)],
            log_end=100,
        )
    )
    shown.limits = SharePartitionLimits(delivery_count_max=10)
    assert shown.picture() == [
        (10, 12, AVAILABLE, 0),
        (12, 14, ACKNOWLEDGED, 1),
        (14, 16, AVAILABLE, 0),
        (16, 18, AVAILABLE, 2),
    ]
    assert shown.ranges(A, 7) == [
        Acquired(10, 12, 1),
        Acquired(14, 16, 1),
        Acquired(16, 18, 3),
        Acquired(18, 19, 1),
    ]


def test_restore_forgets_a_settled_prefix() -> None:
    partition = SharePartition.restore(0, [StateBatch(0, 5, ARCHIVED, 1)], log_end=100)
    assert (partition.start_offset, partition.end_offset) == (5, 5)


def test_restore_cuts_batches_below_the_start_offset() -> None:
    partition = SharePartition.restore(
        3, [StateBatch(0, 2, ARCHIVED, 1), StateBatch(2, 5, AVAILABLE, 1)], log_end=100
    )
    partition.check()
    assert [run[:2] for run in partition.runs()] == [(3, 5)]


def test_offset_that_the_log_lost_inherits_no_acknowledgement() -> None:
    partition = SharePartition.restore(
        0, [StateBatch(2, 9, ACKNOWLEDGED, 1), StateBatch(9, 12, AVAILABLE, 1)], log_end=6
    )
    partition.check()
    assert partition.end_offset == 6
    assert SharePartition.restore(9, [], log_end=6).start_offset == 6


def test_restore_refuses_a_lock() -> None:
    with pytest.raises(AssertionError, match="locks are never durable"):
        SharePartition.restore(0, [StateBatch(0, 1, ACQUIRED, 1)], log_end=1)


def test_checkpoint_contains_all_that_restore_needs(shown: Shown) -> None:
    shown.acquire(A, 8)
    shown.ack(A, (1, 2, RELEASE), (3, 4, ACCEPT), (5, 6, RELEASE))
    shown.acquire(B, 1)  # Offset 1 again: locked, but durable is its first delivery.
    checkpoint = shown.partition.checkpoint()
    assert checkpoint == Delta(
        0,
        1,
        (
            StateBatch(1, 2, AVAILABLE, 1),
            StateBatch(3, 4, ACKNOWLEDGED, 1),
            StateBatch(5, 6, AVAILABLE, 1),
        ),
    )


def test_snapshot_counts_offsets_by_state(shown: Shown) -> None:
    shown.acquire(A, 10)
    shown.ack(A, (1, 3, ACCEPT), (4, 5, REJECT), (6, 9, RELEASE))
    snapshot = shown.partition.snapshot()
    assert (snapshot.start_offset, snapshot.end_offset) == (0, 10)
    assert snapshot.acquired_count == 4
    assert snapshot.available_count == 3
    assert snapshot.acknowledged_count == 2
    assert snapshot.archived_count == 1
    assert snapshot.delivery_complete_count == 3
    assert snapshot.run_count == 7


# The cost is that of runs, and the indexes stay small.


def test_cost_does_not_depend_on_the_size_of_a_range() -> None:
    """A million million records: acquired, renewed, partly released, accepted, written as runs."""
    count = 10**12
    half = count // 2
    partition = SharePartition(0)
    limits = SharePartitionLimits(in_flight_max=count)
    log = LogBatches(0, [0, half], [half, count])
    taken = partition.acquire(A, log, request=AcquireRequest(count, count), limits=limits, now_ms=0)
    assert taken == Acquisition((Acquired(0, count, 1),), None)
    renewal = [AckBatch(0, count, (RENEW,))]
    assert partition.acknowledge(A, renewal, limits=limits, now_ms=1) is None
    acks = [AckBatch(0, half, (ACCEPT,)), AckBatch(half, count, (RELEASE,))]
    assert partition.acknowledge(A, acks, limits=limits, now_ms=2) == Delta(
        half, 0, (StateBatch(half, count, AVAILABLE, 1),)
    )
    log = LogBatches(half, [half], [count])
    again = partition.acquire(B, log, request=AcquireRequest(count, count), limits=limits, now_ms=3)
    assert again.ranges == (Acquired(half, count, 2),)
    accept = [AckBatch(half, count, (ACCEPT,))]
    assert partition.acknowledge(B, accept, limits=limits, now_ms=4) == Delta(count, 0)
    assert partition.snapshot().run_count == 0
    partition.check()


def test_heaps_do_not_grow_with_the_history(shown: Shown) -> None:
    """One record stays locked while 5,000 others come and go, be it by release or by accept."""
    shown.acquire(A, 1)
    for _ in range(2_500):
        shown.partition.acquire(
            B,
            LogBatches(1, [1], [2]),
            request=AcquireRequest(1, 1),
            limits=SharePartitionLimits(delivery_count_max=10_000),
            now_ms=0,
        )
        shown.partition.acknowledge(
            B,
            [AckBatch(1, 2, (RELEASE,))],
            limits=SharePartitionLimits(delivery_count_max=10_000),
            now_ms=0,
        )
    shown.partition.check()
    assert len(shown.partition._locks) < 100
    assert len(shown.partition._available) < 100
