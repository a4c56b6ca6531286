"""The history of groups: what is kept, for how long, and what rates come of it."""

from __future__ import annotations

from array import array

import pytest

from sharegroup.console.watch.history import (
    GROUP_POINTS_MIN,
    GROUPS_MAX,
    GROWTH_MS,
    MINUTE_MS,
    MINUTES_MS,
    SECONDS_MS,
    SETTLED_MAX,
    Columns,
    GroupHistory,
    History,
    Point,
    Series,
    Tier,
)

START = 1_700_000_040_000  # The begin of a minute.


def filled(seconds: int, *, step_ms: int = 1000, progress: int = 0, lag: int = 0) -> History:
    history = History()
    for number in range(seconds):
        history.add("g", at_ms=START + number * step_ms, lag=lag, progress=progress)
    return history


def test_group_without_points_has_no_figures() -> None:
    empty = History().of("g")
    assert empty.since(0) == []
    assert empty.settled_per_second() is None
    assert empty.growth() is None


def test_first_point_of_each_minute_is_one_of_the_minutes() -> None:
    history = filled(130)
    minutes = [point.at_ms for point in history.of("g").minutes.since(0)]
    assert minutes == [START, START + 60_000, START + 120_000]


def test_points_come_in_order_with_minutes_before_the_seconds() -> None:
    history = GroupHistory()
    for at in (START, START + MINUTE_MS):
        history.minutes.add(Point(at, 1, 0), keep_ms=MINUTES_MS)
    history.seconds.add(Point(START + MINUTE_MS, 2, 0), keep_ms=SECONDS_MS)
    assert [(point.at_ms - START, point.lag) for point in history.since(0)] == [(0, 1), (60_000, 2)]
    assert [point.lag for point in history.since(START + 1)] == [2]


def test_seconds_are_kept_for_two_hours_even_if_they_are_rare() -> None:
    history = filled(200, step_ms=MINUTE_MS)
    group = history.of("g")
    assert group.seconds.oldest() == Point(START + 79 * MINUTE_MS, 0, 0)
    assert len(group.minutes) == 200


def test_minutes_are_kept_for_eight_days() -> None:
    series = Series()
    for number in range(9 * 24 * 60):
        series.add(Point(START + number * MINUTE_MS, 0, 0), keep_ms=MINUTES_MS)
    assert len(series) == 8 * 24 * 60 + 1
    assert series.oldest() == Point(START + (24 * 60 - 1) * MINUTE_MS, 0, 0)


def test_all_groups_share_the_bound_equally() -> None:
    history = History(points_max=1_000)
    for number in range(2_000):
        history.add("old", at_ms=START + number * 1000, lag=1, progress=0)
    assert len(history) == 1_000
    for number in range(2_000, 4_000):
        for name in ("old", "new"):
            history.add(name, at_ms=START + number * 1000, lag=1, progress=0)
    assert (len(history.of("old")), len(history.of("new"))) == (500, 500)


def test_many_groups_keep_a_few_points_each() -> None:
    history = History(points_max=100)
    for number in range(50):
        for group in range(20):
            history.add(str(group), at_ms=START + number * 1000, lag=1, progress=0)
    assert {len(history.of(str(group))) for group in range(20)} == {GROUP_POINTS_MIN}


def test_forgotten_groups_give_their_points_back() -> None:
    history = filled(10)
    history.add("other", at_ms=START, lag=1, progress=0)
    history.keep({"other"})
    assert len(history) == 2
    assert history.of("g").since(0) == []


def test_clock_that_is_set_back_replaces_the_points_after_it() -> None:
    history = filled(100, progress=1)
    history.add("g", at_ms=START + 30_500, lag=7, progress=1)
    points = history.of("g").since(0)
    assert points[-1] == Point(START + 30_500, 7, 101)
    assert points[-2].at_ms == START + 30_000


def test_rate_is_that_of_the_last_half_minute() -> None:
    history = filled(60, progress=5)
    assert history.of("g").settled_per_second() == 5.0
    for number in range(60, 100):
        history.add("g", at_ms=START + number * 1000, lag=0, progress=0)
    assert history.of("g").settled_per_second() == 0.0


def test_rate_of_a_group_looked_at_once_a_minute_is_known() -> None:
    assert filled(3, step_ms=60_000, progress=120).of("g").settled_per_second() == 2.0


def test_points_far_apart_give_no_rate() -> None:
    assert filled(2, step_ms=6 * 60_000, progress=120).of("g").settled_per_second() is None


def test_growth_is_that_of_five_minutes() -> None:
    history = History()
    for number in range(GROWTH_MS // 1000 + 61):
        history.add("g", at_ms=START + number * 1000, lag=number, progress=0)
    assert history.of("g").growth() == 300


def test_growth_is_not_known_in_the_first_minutes_or_without_lag() -> None:
    assert filled(10, lag=3).of("g").growth() is None
    history = filled(400, lag=3)
    history.add("g", at_ms=START + 500_000, lag=None, progress=0)
    assert history.of("g").growth() is None


def columns(*points: tuple[int, int, int]) -> Columns:
    return Columns(*(array("q", (point[part] for point in points)) for part in range(3)))


def test_points_are_taken_once_and_the_first_of_a_minute_is_one_of_the_minutes() -> None:
    history = History()
    seconds = columns(*((START + second * 1000, second, 0) for second in range(90)))
    for _ in range(2):
        history.extend("g", Tier.SECONDS, seconds)
    group = history.of("g")
    assert [point.lag for point in group.seconds.since(0)] == list(range(90))
    assert [point.lag for point in group.minutes.since(0)] == [0, 60]
    history.extend("g", Tier.SECONDS, columns((START + 89_000, 7, 0), (START + 90_000, 8, 0)))
    assert [point.lag for point in group.seconds.since(START + 89_000)] == [89, 8]


def test_taken_points_drop_those_that_are_too_old() -> None:
    history = History()
    for at in (START, START + 1, START + SECONDS_MS + 1):
        history.extend("g", Tier.SECONDS, columns((at, 1, 1)))
    assert [point.at_ms - START for point in history.of("g").seconds.since(0)] == [
        1,
        SECONDS_MS + 1,
    ]


def test_taken_points_keep_the_bounds() -> None:
    history = History(points_max=100)
    history.extend("g", Tier.SECONDS, columns(*((START + at, 0, 0) for at in range(300))))
    assert len(history) == 100
    for number in range(GROUPS_MAX + 5):
        history.extend(str(number), Tier.MINUTES, columns((START, 0, 0)))
    assert len(history.group_ids()) == GROUPS_MAX


def test_earlier_points_come_before_those_of_this_console_and_settled_is_counted_on() -> None:
    earlier = filled(100, progress=2, lag=9)
    history = History()
    for second in range(95, 130):
        history.add("g", at_ms=START + second * 1000 + 500, lag=1, progress=3)
    history.restore("g", earlier.of("g"))
    points = history.of("g").since(0)
    assert [point.at_ms - START for point in points[94:98]] == [94_000, 95_000, 95_500, 96_500]
    assert [point.lag for point in points[94:98]] == [9, 9, 1, 1]
    assert [point.settled for point in points[94:98]] == [190, 192, 195, 198]
    assert history.of("g").settled_per_second() == 3.0
    history.add("g", at_ms=START + 131_000, lag=1, progress=4)
    assert history.of("g").since(0)[-1].settled == 192 + 35 * 3 + 4


def test_earlier_points_of_a_clock_that_was_ahead_are_dropped() -> None:
    earlier = filled(10)
    history = History()
    history.add("g", at_ms=START - 1000, lag=5, progress=0)
    history.restore("g", earlier.of("g"))
    assert [point.at_ms - START for point in history.of("g").since(0)] == [-1000]


@pytest.mark.parametrize("progress", [2**61, 2**70])
def test_offsets_that_no_log_can_have_do_not_end_the_history(progress: int) -> None:
    history = filled(3, progress=progress, lag=2**70)
    assert history.of("g").since(0)[-1] == Point(START + 2000, 2**63 - 1, SETTLED_MAX)
    history.restore("g", filled(1, progress=2**61).of("g"))
    assert history.of("g").seconds.newest() is not None
