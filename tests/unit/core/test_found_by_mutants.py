"""What changes of core nobody noticed, until `tests.mutants` made them; each has a test now."""

from __future__ import annotations

from uuid import UUID

import pytest

from sharegroup.core.delivery.acknowledgement import check_order
from sharegroup.core.delivery.acquisition import AcquireBudget, entries
from sharegroup.core.delivery.delivery import (
    NEW,
    AckBatch,
    Acquired,
    AcquireRequest,
    Delta,
    InFlightState,
    LogBatches,
    RecordState,
    SharePartitionLimits,
    StateBatch,
)
from sharegroup.core.delivery.offset_runs import OffsetRuns, Run
from sharegroup.core.delivery.run_heaps import RunsInState
from sharegroup.core.delivery.share_partition import SharePartition
from sharegroup.core.delivery.stored.share_states import (
    UNDECIDED,
    Records,
    ShareSnapshot,
    ShareStates,
    ShareTombstone,
    ShareUpdate,
)
from sharegroup.errors import (
    InvalidRecordState,
    InvalidRequest,
)
from sharegroup.ids import GroupId, MemberId, SharePartitionKey, TopicId
from tests.unit.core.test_share_partition import ACCEPT, RELEASE, Shown

A, B = MemberId("a"), MemberId("b")
KEY = SharePartitionKey(GroupId("orders"), TopicId(UUID(int=1)), 0)


class TestAcknowledgement:
    def test_batch_that_begins_two_offsets_early_contradicts_the_form(self) -> None:
        acks = [AckBatch(0, 3, (ACCEPT,)), AckBatch(1, 4, (ACCEPT,))]
        with pytest.raises(InvalidRequest, match=r"1 to 3 must not begin before .* 0 to 2"):
            check_order(acks, start_offset=0, end_offset=10)

    def test_batch_that_begins_at_the_last_offset_acknowledges_it_twice(self) -> None:
        acks = [AckBatch(0, 3, (ACCEPT,)), AckBatch(2, 4, (ACCEPT,))]
        with pytest.raises(InvalidRecordState, match="offset 2 is acknowledged twice"):
            check_order(acks, start_offset=0, end_offset=10)


class TestRuns:
    @pytest.mark.parametrize(
        ("first", "end", "runs_max", "expected"),
        [
            (4, 4, 9, (4, 0)),
            (6, 4, 9, (4, 0)),
            (0, 8, 9, (8, 4)),
            (0, 8, 4, (8, 4)),
            (0, 7, 4, (7, 4)),
            (0, 8, 3, (6, 3)),
            (3, 8, 2, (6, 2)),
            (3, 4, 1, (4, 1)),
            (3, 5, 1, (4, 1)),
            (3, 4, 9, (4, 1)),
            (3, 8, 3, (8, 3)),
            (-5, 99, 9, (8, 4)),
        ],
    )
    def test_reach_ends_after_so_many_runs_or_at_the_end(
        self, first: int, end: int, runs_max: int, expected: tuple[int, int]
    ) -> None:
        runs: OffsetRuns[str] = OffsetRuns(0)
        for run_end, value in ((2, "a"), (4, "b"), (6, "a"), (8, "b")):
            runs.append(run_end, value)
        assert runs.reach(first, end, runs_max=runs_max) == expected

    def test_heap_with_many_outdated_entries_is_rebuilt_from_the_runs(self) -> None:
        runs: OffsetRuns[InFlightState] = OffsetRuns(0)
        runs.append(2, InFlightState(RecordState.ACKNOWLEDGED, 1))
        runs.append(4, NEW)
        waiting = RunsInState(runs, RecordState.AVAILABLE)
        for _ in range(500):
            waiting.note(0)
        assert len(waiting) <= 2 * 2 + 64
        waiting.note(2)
        assert waiting.lowest() == Run(2, 4, NEW)
        waiting.pop()
        for _ in range(500):
            waiting.note(0)
        assert waiting.lowest() == Run(2, 4, NEW), "it was not found among the runs"


class TestAcquisition:
    def test_nothing_to_take_isolates_nothing(self) -> None:
        """A suspicious record was given back below where the log was read."""
        log = LogBatches(5, [5], [10])
        budget = AcquireBudget(
            log, AcquireRequest(10, 10), locks_left=10, limits=SharePartitionLimits()
        )
        assert budget.take(5, 5, suspicion=4) == 5
        assert not budget.isolating
        assert budget.take(5, 10) == 10

    @pytest.mark.parametrize("batch_records", [0, 1])
    def test_units_of_one_record_are_separate_entries(self, batch_records: int) -> None:
        log = LogBatches(0, [0, 1, 2], [1, 2, 3])
        found = entries([Acquired(0, 3, 1)], log, AcquireRequest(3, batch_records))
        assert found == (Acquired(0, 1, 1), Acquired(1, 2, 1), Acquired(2, 3, 1))

    def test_no_entry_is_empty_where_a_batch_begins_at_the_end(self) -> None:
        log = LogBatches(0, [0, 10, 20], [10, 20, 30])
        found = entries([Acquired(0, 20, 1)], log, AcquireRequest(20, batch_records=12))
        assert found == (Acquired(0, 20, 1),)


class TestSharePartition:
    def test_lost_log_end_does_not_count_earlier_offsets_as_acquired(self) -> None:
        lost = StateBatch(10, 12, RecordState.ACKNOWLEDGED, 1)
        partition = SharePartition.restore(0, [lost], log_end=10)
        assert (partition.start_offset, partition.end_offset) == (0, 0)

    def test_read_without_records_archives_the_scanned_offsets(self) -> None:
        shown = Shown()
        shown.acquire(A, 3)
        shown.ack(A, (1, 3, RELEASE))
        delta = shown.acquire(B, 3, log=LogBatches(1, [], [], looked_until=6)).delta
        assert delta is not None
        assert delta.batches == (
            StateBatch(1, 3, RecordState.ARCHIVED, 1),
            StateBatch(3, 6, RecordState.ARCHIVED, 0),
        )

    def test_read_without_records_changes_no_acquired_records(self) -> None:
        shown = Shown()
        late = LogBatches(0, [], [], looked_until=3)
        shown.acquire(A, 3)
        assert shown.acquire(B, 3, log=late) == ((), None)

    def test_scanned_offsets_after_the_last_record_are_passed(self) -> None:
        shown = Shown()
        acquisition = shown.acquire(A, 2, log=LogBatches(0, [0], [2], looked_until=5))
        assert acquisition.ranges == (Acquired(0, 2, 1),)
        assert shown.partition.end_offset == 5


def replayed(states: ShareStates, records: Records) -> Records:
    for record in records:
        states.replay(record)
    return records


def write(states: ShareStates, *, state_epoch: int = 3, leader_epoch: int = 0) -> Records:
    return states.write(
        KEY,
        Delta(0, 0, ()),
        state_epoch=state_epoch,
        leader_epoch=leader_epoch,
        wall_ms=50,
    )


def initialized(*, start_offset: int = 0, updates_per_snapshot: int = 500) -> ShareStates:
    states = ShareStates(updates_per_snapshot=updates_per_snapshot)
    replayed(states, states.initialize(KEY, state_epoch=3, start_offset=start_offset, wall_ms=40))
    return states


class TestShareState:
    def test_negative_epochs_are_malformed_before_they_are_fenced(self) -> None:
        states = initialized()
        with pytest.raises(InvalidRequest, match="must be 0 or more"):
            states.read(KEY, leader_epoch=-1, wall_ms=50)
        with pytest.raises(InvalidRequest, match="must be 0 or more"):
            write(states, leader_epoch=-1)
        with pytest.raises(InvalidRequest, match="must be 0 or more"):
            write(states, state_epoch=-1)

    def test_initializing_again_continues_the_snapshot_epoch(self) -> None:
        states = initialized()
        (second,) = replayed(
            states, states.initialize(KEY, state_epoch=4, start_offset=0, wall_ms=50)
        )
        (third,) = states.initialize(KEY, state_epoch=5, start_offset=0, wall_ms=60)
        assert isinstance(second, ShareSnapshot)
        assert isinstance(third, ShareSnapshot)
        assert (second.snapshot_epoch, third.snapshot_epoch) == (1, 2)

    def test_all_records_are_needed_when_their_log_offsets_are_unknown(self) -> None:
        assert initialized().needless_before([KEY], log_end=99) == 0

    def test_state_of_offset_0_is_kept(self) -> None:
        states = initialized()
        batch = StateBatch(0, 2, RecordState.AVAILABLE, 1)
        states.replay(ShareUpdate(KEY, 0, 0, 0, 0, (batch,)))
        assert states.read(KEY, leader_epoch=None, wall_ms=50)[1].batches == (batch,)

    def test_tombstone_of_an_unknown_share_partition_changes_nothing(self) -> None:
        states = initialized()
        replayed(states, (ShareTombstone(KEY), ShareTombstone(KEY)))
        assert len(states) == 0

    def test_snapshot_that_a_new_leader_makes_due_has_its_time(self) -> None:
        states = initialized(updates_per_snapshot=0)
        (record,), _ = states.read(KEY, leader_epoch=7, wall_ms=50)
        assert isinstance(record, ShareSnapshot)
        assert (record.create_timestamp, record.write_timestamp) == (50, 50)

    def test_batch_that_begins_where_the_log_ends_is_cut_off_whole(self) -> None:
        states = initialized()
        batches = tuple(
            StateBatch(first, first + 2, RecordState.ACKNOWLEDGED, 1) for first in (2, 5)
        )
        states.replay(ShareUpdate(KEY, 0, 0, 0, 4, batches))
        (record,) = states.cut(KEY, 5, wall_ms=60)
        assert isinstance(record, ShareSnapshot)
        assert record.batches == (batches[0],)

    def test_undecided_start_stays_undecided_when_the_log_is_cut(self) -> None:
        states = initialized(start_offset=UNDECIDED)
        batch = StateBatch(2, 6, RecordState.ACKNOWLEDGED, 1)
        states.replay(ShareUpdate(KEY, 0, 0, UNDECIDED, UNDECIDED, (batch,)))
        (record,) = states.cut(KEY, 4, wall_ms=60)
        assert isinstance(record, ShareSnapshot)
        assert (record.start_offset, record.delivery_complete_count) == (UNDECIDED, UNDECIDED)

    def test_bytes_of_a_snapshot_follow_the_group_id_and_the_batches(self) -> None:
        states = initialized()
        batches = tuple(
            StateBatch(first, first + 1, RecordState.ACKNOWLEDGED, 1) for first in (0, 4, 6)
        )
        states.replay(ShareUpdate(KEY, 0, 0, 0, 3, batches))
        assert states.snapshot_bytes(KEY) == 80 + 6 + 3 * 20

    def test_update_without_its_snapshot_replaces_it(self) -> None:
        states = ShareStates(updates_per_snapshot=2)
        states.replay(ShareUpdate(KEY, 4, 1, 10, 0, ()), log_offset=7)
        assert states.needless_before([KEY], log_end=99) == 7
        assert states.is_cold(KEY, since_ms=0)
        (record,) = states.snapshot(KEY, wall_ms=60)
        assert isinstance(record, ShareSnapshot)
        assert (record.snapshot_epoch, record.create_timestamp) == (5, 0)
        (following,) = write(states, leader_epoch=1, state_epoch=0)
        assert isinstance(following, ShareUpdate), "one update was made, two are allowed"
