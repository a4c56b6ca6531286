"""Where a record waits: every delay walks down the tiers, and arrives in time."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from sharegroup.worker.decisions.tiers import TIERS, Tiers

DAY_MS = 24 * 60 * 60 * 1000


def walk(delay_ms: int, tiers: Tiers = TIERS, lag_ms: int = 0) -> tuple[list[str], int]:
    """The topics on the way of a record, and how late it arrives; each step takes ``lag_ms``."""
    now_ms, way = 0, []
    while True:
        now_ms += lag_ms
        topic = tiers.next_topic("g", delay_ms - now_ms, delay_ms)
        way.append(topic.removeprefix("g.retry").removeprefix("."))
        if topic == "g.retry":
            return way, now_ms - delay_ms
        fixed_ms = tiers.delay_ms("g", topic)
        now_ms = delay_ms if fixed_ms is None else now_ms + fixed_ms


def test_default_tiers_have_these_topics() -> None:
    assert TIERS.topics("billing") == (
        "billing.retry.6h",
        "billing.retry.1h",
        "billing.retry.10m",
        "billing.retry.2m",
        "billing.retry.30s",
        "billing.retry.5s",
        "billing.retry.due",
    )


@pytest.mark.parametrize(
    ("delay_ms", "way"),
    [
        pytest.param(0, [""], id="at once"),
        pytest.param(-5, [""], id="long ago"),
        pytest.param(1, ["due", ""], id="a millisecond"),
        pytest.param(4_000, ["due", ""], id="below the smallest"),
        pytest.param(5_000, ["5s", ""], id="exactly the smallest"),
        pytest.param(8_000, ["5s", "due", ""], id="odd"),
        pytest.param(60_000, ["30s", "30s", ""], id="twice"),
        pytest.param(3_600_000, ["1h", ""], id="an hour"),
        pytest.param(25_203_000, ["6h", "1h", "due", ""], id="a short rest is kept precise"),
        pytest.param(4_043_000, ["1h", *["2m"] * 4, ""], id="a little late and six steps less"),
        pytest.param(DAY_MS, ["6h", "6h", "6h", "6h", ""], id="longer than the longest"),
    ],
)
def test_delay_walks_down_the_tiers(delay_ms: int, way: list[str]) -> None:
    assert walk(delay_ms)[0] == way


def test_record_due_slightly_before_the_delay_of_a_tier_uses_that_tier() -> None:
    assert TIERS.next_topic("g", 3_599_900, 3_600_000) == "g.retry.1h"
    assert TIERS.next_topic("g", 3_540_000, 3_600_000) == "g.retry.1h"
    assert TIERS.next_topic("g", 3_539_999, 3_600_000) == "g.retry.10m"
    assert TIERS.next_topic("g", 4_900, 5_000) == "g.retry.5s"
    assert TIERS.next_topic("g", 4_899, 5_000) == "g.retry.due"


@given(st.integers(0, 60 * DAY_MS))
def test_no_delay_ends_early_nor_later_than_allowed(delay_ms: int) -> None:
    way, late_ms = walk(delay_ms)
    assert 0 <= late_ms <= min(delay_ms // 50 + 1, 60_000)
    # What the longest tier leaves needs at most so many steps of the others, and `due`.
    assert len(way) <= delay_ms // 21_600_000 + 6 + 6 + 5 + 4 + 6 + 2


@given(st.integers(0, 60 * DAY_MS), st.integers(0, 20))
def test_steps_that_take_time_make_no_walk_longer_than_its_delay(
    delay_ms: int, lag_ms: int
) -> None:
    way, late_ms = walk(delay_ms, lag_ms=lag_ms)
    assert 0 <= late_ms <= min(delay_ms // 50 + 1, 60_000) + lag_ms
    assert len(way) <= delay_ms // 21_600_000 + 29


@given(
    st.lists(st.integers(1, 10**9), min_size=1, max_size=6),
    st.integers(0, 10**10),
)
def test_any_set_of_tiers_reaches_the_delay(delays_ms: list[int], delay_ms: int) -> None:
    tiers = Tiers.of(number / 1000 for number in delays_ms)
    left_ms, steps = delay_ms, 0
    while (topic := tiers.next_topic("g", left_ms, delay_ms)) != "g.retry" and steps < 1_000:
        fixed_ms = tiers.delay_ms("g", topic)
        left_ms, steps = left_ms - (left_ms if fixed_ms is None else fixed_ms), steps + 1
    assert left_ms >= -60_000
    assert steps == 1_000 or left_ms <= 0


def test_tiers_are_named_as_durations_are_written() -> None:
    tiers = Tiers.of((0.2, "1500ms", "1h30m", 60, "7d", "1s"))
    assert [tier.name for tier in tiers.tiers] == ["1w", "1h30m", "1m", "1s500ms", "1s", "200ms"]


@pytest.mark.parametrize("delays", [(), (0,), ("1s", 0.0001)])
def test_tier_without_a_delay_is_refused(delays: tuple[float | str, ...]) -> None:
    with pytest.raises(ValueError, match="retry tiers: expected delays of 1 ms or more"):
        Tiers.of(delays)
