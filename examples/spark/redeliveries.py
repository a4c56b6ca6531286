"""Which records are redelivered most, and for how long do they wait?

pip install '.[spark]'            # with [spark,java] if there is no Java 17
python examples/spark/redeliveries.py 127.0.0.1:9092

The share state says which records are available again and how often they were delivered.  The
records themselves say since when they wait, so the two are joined.  Locks are not in the share
state: a record that a member holds at this moment counts as waiting.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession, functions

import sharegroup.spark  # noqa: F401  Lets Spark find the formats.

EMPTY = (
    "group string, topic string, partition int, offset bigint, deliveryCount int, "
    "waitingSeconds int"
)


def redeliveries(spark: SparkSession, bootstrap: str) -> DataFrame:
    """A row for each record that was delivered and is available again."""
    runs = (
        spark.read.format("kafka-share-state")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("view", "sharePartitions")
        .load()
        .where("state = 'available' and deliveryCount > 0 and topic is not null")
        .persist()
    )
    topics = [row["topic"] for row in runs.select("topic").distinct().collect()]
    if not topics:
        return spark.createDataFrame([], EMPTY)
    records = (
        spark.read.format("kafka-share")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", ",".join(topics))
        .load()
        .select("topic", "partition", "offset", "timestamp")
    )
    is_in_run = functions.col("offset").between(
        functions.col("firstOffset"), functions.col("lastOffset")
    )
    waiting = records.join(functions.broadcast(runs.drop("startOffset")), ["topic", "partition"])
    return waiting.where(is_in_run).select(
        "group",
        "topic",
        "partition",
        "offset",
        "deliveryCount",
        (functions.current_timestamp().cast("double") - functions.col("timestamp").cast("double"))
        .cast("int")
        .alias("waitingSeconds"),
    )


def main() -> None:
    """Print the records that were delivered most often, and a summary for each group."""
    spark = SparkSession.builder.appName("redeliveries").getOrCreate()
    found = redeliveries(spark, sys.argv[1]).persist()
    if found.isEmpty():
        print("No record was delivered without success.")  # noqa: T201  A program prints.
    else:
        found.orderBy(functions.desc("deliveryCount"), functions.desc("waitingSeconds")).show(
            20, truncate=False
        )
        found.groupBy("group", "topic", "deliveryCount").agg(
            functions.count("*").alias("records"),
            functions.max("waitingSeconds").alias("longestWaitSeconds"),
            functions.percentile_approx("waitingSeconds", 0.5).alias("medianWaitSeconds"),
        ).orderBy("group", "topic", functions.desc("deliveryCount")).show(100, truncate=False)
    spark.stop()


if __name__ == "__main__":
    main()
