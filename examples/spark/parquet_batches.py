"""``foreachBatch`` into Parquet: each batch is a folder, and a batch that runs again overwrites it.

    sharegroup serve --port 9092
    python examples/spark/parquet_batches.py 127.0.0.1:9092 orders
    echo '{"id": 1, "version": 1, "total": 9.5}' | sharegroup produce orders
    echo 'one apple' | sharegroup produce orders
    sharegroup tail warehouse.dead

Spark gives a batch that is run again after a crash the same number, and ``kafka-share`` gives it
the same records.  So overwriting the folder of the batch writes each order exactly once.  A
reader that must not see half of a batch reads only folders with the file ``_SUCCESS``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, functions as f
from pyspark.sql.streaming import DataStreamWriter

from sharegroup.spark import dead_letter


def store(batch: DataFrame, batch_id: int, *, folder: Path) -> None:
    """Write the orders of a batch to its folder, and its other records to the dead letters."""
    order = f.from_json(f.col("value").cast("string"), "id LONG, version LONG, total DOUBLE")
    rows = batch.withColumn("o", order).persist()
    try:
        dead_letter(rows.where("o.id is null"), "warehouse.dead", message="no order")
        orders = rows.where("o.id is not null").select("o.*", "partition", "offset")
        orders.write.mode("overwrite").parquet(str(folder / "table" / f"batch={batch_id}"))
    finally:
        rows.unpersist()


def query(spark: SparkSession, bootstrap: str, folder: Path) -> DataStreamWriter:
    """Return the query."""
    records = (
        spark.readStream.format("kafka-share")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "orders")
        .option("share.group", "warehouse")
        .option("outcomesLocation", str(folder / "outcomes"))
        .load()
    )
    return records.writeStream.foreachBatch(
        lambda batch, batch_id: store(batch, batch_id, folder=folder)
    ).option("checkpointLocation", str(folder / "checkpoint"))


if __name__ == "__main__":
    session = SparkSession.builder.appName("parquet_batches").getOrCreate()
    query(session, sys.argv[1], Path(sys.argv[2])).start().awaitTermination()
