"""Windowed aggregation with a watermark: the turnover of every five minutes.

    pip install '.[spark]'        # with [spark,java] if there is no Java 17
    sharegroup serve --port 9092
    python examples/spark/window_totals.py 127.0.0.1:9092 turnover
    echo '{"id": 1, "total": 9.5, "at": "2026-01-01T12:00:00Z"}' | sharegroup produce orders

A window is written once, when the watermark passes its end.  A share group does not deliver in
order: a record that a member released, or whose lock ended, is delivered again after younger ones.
So the watermark's delay covers that time, too: at least the lock duration (30 s by default) times
the delivery count limit (5), beside the delay of the producers.  Rows behind the watermark are
left out by Spark and accepted in the group, as every row that a query drops.

The aggregation's state and the offsets are of the same checkpoint, so a batch that is run again
after a crash starts from the state before it, and no order counts twice.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, functions as f
from pyspark.sql.streaming import DataStreamWriter

import sharegroup.spark  # noqa: F401  Sets the Python and the Java that Spark starts.

WINDOW = "5 minutes"
LATE = "10 minutes"
"""How late an order may come: behind the latest one that was seen, by the time in the order."""


def window_totals(records: DataFrame) -> DataFrame:
    """Return number and sum of the orders of each window."""
    orders = records.select(
        f.from_json(f.col("value").cast("string"), "id LONG, total DOUBLE, at TIMESTAMP").alias("o")
    ).select("o.*")
    return (
        orders.where("at is not null")
        .withWatermark("at", LATE)
        .groupBy(f.window("at", WINDOW))
        .agg(f.count("*").alias("orders"), f.sum("total").alias("total"))
        .select("window.start", "window.end", "orders", "total")
    )


def query(spark: SparkSession, bootstrap: str, folder: Path) -> DataStreamWriter:
    """Return the query, which appends finished windows to Parquet files."""
    records = (
        spark.readStream.format("kafka-share")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "orders")
        .option("share.group", "turnover")
        .load()
    )
    return (
        window_totals(records)
        .writeStream.format("parquet")
        .outputMode("append")
        .option("path", str(folder / "windows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
    )


if __name__ == "__main__":
    session = SparkSession.builder.appName("window_totals").getOrCreate()
    query(session, sys.argv[1], Path(sys.argv[2])).start().awaitTermination()
