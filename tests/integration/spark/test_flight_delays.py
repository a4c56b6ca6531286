"""What the demo's query makes of flights, on a handful of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from examples.flights.delays import (
    added_up,
    by_batch_job,
    differing,
    figures,
    parsed,
    readable_flights,
)
from examples.flights.weather import by_week, weather, weeks_added_up, weeks_differing
from tests.support.chosen_broker import sample

FLIGHTS = """\
number,dep_time,dep_delay,carrier,hour,origin,time_hour
1,517,2,UA,5,EWR,2013-01-01T10:00:00Z
2,600,30,UA,5,EWR,2013-01-01T10:00:00Z
3,555,-6,UA,5,JFK,2013-01-01T10:00:00Z
4,NA,NA,UA,5,EWR,2013-01-08T10:00:00Z
5,NA,NA,YV,6,LGA,2013-01-08T11:00:00Z
1000,700,500,UA,5,EWR,2013-01-01T10:00:00Z
"""
FIGURES = [("UA", 5, 4, 3, 26, 1, 30), ("YV", 6, 1, 0, 0, 0, None)]
"""Carrier, hour, flights, departed, minutes, late, longest; without the thousandth flight."""


@pytest.fixture
def expected(spark: SparkSession, tmp_path: Path) -> DataFrame:
    (tmp_path / "flights.csv").write_text(FLIGHTS)
    return by_batch_job(spark, str(tmp_path / "flights.csv"))


NOTHING = (None, None, None)
"""Airport, hour and unparsed text of a flight whose JSON has none of them."""


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def test_truncated_json_has_no_flight(spark: SparkSession) -> None:
    values = [
        ('{"carrier":"UA","hour":5,"dep_delay":2,"flight":1545}',),
        ('{"carrier":"UA","hour":5,"dep_delay":null}',),
        ('{"carrier":"UA","hour":5,"dep_',),
        ('{"carrier":"UA","hour":5,"dep_delay":2',),
        ("",),
    ]
    flights = parsed(spark.createDataFrame(values, "value STRING")).select("flight").collect()
    read = [None if flight.flight is None else tuple(flight.flight) for flight in flights]
    assert read == [("UA", 5, 2, *NOTHING), ("UA", 5, None, *NOTHING), None, None, None]


def test_batch_job_counts_departures_cancellations_and_delays(expected: DataFrame) -> None:
    assert rows(expected) == FIGURES


def test_sum_of_partial_figures_equals_the_total(spark: SparkSession, expected: DataFrame) -> None:
    columns = "carrier STRING, hour INT, dep_delay INT"
    frame = spark.createDataFrame([("UA", 5, 2), ("UA", 5, None), ("YV", 6, None)], columns)
    two = spark.createDataFrame([("UA", 5, 30), ("UA", 5, -6)], columns)
    streamed = added_up(figures(frame).union(figures(two)))
    assert rows(streamed) == FIGURES
    assert differing(streamed, expected) == 0


@pytest.mark.parametrize(
    "false",
    sample(
        [
            [("UA", 5, 4, 3, 27, 1, 30), FIGURES[1]],
            [FIGURES[0], ("YV", 6, 1, 0, 0, 0, 1)],
            [FIGURES[0]],
            [*FIGURES, ("AA", 6, 1, 1, 1, 0, 1)],
        ],
        count=2,
    ),
    ids=["other-figure", "figure-for-none", "one-less", "one-more"],
)
def test_a_group_that_is_not_the_same_is_counted(
    spark: SparkSession, expected: DataFrame, false: list[tuple[object, ...]]
) -> None:
    names = "carrier STRING, hour INT, flights LONG, departed LONG, minutes LONG, late LONG"
    streamed = spark.createDataFrame(false, f"{names}, longest INT")
    assert differing(streamed, expected) == 1


HOURS = [("EWR", "2013-01-01T10:00:00Z", True), ("JFK", "2013-01-01T10:00:00Z", False)]


@pytest.mark.slow
def test_weeks_of_batches_add_up_to_those_of_the_table(spark: SparkSession, tmp_path: Path) -> None:
    """Of the second week the weather is not known; a window of seven days begins on a Thursday."""
    (tmp_path / "flights.csv").write_text(FLIGHTS)
    flights = readable_flights(spark, str(tmp_path / "flights.csv"))
    hours = spark.createDataFrame(HOURS, "origin STRING, time STRING, wet BOOLEAN").selectExpr(
        "origin", "cast(time AS timestamp) time_hour", "wet"
    )
    whole = by_week(flights, hours)
    found = sorted(tuple(row) for row in whole.where("wet is not null").collect())
    assert found == [("2012-12-27", False, 1, 1, -6), ("2012-12-27", True, 2, 2, 32)]
    assert [tuple(row) for row in whole.where("wet is null").collect()] == [
        ("2013-01-03", None, 2, 0, 0)
    ]
    halves = [by_week(flights.where(f"number % 2 = {rest}"), hours) for rest in (0, 1)]
    streamed = weeks_added_up(halves[0].union(halves[1]))
    assert weeks_differing(streamed, whole) == 0
    assert weeks_differing(streamed.where("wet"), whole) == 2
    # Without the even flights: one of two wet flights, and one of two without weather.
    assert weeks_differing(weeks_added_up(halves[1]), whole) == 2


def test_weather_has_one_row_for_each_airport_and_hour(spark: SparkSession) -> None:
    hours = weather(spark).persist()
    assert hours.count() == hours.select("origin", "time_hour").distinct().count() > 26_000
    assert 0 < hours.where("wet").count() < hours.where("not wet").count()
