"""The circuit breaker of a share group, with a clock of numbers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from sharegroup.core.delivery.breaker import Breaker, BreakerLimits, BreakerState

LIMITS = BreakerLimits(percent=50, window=4, pause_ms=10)
CLOSED, OPEN, PROBING = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.PROBING


def closed() -> Breaker:
    """A breaker whose first probe was accepted."""
    breaker = Breaker()
    breaker.acquired(0)
    assert breaker.settled(1, 0, LIMITS, 0)
    assert breaker.state is CLOSED
    return breaker


def opened(now_ms: int = 0) -> Breaker:
    breaker = closed()
    assert breaker.settled(0, 2, LIMITS, now_ms)
    assert breaker.state is OPEN
    return breaker


def test_new_breaker_probes_with_one_record() -> None:
    breaker = Breaker()
    assert breaker.room(LIMITS, 0) == 1
    breaker.acquired(0)
    assert breaker.room(LIMITS, 9) == 0
    assert breaker.settled(1, 0, LIMITS, 9)
    assert breaker.room(LIMITS, 9) is None


def test_failures_below_the_percentage_are_no_reason() -> None:
    breaker = closed()
    for _ in range(100):
        assert not breaker.settled(3, 1, LIMITS, 0)
    assert breaker.room(LIMITS, 0) is None


def test_failures_among_the_last_records_open_it() -> None:
    breaker = closed()
    assert not breaker.settled(1_000_000, 0, LIMITS, 0)
    assert not breaker.settled(0, 1, LIMITS, 0)
    assert not breaker.settled(2, 0, LIMITS, 0)
    assert breaker.settled(0, 1, LIMITS, 7)
    assert (
        breaker.state,
        breaker.room(LIMITS, 7),
        breaker.room(LIMITS, 16),
        breaker.room(LIMITS, 17),
    ) == (OPEN, 0, 0, 1)


def test_failures_that_are_older_than_the_window_are_forgotten() -> None:
    breaker = closed()
    for _ in range(100):
        assert not breaker.settled(0, 1, LIMITS, 0)
        assert not breaker.settled(3, 0, LIMITS, 0)


def test_probe_that_fails_opens_it_again_for_a_whole_pause() -> None:
    breaker = opened(0)
    breaker.acquired(10)
    assert (breaker.state, breaker.room(LIMITS, 19)) == (PROBING, 0)
    assert breaker.settled(0, 1, LIMITS, 15)
    assert (breaker.room(LIMITS, 24), breaker.room(LIMITS, 25)) == (0, 1)


def test_probe_without_an_outcome_is_followed_by_another() -> None:
    breaker = opened(0)
    breaker.acquired(10)
    assert (breaker.room(LIMITS, 19), breaker.room(LIMITS, 20)) == (0, 1)


def test_pause_that_is_made_shorter_ends_sooner() -> None:
    breaker = opened(0)
    assert breaker.room(BreakerLimits(percent=50, window=4, pause_ms=3_600_000), 1_000) == 0
    assert breaker.room(LIMITS, 10) == 1


def test_what_was_held_when_it_opened_changes_nothing() -> None:
    breaker = opened(0)
    assert not breaker.settled(5, 0, LIMITS, 1)
    assert not breaker.settled(0, 5, LIMITS, 9)
    assert (breaker.state, breaker.room(LIMITS, 10)) == (OPEN, 1)


def test_it_begins_anew_when_it_closes() -> None:
    breaker = opened(0)
    breaker.acquired(10)
    assert breaker.settled(1, 0, LIMITS, 10)
    assert not breaker.settled(0, 1, LIMITS, 10), "older failures do not count"


def test_records_that_are_settled_together_count_by_their_part_that_failed() -> None:
    """Of a worker's request most were rejected, and more were accepted than the window holds."""
    assert closed().settled(100, 500, LIMITS, 0)
    breaker = closed()
    for _ in range(100):
        assert not breaker.settled(700, 200, LIMITS, 0)
    limits = BreakerLimits(percent=50, window=100, pause_ms=1)
    for accepted, failed, opens in ((44, 36, False), (36, 44, True)):
        breaker = closed()
        assert any(breaker.settled(accepted, failed, limits, 0) for _ in range(50)) is opens


def test_smaller_window_forgets_what_was_before_it() -> None:
    breaker = closed()
    large = BreakerLimits(percent=50, window=1_000, pause_ms=1)
    assert not breaker.settled(0, 400, large, 0)
    assert not breaker.settled(100, 0, large, 0)
    assert not breaker.settled(0, 0, BreakerLimits(percent=50, window=100, pause_ms=1), 0)


@pytest.mark.parametrize("percent", [1, 100])
def test_extreme_percentages(percent: int) -> None:
    limits = BreakerLimits(percent=percent, window=100, pause_ms=1)
    breaker = closed()
    assert breaker.settled(0, percent - 1, limits, 0) is False
    assert breaker.settled(0, 1, limits, 0)


def test_window_is_all_that_it_remembers() -> None:
    breaker = closed()
    for _ in range(1_000):
        breaker.settled(1, 1, BreakerLimits(percent=100, window=10, pause_ms=1), 0)
    assert len(breaker._outcomes) <= 10


Event = tuple[str, int]
EVENTS: tuple[Event, ...] = (("accept", 1), ("fail", 1), ("acquire", 0), ("wait", 10))


def histories(length: int) -> Iterator[tuple[Event, ...]]:
    return product(EVENTS, repeat=length)


def test_every_history_agrees_with_a_list_of_outcomes() -> None:
    """All histories of seven events, against the text of the module read literally."""
    for history in histories(7):
        breaker, now_ms = Breaker(), 0
        state, outcomes, probe_ms = PROBING, list[bool](), 0
        for kind, amount in history:
            if kind == "wait":
                now_ms += amount
            elif kind == "acquire":
                if breaker.room(LIMITS, now_ms) == 0:
                    continue
                breaker.acquired(now_ms)
                if state is not CLOSED:
                    state, probe_ms = PROBING, now_ms + LIMITS.pause_ms
            else:
                has_failed, before = kind == "fail", state
                if state is CLOSED:
                    outcomes = [*outcomes, has_failed][-LIMITS.window :]
                    if sum(outcomes) * 100 >= LIMITS.percent * LIMITS.window:
                        state, outcomes, probe_ms = OPEN, [], now_ms + LIMITS.pause_ms
                elif state is PROBING:
                    state = OPEN if has_failed else CLOSED
                    probe_ms = now_ms + LIMITS.pause_ms if has_failed else 0
                changed = breaker.settled(not has_failed, has_failed, LIMITS, now_ms)
                assert changed == (state is not before) or (before, state) == (PROBING, OPEN)
            room = None if state is CLOSED else int(now_ms >= probe_ms)
            assert (breaker.state, breaker.room(LIMITS, now_ms)) == (state, room), history
