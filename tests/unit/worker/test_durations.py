"""Lengths of time, as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sharegroup.errors import InvalidConfig
from sharegroup.worker import Retry, RetryAfter
from sharegroup.worker.durations import seconds


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
