"""Lengths of time, and times, as people write them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from sharegroup.durations import due_ms_of, seconds
from sharegroup.errors import InvalidConfig
from sharegroup.worker import Retry, RetryAfter


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (0, 0.0),
        (3, 3.0),
        (2.5, 2.5),
        ("250ms", 0.25),
        ("1s", 1.0),
        ("1.5s", 1.5),
        ("2m", 120.0),
        ("1h30m", 5_400.0),
        ("1h 30m", 5_400.0),
        ("7d", 604_800.0),
        ("1w2d", 777_600.0),
        (" 1d2h3m4s5ms ", 93_784.005),
        (timedelta(minutes=5), 300.0),
    ],
)
def test_duration_is_read(written: object, expected: float) -> None:
    assert seconds(written) == expected


def test_tenth_of_a_second_is_the_same_in_both_units() -> None:
    assert seconds("100ms") == seconds("0.1s") == seconds(0.1)


@pytest.mark.parametrize(
    "written",
    ["", "90", "s", "1.s", "1 hour", "30m1h", "1s1s", "-1s", "1e3s", "1h!", "1 m s", -1, -0.5],
)
def test_invalid_duration_is_refused_with_its_value(written: object) -> None:
    with pytest.raises(ValueError, match="a duration: expected") as raised:
        seconds(written)
    assert str(raised.value).endswith(f"got {written!r}")


@pytest.mark.parametrize("written", [float("inf"), float("nan")])
def test_duration_without_an_end_is_refused(written: float) -> None:
    with pytest.raises(ValueError, match="expected a finite number, 0 or more"):
        seconds(written)


@pytest.mark.parametrize("written", [True, None, b"1s", [1]])
def test_duration_of_another_type_is_refused(written: object) -> None:
    with pytest.raises(TypeError, match=f"got {type(written).__name__}"):
        seconds(written)


@pytest.mark.parametrize("written", [10**400, 1e300, "9" * 400 + "w", "99999999999999999s"])
def test_duration_too_long_for_a_header_in_milliseconds_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="up to 9223372036854775 seconds; got "):
        seconds(written)


def test_delay_longer_than_a_scheduler_obeys_is_refused_where_it_is_given() -> None:
    assert RetryAfter("366d").delay_seconds == 366 * 86_400
    with pytest.raises(ValueError, match="a delay: expected up to 366 days; got '53w'"):
        RetryAfter("53w")
    with pytest.raises(InvalidConfig, match="Retry: max_delay: a delay: expected up to 366 days"):
        Retry(max_delay="53w")


BERLIN = ZoneInfo("Europe/Berlin")
NOW_MS = 1_767_225_600_000  # 2026-01-01 00:00 UTC


@pytest.mark.parametrize(
    ("at", "utc"),
    [
        (datetime(2026, 1, 31, 9, 0, tzinfo=UTC), "2026-01-31T09:00:00+00:00"),
        (datetime(2026, 1, 31, 9, 0, tzinfo=BERLIN), "2026-01-31T08:00:00+00:00"),
        (datetime(2026, 7, 31, 9, 0, tzinfo=BERLIN), "2026-07-31T07:00:00+00:00"),
        (datetime(2026, 7, 31, 9, 0, tzinfo=timezone(-timedelta(hours=3, minutes=30))),
         "2026-07-31T12:30:00+00:00"),
        # The clocks go forward at 2:00, so 2:30 does not exist: half an hour after the change.
        (datetime(2026, 3, 29, 2, 30, tzinfo=BERLIN), "2026-03-29T01:30:00+00:00"),
        # They go back at 3:00, so 2:30 is twice: the first one, or with fold=1 the second.
        (datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN), "2026-10-25T00:30:00+00:00"),
        (datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1), "2026-10-25T01:30:00+00:00"),
        # On the southern half summer time is in January; Kathmandu has a quarter of an hour.
        (datetime(2026, 1, 31, 9, 0, tzinfo=ZoneInfo("Australia/Sydney")),
         "2026-01-30T22:00:00+00:00"),
        (datetime(2026, 1, 31, 9, 0, tzinfo=ZoneInfo("Asia/Kathmandu")),
         "2026-01-31T03:15:00+00:00"),
    ],
)  # fmt: skip
def test_time_of_a_zone_is_one_instant(at: datetime, utc: str) -> None:
    expected_ms = round(datetime.fromisoformat(utc).timestamp()) * 1000
    assert due_ms_of(at, now_ms=NOW_MS) == expected_ms


def test_day_later_in_a_zone_is_the_same_wall_clock_time() -> None:
    """Python adds a day on the wall clock, so across the change of the clocks it has 23 hours."""
    before = datetime(2026, 3, 28, 12, 0, tzinfo=BERLIN)
    first, second = (due_ms_of(at, now_ms=NOW_MS) for at in (before, before + timedelta(days=1)))
    assert second - first == 23 * 3_600_000


def test_time_is_never_rounded_to_an_earlier_one() -> None:
    at = datetime(2026, 1, 1, 0, 0, 1, 1, tzinfo=UTC)
    assert due_ms_of(at, now_ms=NOW_MS) == NOW_MS + 1_001
    old = datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    assert due_ms_of(old, now_ms=NOW_MS) == 0


class NoOffset(tzinfo):
    """A zone that knows no offset, which Python takes as no zone."""

    def utcoffset(self, _: datetime | None) -> None:
        return None


@pytest.mark.parametrize("zone", [None, NoOffset()])
def test_time_without_a_zone_is_refused_and_told_how_to_give_one(zone: tzinfo | None) -> None:
    with pytest.raises(ValueError, match="2026-01-31T09:00:00 has no zone") as raised:
        due_ms_of(datetime(2026, 1, 31, 9, 0, tzinfo=zone), now_ms=NOW_MS)
    assert "tzinfo=ZoneInfo('Europe/Berlin')" in str(raised.value)
    assert "datetime.now(UTC)" in str(raised.value)


@pytest.mark.parametrize("at", [date(2026, 1, 31), "2026-01-31T09:00Z", 1_767_225_600, None])
def test_time_of_another_type_is_refused(at: Any) -> None:
    with pytest.raises(TypeError, match="at: expected a datetime with a zone, got"):
        due_ms_of(at, now_ms=NOW_MS)


@pytest.mark.parametrize("hours", [-23, 0, 23])
def test_time_at_the_ends_of_the_calendar_is_compared_and_not_an_error(hours: int) -> None:
    zone = timezone(timedelta(hours=hours))
    assert due_ms_of(datetime.min.replace(tzinfo=zone), now_ms=NOW_MS) < 0
    with pytest.raises(ValueError, match="within the next 366 days, got 9999-12-31"):
        due_ms_of(datetime.max.replace(tzinfo=zone), now_ms=NOW_MS)
