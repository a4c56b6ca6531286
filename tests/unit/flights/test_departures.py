"""What the rows of the table become."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from examples.flights.departures import Kind, departures, from_table, write_table

COLUMNS = ("dep_time", "carrier", "flight", "tailnum")


def test_row_becomes_json_with_whole_numbers_and_texts() -> None:
    (departure,) = from_table(COLUMNS, iter([("517", "UA", "1545", "N14228")]))
    assert departure == (
        Kind.GOOD,
        b"UA1545",
        b'{"dep_time":517,"carrier":"UA","flight":1545,"tailnum":"N14228"}',
    )


def test_missing_value_is_null_and_without_departure_time_a_flight_is_cancelled() -> None:
    (departure,) = from_table(COLUMNS, iter([("NA", "EV", "4308", "NA")]))
    assert departure.kind is Kind.CANCELLED
    assert json.loads(departure.value)["dep_time"] is None
    assert json.loads(departure.value)["tailnum"] is None


def test_every_thousandth_record_is_cut_in_half_even_if_cancelled() -> None:
    rows = [("NA", "EV", "1", "N1")] * 2_000
    kinds = [departure.kind for departure in from_table(COLUMNS, iter(rows))]
    assert [n for n, kind in enumerate(kinds, start=1) if kind is Kind.POISON] == [1_000, 2_000]


def test_record_cut_in_half_is_unreadable() -> None:
    poison = list(from_table(COLUMNS, iter([("517", "UA", "1545", "N14228")] * 1_000)))[-1]
    assert poison.value == b'{"dep_time":517,"carrier":"UA","'
    with pytest.raises(json.JSONDecodeError):
        json.loads(poison.value)


def test_first_rows_are_the_first_of_the_table() -> None:
    first, second = departures(2)
    assert (first.key, second.key) == (b"UA1545", b"UA1714")


def test_table_is_written_unchanged_with_flight_numbers(tmp_path: Path) -> None:
    write_table(tmp_path / "flights.csv", 2)
    header, first, second = (tmp_path / "flights.csv").read_text().splitlines()
    assert header.startswith("number,year,month,day,dep_time,")
    assert first == (
        "1,2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z"
    )
    assert second.startswith("2,2013,1,1,533,529,4,")
