"""Where an acquire stops, and how its answer is cut."""

from __future__ import annotations

import pytest

from sharegroup.core.acquisition import Budget, entries, holes, stretches
from sharegroup.core.delivery import Acquired, LogBatches

TENS = LogBatches(0, [0, 10, 20], [10, 20, 30])


def test_adjoining_batches_make_one_stretch() -> None:
    assert stretches(TENS) == [(0, 30)]


def test_batches_with_a_hole_between_make_two_stretches() -> None:
    assert stretches(LogBatches(0, [0, 10, 25], [10, 20, 30])) == [(0, 20), (25, 30)]


def test_holes_lie_between_the_stretches_and_behind_the_position() -> None:
    assert holes(3, [(5, 20), (25, 30)]) == [(3, 5), (20, 25)]


def test_no_hole_in_front_of_a_batch_that_begins_below_the_position() -> None:
    assert holes(7, [(5, 20)]) == []


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
    budget = Budget(TENS, records_max=records_max, locks_left=locks_left)
    assert budget.take(0, 30) == expected


def test_log_batch_is_finished_across_separate_ranges() -> None:
    budget = Budget(TENS, records_max=3, locks_left=100)
    assert budget.take(1, 3) == 3
    assert budget.take(5, 6) == 6  # The third record: its log batch ends at 10.
    assert budget.take(8, 15) == 10
    assert budget.take(20, 25) == 20


def test_short_range_stays_one_entry() -> None:
    taken = [Acquired(0, 30, 1)]
    assert entries(taken, TENS, batch_records=30) == (Acquired(0, 30, 1),)


def test_long_range_is_cut_in_front_of_a_log_batch() -> None:
    taken = [Acquired(0, 30, 1)]
    assert entries(taken, TENS, batch_records=5) == (
        Acquired(0, 10, 1),
        Acquired(10, 20, 1),
        Acquired(20, 30, 1),
    )
    assert entries(taken, TENS, batch_records=11) == (Acquired(0, 20, 1), Acquired(20, 30, 1))


def test_one_log_batch_is_never_cut() -> None:
    log = LogBatches(0, [0], [30])
    assert entries([Acquired(0, 30, 1)], log, batch_records=1) == (Acquired(0, 30, 1),)


def test_batch_size_of_nothing_cuts_at_every_log_batch() -> None:
    assert len(entries([Acquired(0, 30, 1)], TENS, batch_records=0)) == 3


def test_neighbours_of_one_delivery_count_are_joined() -> None:
    taken = [Acquired(0, 5, 1), Acquired(5, 8, 1), Acquired(8, 9, 2), Acquired(10, 12, 2)]
    assert entries(taken, TENS, batch_records=500) == (
        Acquired(0, 8, 1),
        Acquired(8, 9, 2),
        Acquired(10, 12, 2),
    )
