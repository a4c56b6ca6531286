"""A join of two streams: orders with their payments, and those that were not paid in time.

    sharegroup serve --port 9092
    python examples/spark/join_payments.py 127.0.0.1:9092 payments
    echo '{"id": 1, "total": 9.5, "at": "2026-01-01T12:00:00Z"}' | sharegroup produce orders
    echo '{"order": 1, "paid": 9.5, "at": "2026-01-01T12:20:00Z"}' | sharegroup produce payments

Each stream is a member of a share group of its own.  Each side waits for the other in Spark's
state until the watermark passes: both watermarks count, and the slower one decides.  So a topic
without records holds the watermark back, and orders without a payment are not written until both
topics have moved on.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, functions as f
from pyspark.sql.streaming import DataStreamWriter

import sharegroup.spark  # noqa: F401  Sets the Python and the Java that Spark starts.

DUE = "INTERVAL 30 MINUTES"
LATE = "10 minutes"
ORDER = "id LONG, total DOUBLE, at TIMESTAMP"
PAYMENT = "order LONG, paid DOUBLE, at TIMESTAMP"


def stream(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """Return the records of a topic, as a member of the group that is named after it."""
    return (
        spark.readStream.format("kafka-share")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("share.group", f"{topic}-join")
        .load()
    )


def fields(records: DataFrame, schema: str) -> DataFrame:
    """Return the fields of the JSON values, without those that are unreadable."""
    value = f.from_json(f.col("value").cast("string"), schema).alias("v")
    return records.select(value).select("v.*").where("at is not null").withWatermark("at", LATE)


def paid_or_overdue(orders: DataFrame, payments: DataFrame) -> DataFrame:
    """Return each order with its payment, or with null if none came within `DUE`."""
    order, payment = orders.alias("o"), payments.alias("p")
    in_time = f.expr(f"p.order = o.id AND p.at BETWEEN o.at AND o.at + {DUE}")
    return order.join(payment, in_time, "leftOuter").select("o.id", "o.total", "p.paid")


def query(spark: SparkSession, bootstrap: str, folder: Path) -> DataStreamWriter:
    """Return the query, which appends orders to Parquet files once their outcome is known."""
    joined = paid_or_overdue(
        fields(stream(spark, bootstrap, "orders"), ORDER),
        fields(stream(spark, bootstrap, "payments"), PAYMENT),
    )
    return (
        joined.writeStream.format("parquet")
        .outputMode("append")
        .option("path", str(folder / "orders"))
        .option("checkpointLocation", str(folder / "checkpoint"))
    )


if __name__ == "__main__":
    session = SparkSession.builder.appName("join_payments").getOrCreate()
    query(session, sys.argv[1], Path(sys.argv[2])).start().awaitTermination()
