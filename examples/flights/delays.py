"""Computes delays of flights in Spark, by carrier and scheduled hour of departure.

The same figures are computed twice, from two independent sources:

    JSON of the topic -> parsed -> figures of each batch -> added up   the streaming query
    table of flights, without the cut-off ones -> figures              one batch job

All figures are counts, sums and maxima of whole numbers. So the figures of the batches add up
exactly to those of the whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from examples.flights.departures import MISSING, NUMBER, POISON_EVERY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORRUPT = "corrupt"
FLIGHT = (
    f"carrier STRING, hour INT, dep_delay INT, origin STRING, time_hour TIMESTAMP, {CORRUPT} STRING"
)
"""The schema of a flight's JSON; Spark puts text that it cannot parse into `CORRUPT`."""
GROUPS = ("carrier", "hour")
LATE_MINUTES = 15
"""A departure with this delay or more counts as late, as is usual in aviation."""


def parsed(records: DataFrame) -> DataFrame:
    """Add the column ``flight`` to the records; it is null where the JSON is invalid.

    From cut-off JSON, Spark reads the fields before the cut. Only the column `CORRUPT` shows it.
    """
    options = {"columnNameOfCorruptRecord": CORRUPT}
    flight = f.from_json(f.col("value").cast("string"), FLIGHT, options)
    readable = f.when(flight[CORRUPT].isNull(), flight)
    return records.withColumn("flight", readable)


def figures(flights: DataFrame) -> DataFrame:
    """Return the figures of flights with carrier, hour and dep_delay (null if cancelled)."""
    delay = f.col("dep_delay")
    return flights.groupBy(*GROUPS).agg(
        f.count("*").alias("flights"),
        f.count(delay).alias("departed"),
        f.coalesce(f.sum(delay), f.lit(0)).cast("long").alias("minutes"),
        f.count_if(delay >= LATE_MINUTES).alias("late"),
        f.max(delay).alias("longest"),
    )


def added_up(parts: DataFrame) -> DataFrame:
    """Return the figures of all batches together."""
    return parts.groupBy(*GROUPS).agg(
        *(f.sum(name).alias(name) for name in ("flights", "departed", "minutes", "late")),
        f.max("longest").alias("longest"),
    )


def readable_flights(spark: SparkSession, table: str) -> DataFrame:
    """Return the flights of the table itself, without those whose record was cut off."""
    flights = spark.read.csv(table, header=True, nullValue=MISSING).select(
        "carrier",
        "origin",
        f.col("time_hour").cast("timestamp").alias("time_hour"),
        *(f.col(name).cast("int") for name in (NUMBER, "hour", "dep_delay")),
    )
    return flights.where(f.col(NUMBER) % POISON_EVERY != 0)


def by_batch_job(spark: SparkSession, table: str) -> DataFrame:
    """Return the expected figures of the streaming query, computed from the table itself."""
    return figures(readable_flights(spark, table))


def differing(left: DataFrame, right: DataFrame) -> int:
    """Return the number of groups that are in one frame only or differ in any figure."""
    both = left.alias("left").join(right.alias("right"), list(GROUPS), "full_outer")
    same = f.lit(True)
    for name in ("flights", "departed", "minutes", "late", "longest"):
        same = same & f.col(f"left.{name}").eqNullSafe(f.col(f"right.{name}"))
    present = f.col("left.flights").isNotNull() & f.col("right.flights").isNotNull()
    return both.where(~(same & present)).count()
