"""Acquired ranges that came in several answers, as one list."""

from __future__ import annotations

from sharegroup.client.share.session.acquired_records import AcquiredRecords, joined_ranges


def test_neighbours_of_one_delivery_count_are_joined() -> None:
    ranges = [AcquiredRecords(5, 9, 1), AcquiredRecords(0, 4, 1), AcquiredRecords(10, 10, 2)]
    assert joined_ranges(ranges) == (AcquiredRecords(0, 9, 1), AcquiredRecords(10, 10, 2))


def test_offsets_that_were_delivered_twice_have_the_last_delivery_count() -> None:
    """Their locks ended while the answer with the first delivery was on its way."""
    first, again = AcquiredRecords(0, 9, 1), AcquiredRecords(3, 5, 2)
    parts = (AcquiredRecords(0, 2, 1), AcquiredRecords(3, 5, 2), AcquiredRecords(6, 9, 1))
    assert joined_ranges([first, again]) == joined_ranges([again, first]) == parts
    assert joined_ranges([again, AcquiredRecords(3, 5, 1)]) == (again,)


def test_nothing_acquired_is_nothing() -> None:
    assert joined_ranges([]) == ()
