"""Which times the owner of the shared history writes."""

from __future__ import annotations

from sharegroup.console.remember.topics import TOPICS
from sharegroup.console.remember.windows import due
from sharegroup.console.watch.history import Tier

SECONDS = TOPICS[Tier.SECONDS]
NOW = 1_700_000_040_000


def windows(written_ms: int, now_ms: int, *, whole_slots: bool = True) -> list[tuple[int, ...]]:
    """The windows as distances from `NOW` in ms."""
    found = due(SECONDS, NOW + written_ms, NOW + now_ms, whole_slots=whole_slots)
    return [tuple(time - NOW for time in window) for window in found]


def test_slots_that_have_ended_are_written_once() -> None:
    assert windows(-1, 9_999) == []
    assert windows(-1, 10_000) == [(0, 0, 10_000)]
    assert windows(9_999, 10_000) == []
    assert windows(-1, 25_000) == [(0, 0, 10_000), (10_000, 10_000, 20_000)]


def test_new_owner_goes_on_in_the_middle_of_a_slot() -> None:
    assert windows(3_000, 20_000) == [(0, 3_001, 10_000), (10_000, 10_000, 20_000)]


def test_stop_writes_the_slot_that_has_not_ended() -> None:
    assert windows(-1, 4_000, whole_slots=False) == [(0, 0, 4_001)]
    assert windows(4_000, 4_000, whole_slots=False) == []


def test_what_is_older_than_the_backlog_is_left_out() -> None:
    found = windows(-10_000_000, 600_005)
    assert (len(found), found[0]) == (60, (0, 5, 10_000))


def test_clock_that_was_set_back_begins_again_with_the_slot_of_now() -> None:
    assert windows(3_600_000, 5_000) == []
    assert windows(3_600_000, 5_000, whole_slots=False) == [(0, 0, 5_001)]
    # A little ahead is another console's clock.
    assert windows(12_000, 5_000) == []
    assert windows(12_000, 20_000) == [(10_000, 12_001, 20_000)]
