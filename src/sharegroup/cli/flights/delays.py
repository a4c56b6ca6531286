"""What Spark makes of the flights: delays by carrier and scheduled hour of departure.

The same figures are computed twice, from two sources that meet nowhere:

    JSON of the topic -> parsed -> figures of each batch -> added up   the streaming query
    table of flights, cut-off ones left out -> figures                 one batch job

All figures are counts, sums and maxima of whole numbers, so those of the batches add up to
those of the whole, to the last digit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from sharegroup.cli.flights.departures import MISSING, NUMBER, POISON_EVERY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORRUPT = "corrupt"
FLIGHT = f"carrier STRING, hour INT, dep_delay INT, {CORRUPT} STRING"
"""What the query needs of a flight's JSON; `CORRUPT` is Spark's word for what it can't read."""
GROUPS = ("carrier", "hour")
LATE_MINUTES = 15
"""From here on a departure counts as late, by the custom of the trade."""


def parsed(records: DataFrame) -> DataFrame:
    """The records with the column ``flight``; null where the JSON can't be read.

    A cut-off JSON gives Spark the fields before the cut; only the corrupt column tells.
    """
    options = {"columnNameOfCorruptRecord": CORRUPT}
    flight = f.from_json(f.col("value").cast("string"), FLIGHT, options)
    readable = f.when(flight[CORRUPT].isNull(), flight)
    return records.withColumn("flight", readable)


def figures(flights: DataFrame) -> DataFrame:
    """Of flights with carrier, hour and dep_delay; a cancelled one has no delay."""
    delay = f.col("dep_delay")
    return flights.groupBy(*GROUPS).agg(
        f.count("*").alias("flights"),
        f.count(delay).alias("departed"),
        f.coalesce(f.sum(delay), f.lit(0)).cast("long").alias("minutes"),
        f.count_if(delay >= LATE_MINUTES).alias("late"),
        f.max(delay).alias("longest"),
    )


def added_up(parts: DataFrame) -> DataFrame:
    """The figures of all batches together."""
    return parts.groupBy(*GROUPS).agg(
        *(f.sum(name).alias(name) for name in ("flights", "departed", "minutes", "late")),
        f.max("longest").alias("longest"),
    )


def by_batch_job(spark: SparkSession, table: str) -> DataFrame:
    """The figures that the streaming query should come to, computed from the table itself."""
    flights = spark.read.csv(table, header=True, nullValue=MISSING).select(
        "carrier", *(f.col(name).cast("int") for name in (NUMBER, "hour", "dep_delay"))
    )
    return figures(flights.where(f.col(NUMBER) % POISON_EVERY != 0))


def differing(one: DataFrame, other: DataFrame) -> int:
    """How many groups are in one of them alone, or differ in any figure."""
    both = one.alias("one").join(other.alias("other"), list(GROUPS), "full_outer")
    same = f.lit(True)
    for name in ("flights", "departed", "minutes", "late", "longest"):
        same = same & f.col(f"one.{name}").eqNullSafe(f.col(f"other.{name}"))
    present = f.col("one.flights").isNotNull() & f.col("other.flights").isNotNull()
    return both.where(~(same & present)).count()
