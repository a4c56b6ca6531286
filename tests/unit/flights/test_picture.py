"""The picture: which figures are in it, and that it is one."""

from __future__ import annotations

import math
import struct
from datetime import date
from pathlib import Path

from examples.flights.picture import (
    by_departures,
    carrier_names,
    draw,
    hours_of,
    means,
    weekly_means,
)
from examples.flights.query_account import Delays, Week

DELAYS = [
    Delays("AA", 6, flights=30, departed=30, minutes=-15, late=1, longest=20),
    Delays("UA", 5, flights=101, departed=100, minutes=1_250, late=30, longest=300),
    Delays("UA", 7, flights=20, departed=19, minutes=190, late=2, longest=40),
    Delays("YV", 7, flights=3, departed=0, minutes=0, late=0, longest=None),
]

WEEKS = [
    Week("2013-01-03", wet=False, flights=50, departed=40, minutes=400),
    Week("2013-01-03", wet=True, flights=30, departed=20, minutes=700),
    Week("2013-01-10", wet=None, flights=50, departed=50, minutes=0),
    Week("2013-01-10", wet=True, flights=30, departed=19, minutes=700),
]


def test_weeks_with_few_departures_are_left_out() -> None:
    first = date(2013, 1, 3)
    assert weekly_means(WEEKS, is_wet=False) == ([first], [10.0])
    assert weekly_means(WEEKS, is_wet=True) == ([first], [35.0])
    assert weekly_means([], is_wet=True) == ([], [])


def test_week_without_departures_interrupts_the_line() -> None:
    later = Week("2013-01-17", wet=False, flights=30, departed=30, minutes=30)
    days, minutes = weekly_means([*WEEKS, later], is_wet=False)
    assert days == [date(2013, 1, 3), date(2013, 1, 10), date(2013, 1, 17)]
    assert (minutes[0], math.isnan(minutes[1]), minutes[2]) == (10.0, True, 1.0)


def test_carrier_with_most_departures_is_first() -> None:
    assert by_departures(DELAYS) == ["UA", "AA", "YV"]


def test_mean_is_blank_where_fewer_than_twenty_departed() -> None:
    assert means(DELAYS, ["UA", "AA", "YV"], range(5, 8)) == [
        [12.5, None, None],
        [None, -0.5, None],
        [None, None, None],
    ]


def test_hours_extend_over_all_means() -> None:
    assert hours_of(DELAYS) == range(5, 7)
    assert hours_of(DELAYS[2:]) == range(7, 8)


def test_carriers_are_named_without_their_legal_form() -> None:
    names = carrier_names()
    assert (names["UA"], names["WN"], names["B6"]) == (
        "United Air Lines",
        "Southwest Airlines",
        "JetBlue Airways",
    )


def test_picture_is_a_png_of_the_promised_size(tmp_path: Path) -> None:
    draw(DELAYS, WEEKS, tmp_path / "delays.png")
    head = (tmp_path / "delays.png").read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", head[16:24]) == (1200, 1000)
