"""What all rows of the table become."""

from __future__ import annotations

from collections import Counter

from examples.flights.departures import Kind, departures
from tests.support.chosen_broker import LONG_WITH_A_JVM


@LONG_WITH_A_JVM
def test_all_flights_fall_into_the_three_kinds_as_counted_by_hand() -> None:
    counts = Counter(departure.kind for departure in departures(336_776))
    assert counts == {Kind.GOOD: 328_196, Kind.CANCELLED: 8_244, Kind.POISON: 336}
