"""The instants of schedules, with the days on which clocks are changed."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, strategies as st

from sharegroup.errors import InvalidConfig
from sharegroup.schedules.timing import Cron, Interval, Timing, instants, last_in

BERLIN = "Europe/Berlin"
HOUR_MS = 3_600_000


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def between(timing: Timing, first: str, last: str, zone: str = BERLIN) -> list[str]:
    """The instants of (first, last] as local times with their offset."""
    return [
        datetime.fromtimestamp(due / 1000, UTC)
        .astimezone(ZoneInfo(zone))
        .isoformat(timespec="minutes")
        for due in instants(timing, ms(first), ms(last))
    ]


def test_an_interval_is_due_at_its_multiples_since_1970() -> None:
    every = Interval(300_000)

    assert every.next_after(0) == 300_000
    assert every.next_after(299_999) == 300_000
    assert every.next_after(300_000) == 600_000


def test_weekdays_at_six_in_berlin() -> None:
    times = between(Cron("0 6 * * 1-5", BERLIN), "2026-01-02T12:00+01:00", "2026-01-07T00:00+01:00")

    # The 3rd and 4th are Saturday and Sunday.
    assert times == ["2026-01-05T06:00+01:00", "2026-01-06T06:00+01:00"]


def test_a_fixed_time_in_the_gap_is_due_at_its_end() -> None:
    times = between(Cron("30 2 * * *", BERLIN), "2026-03-28T00:00+01:00", "2026-03-31T00:00+02:00")

    assert times == [
        "2026-03-28T02:30+01:00",
        "2026-03-29T03:00+02:00",
        "2026-03-30T02:30+02:00",
    ]


def test_two_fixed_times_in_the_gap_are_one_run() -> None:
    times = between(
        Cron("15,45 2 * * *", BERLIN), "2026-03-29T00:00+01:00", "2026-03-30T00:00+02:00"
    )

    assert times == ["2026-03-29T03:00+02:00"]


def test_a_fixed_time_in_the_overlap_is_due_once() -> None:
    times = between(Cron("30 2 * * *", BERLIN), "2026-10-24T00:00+02:00", "2026-10-27T00:00+01:00")

    assert times == [
        "2026-10-24T02:30+02:00",
        "2026-10-25T02:30+02:00",
        "2026-10-26T02:30+01:00",
    ]


def test_a_fixed_time_is_not_due_again_in_the_repeated_hour() -> None:
    """An owner that takes over in the second 2:10 must not run 2:30 again."""
    second_pass = ms("2026-10-25T02:10+01:00")

    assert Cron("30 2 * * *", BERLIN).next_after(second_pass) == ms("2026-10-26T02:30+01:00")


def test_an_hourly_expression_follows_real_time() -> None:
    hourly = Cron("0 * * * *", BERLIN)

    assert between(hourly, "2026-03-29T00:30+01:00", "2026-03-29T04:00+02:00") == [
        "2026-03-29T01:00+01:00",
        "2026-03-29T03:00+02:00",
        "2026-03-29T04:00+02:00",
    ]
    assert between(hourly, "2026-10-25T01:30+02:00", "2026-10-25T03:00+01:00") == [
        "2026-10-25T02:00+02:00",
        "2026-10-25T02:00+01:00",
        "2026-10-25T03:00+01:00",
    ]


EXPRESSIONS = (
    "30 2 * * *", "0 3 * * *", "15,45 2 * * *", "*/10 2 * * *", "*/7 * * * *", "0 */2 * * *",
    "59 1,2,3 * * *", "0 0 * * *", "30 1 29-31 * *", "0 12 * * SUN#2",
)  # fmt: skip
CHANGES = [
    ms("2026-03-29T01:00+00:00"),
    ms("2026-10-25T01:00+00:00"),
    ms("2026-03-08T07:00+00:00"),
    ms("2026-11-01T06:00+00:00"),
]
TROLL = "Antarctica/Troll"
"""Its clocks change with those of Berlin, by two hours."""
"""When the clocks of Berlin, of New York and of Troll change."""


@given(
    expression=st.sampled_from(EXPRESSIONS),
    zone=st.sampled_from((BERLIN, "America/New_York", TROLL, "UTC")),
    change=st.sampled_from(CHANGES),
    before_ms=st.integers(0, 30 * HOUR_MS),
    after_ms=st.integers(0, 30 * HOUR_MS),
)
def test_instants_do_not_depend_on_where_one_begins(
    expression: str, zone: str, change: int, before_ms: int, after_ms: int
) -> None:
    timing, end = Cron(expression, zone), change + 32 * HOUR_MS
    every = list(instants(timing, change - 32 * HOUR_MS, end))
    start = change - before_ms + after_ms

    assert list(instants(timing, start, end)) == [due for due in every if due > start]
    assert last_in(timing, change - 32 * HOUR_MS, start) == max(
        (due for due in every if due <= start), default=None
    )


def test_the_last_instant_of_years_is_found_at_once() -> None:
    assert last_in(Interval(1_000), 0, ms("2026-01-01T00:00:00.5+00:00")) == ms(
        "2026-01-01T00:00+00:00"
    )
    assert last_in(Cron("0 0 29 2 *"), 0, ms("2026-01-01T00:00+00:00")) == ms(
        "2024-02-29T00:00+00:00"
    )
    assert last_in(Interval(1_000), 5_000, 5_000) is None


@pytest.mark.parametrize(
    ("expression", "zone", "says"),
    [
        ("0 6 * *", "UTC", "five fields"),
        ("61 * * * *", "UTC", "Bad minute"),
        ("0 0 30 2 *", "UTC", "day"),
        ("0 6 * * 1-5", "Berlin", "IANA"),
        ("0 6 * * 1-5", "../../etc/passwd", "IANA"),
        ("0 6 * * 1-5", "Australia/Lord_Howe", "0:30:00; expected whole hours. Use timezone='UTC'"),
        ("0 6 * * \x1b[2J", "UTC", r"\\x1b"),
        ("*" * 201, "UTC", "at most 200"),
    ],
)
def test_a_wrong_expression_is_refused_with_what_is_expected(
    expression: str, zone: str, says: str
) -> None:
    with pytest.raises(InvalidConfig, match=says):
        Cron(expression, zone)


def test_an_interval_below_a_second_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="1000 ms"):
        Interval(999)
