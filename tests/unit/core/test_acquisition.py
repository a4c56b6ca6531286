"""Where an acquire stops, what it isolates, and how its answer is cut."""

from __future__ import annotations

import pytest

from sharegroup.core.delivery.acquisition import AcquireBudget, entries, holes, stretches
from sharegroup.core.delivery.delivery import (
    Acquired,
    AcquireRequest,
    LogBatches,
    SharePartitionLimits,
)
from sharegroup.protocol_enums import AcquireMode

TENS = LogBatches(0, [0, 10, 20], [10, 20, 30])
STRICT = AcquireMode.RECORD_LIMIT


def budget_of(
    wanted: AcquireRequest,
    *,
    log: LogBatches = TENS,
    locks_left: int = 100,
    delivery_count_max: int = 5,
) -> AcquireBudget:
    limits = SharePartitionLimits(delivery_count_max=delivery_count_max)
    return AcquireBudget(log, wanted, locks_left=locks_left, limits=limits)


def test_adjoining_batches_make_one_stretch() -> None:
    assert stretches(TENS) == [(0, 30)]


def test_batches_with_a_hole_between_make_two_stretches() -> None:
    assert stretches(LogBatches(0, [0, 10, 25], [10, 20, 30])) == [(0, 20), (25, 30)]


def test_holes_are_before_and_between_the_stretches() -> None:
    log = LogBatches(3, [5, 25], [20, 30])
    assert holes(log, [(5, 20), (25, 30)]) == [(3, 5), (20, 25)]


def test_end_of_the_scanned_log_without_records_is_a_hole() -> None:
    log = LogBatches(3, [3], [20], looked_until=24)
    assert holes(log, stretches(log)) == [(20, 24)]
    nothing = LogBatches(3, [], [], looked_until=24)
    assert holes(nothing, stretches(nothing)) == [(3, 24)]


def test_no_hole_in_front_of_a_batch_that_begins_below_the_position() -> None:
    assert holes(LogBatches(7, [5], [20]), [(5, 20)]) == []


@pytest.mark.parametrize(
    ("records_max", "locks_left", "expected"),
    [
        (1, 100, 10),  # Soft: the log batch is finished.
        (10, 100, 10),
        (11, 100, 20),
        (100, 100, 30),
        (12, 15, 15),  # Hard: there is room for 15 locks.
        (12, 0, 0),
        (12, -3, 0),
    ],
)
def test_records_are_a_soft_limit_and_locks_a_hard_one(
    records_max: int, locks_left: int, expected: int
) -> None:
    assert (
        budget_of(AcquireRequest(records_max, 500), locks_left=locks_left).take(0, 30) == expected
    )


@pytest.mark.parametrize(
    ("records_max", "locks_left", "expected"),
    [(1, 100, 1), (10, 100, 10), (11, 100, 11), (100, 100, 30), (12, 5, 5)],
)
def test_max_records_is_a_hard_limit_in_record_limit_mode(
    records_max: int, locks_left: int, expected: int
) -> None:
    budget = budget_of(AcquireRequest(records_max, 500, STRICT), locks_left=locks_left)
    assert budget.take(0, 30) == expected


def test_hard_limit_counts_over_separate_ranges() -> None:
    budget = budget_of(AcquireRequest(4, 500, STRICT))
    assert budget.take(1, 3) == 3
    assert budget.take(5, 6) == 6
    assert budget.take(8, 15) == 9
    assert budget.take(20, 25) == 20


def test_log_batch_is_finished_across_separate_ranges() -> None:
    budget = budget_of(AcquireRequest(3, 500))
    assert budget.take(1, 3) == 3
    assert budget.take(5, 6) == 6  # The third record: its log batch ends at 10.
    assert budget.take(8, 15) == 10
    assert budget.take(20, 25) == 20


@pytest.mark.parametrize(
    ("delivery_count_max", "records"),
    [
        (2, [512, 512]),
        (3, [512, 512, 1]),
        (4, [512, 512, 256, 1]),
        (5, [512, 512, 512, 256, 1]),
        (6, [512, 512, 512, 256, 128, 1]),
        (9, [512, 512, 512, 512, 512, 256, 128, 64, 1]),
        (10, [512, 512, 512, 512, 512, 256, 128, 64, 32, 1]),
    ],
)
def test_redelivered_records_are_acquired_in_ever_smaller_portions(
    delivery_count_max: int, records: list[int]
) -> None:
    """The number of records that each delivery of a log batch's first record includes."""
    log = LogBatches(0, [0], [512])
    assert records == [
        budget_of(
            AcquireRequest(500, 500),
            log=log,
            locks_left=2_000,
            delivery_count_max=delivery_count_max,
        ).take(0, 512, delivered)
        for delivered in range(delivery_count_max)
    ]


def test_portion_is_one_record_at_least() -> None:
    budget = budget_of(
        AcquireRequest(500, 1), log=LogBatches(0, [0, 2], [2, 4]), delivery_count_max=25
    )
    assert budget.take(0, 4, 20) == 1


def test_portion_is_of_the_log_batches_that_make_a_unit() -> None:
    """Three batches of ten; a request with batch size 15 gets half of the first two."""
    assert budget_of(AcquireRequest(500, 15)).take(0, 30, 3) == 10
    assert budget_of(AcquireRequest(500, 10)).take(0, 30, 3) == 5
    assert budget_of(AcquireRequest(500, 500)).take(0, 30, 3) == 15
    assert budget_of(AcquireRequest(500, 500)).take(10, 30, 3) == 20


def test_portion_ends_with_its_unit() -> None:
    assert budget_of(AcquireRequest(500, 10)).take(8, 30, 3) == 10


def test_portion_may_span_ranges_and_no_record_is_acquired_after_it() -> None:
    budget = budget_of(AcquireRequest(500, 10))
    assert budget.take(0, 2, 3) == 2
    assert budget.take(3, 5, 1) == 5
    assert budget.take(6, 10, 3) == 7
    assert budget.take(7, 30, 1) == 7
    assert budget.isolating


def test_suspicious_records_are_not_joined_to_others() -> None:
    budget = budget_of(AcquireRequest(500, 500))
    assert budget.take(0, 3, 2) == 3
    assert budget.take(3, 5, 3) == 3
    assert budget.take(5, 6, 0) == 5
    assert budget.isolating


def test_last_delivery_is_of_one_record_and_joins_no_portion() -> None:
    budget = budget_of(AcquireRequest(500, 500))
    assert budget.take(0, 3, 4) == 1
    assert budget.take(4, 5, 1) == 4
    budget = budget_of(AcquireRequest(500, 500))
    assert budget.take(0, 3, 3) == 3
    assert budget.take(3, 5, 4) == 3


def test_lowered_delivery_limit_isolates_records_beyond_it() -> None:
    assert budget_of(AcquireRequest(500, 500), delivery_count_max=3).take(0, 30, 7) == 1


def test_short_range_stays_one_entry() -> None:
    taken = [Acquired(0, 30, 1)]
    assert entries(taken, TENS, AcquireRequest(500, 30)) == (Acquired(0, 30, 1),)


def test_long_range_is_cut_in_front_of_a_log_batch() -> None:
    taken = [Acquired(0, 30, 1)]
    assert entries(taken, TENS, AcquireRequest(500, 5)) == (
        Acquired(0, 10, 1),
        Acquired(10, 20, 1),
        Acquired(20, 30, 1),
    )
    assert entries(taken, TENS, AcquireRequest(500, 11)) == (
        Acquired(0, 20, 1),
        Acquired(20, 30, 1),
    )


def test_one_log_batch_is_never_cut() -> None:
    log = LogBatches(0, [0], [30])
    assert entries([Acquired(0, 30, 1)], log, AcquireRequest(500, 1)) == (Acquired(0, 30, 1),)


def test_entries_are_not_cut_in_record_limit_mode() -> None:
    assert entries([Acquired(0, 30, 1)], TENS, AcquireRequest(30, 5, STRICT)) == (
        Acquired(0, 30, 1),
    )


def test_batch_size_of_nothing_cuts_at_every_log_batch() -> None:
    assert len(entries([Acquired(0, 30, 1)], TENS, AcquireRequest(500, 0))) == 3


def test_neighbours_of_one_delivery_count_are_joined() -> None:
    taken = [Acquired(0, 5, 1), Acquired(5, 8, 1), Acquired(8, 9, 2), Acquired(10, 12, 2)]
    assert entries(taken, TENS, AcquireRequest(500, 500)) == (
        Acquired(0, 8, 1),
        Acquired(8, 9, 2),
        Acquired(10, 12, 2),
    )
