"""The level of concurrency is found from what handlers take, on services with a known capacity."""

from __future__ import annotations

import pytest

from sharegroup.worker.running.level import LEVEL_MAX, Level


def settled(capacity: int, *, alone_seconds: float = 0.01, windows: int = 400) -> list[int]:
    """The levels at a service that does so many at a time, each in ``alone_seconds``."""
    level, seen = Level(), []
    for _ in range(windows):
        running = level.now
        each = alone_seconds * max(1.0, running / capacity)
        level.window(runs=running * 5, seconds=running * 5 * each, running=running)
        seen.append(level.now)
    return seen


@pytest.mark.parametrize("capacity", [4, 16, 64, 200])
def test_the_level_settles_a_little_above_the_capacity(capacity: int) -> None:
    last = settled(capacity)[-80:]
    assert capacity <= sorted(last)[10]  # But for the windows of a probe.
    assert max(last) <= 2 * capacity + 8


def test_where_nothing_is_scarce_the_level_grows_to_its_bound() -> None:
    seen = settled(10_000)
    assert max(seen) == seen[190] == LEVEL_MAX
    assert seen[:95] == sorted(seen[:95])


def test_the_level_follows_a_capacity_that_falls() -> None:
    level = Level()
    for capacity, most in ((100, 260), (10, 40)):
        for _ in range(400):
            running = level.now
            each = 0.01 * max(1.0, running / capacity)
            level.window(runs=running, seconds=running * each, running=running)
        assert level.now <= most


def test_window_with_idle_lanes_does_not_change_the_level() -> None:
    level = Level(start=40)
    level.window(runs=1000, seconds=10.0, running=10)
    assert level.now == 40


def test_one_handler_at_a_time_is_the_least() -> None:
    level = Level(start=1)
    level.window(runs=10, seconds=0.01, running=1)
    for _ in range(100):
        level.window(runs=10, seconds=1000.0, running=level.now)
    assert level.now >= 1
