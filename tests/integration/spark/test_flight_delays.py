"""What the demo's query makes of flights, on a handful of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from sharegroup.demo.delays import added_up, by_batch_job, differing, figures, parsed

FLIGHTS = """\
number,dep_time,dep_delay,carrier,hour
1,517,2,UA,5
2,600,30,UA,5
3,555,-6,UA,5
4,NA,NA,UA,5
5,NA,NA,YV,6
1000,700,500,UA,5
"""
FIGURES = [("UA", 5, 4, 3, 26, 1, 30), ("YV", 6, 1, 0, 0, 0, None)]
"""Carrier, hour, flights, departed, minutes, late, longest; without the thousandth flight."""


@pytest.fixture
def expected(spark: SparkSession, tmp_path: Path) -> DataFrame:
    (tmp_path / "flights.csv").write_text(FLIGHTS)
    return by_batch_job(spark, str(tmp_path / "flights.csv"))


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
    assert read == [("UA", 5, 2, None), ("UA", 5, None, None), None, None, None]


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
    [
        [("UA", 5, 4, 3, 27, 1, 30), FIGURES[1]],
        [FIGURES[0], ("YV", 6, 1, 0, 0, 0, 1)],
        [FIGURES[0]],
        [*FIGURES, ("AA", 6, 1, 1, 1, 0, 1)],
    ],
    ids=["other-figure", "figure-for-none", "one-less", "one-more"],
)
def test_a_group_that_is_not_the_same_is_counted(
    spark: SparkSession, expected: DataFrame, false: list[tuple[object, ...]]
) -> None:
    names = "carrier STRING, hour INT, flights LONG, departed LONG, minutes LONG, late LONG"
    streamed = spark.createDataFrame(false, f"{names}, longest INT")
    assert differing(streamed, expected) == 1
