"""``foreachBatch`` into DuckDB: the newest version of each order, and the number of the last batch.

    pip install '.[spark]' duckdb
    sharegroup serve --port 9092
    python examples/spark/duckdb_upsert.py 127.0.0.1:9092 orders
    echo '{"id": 1, "version": 1, "total": 9.5}' | sharegroup produce orders

A DuckDB file has one writer, so the driver writes: the batch comes to it as Arrow, and DuckDB
reads that without a copy.  As with every upsert under a share group, the version decides and not
the order of arrival (see postgres_upsert.py).

The table of deliveries cannot be merged by a key of its own: a batch that is run again would be
counted twice.  So the number of the last batch is stored in the same transaction, and a batch
that is stored already is skipped.
"""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb
from pyspark.sql import DataFrame, SparkSession, functions as f
from pyspark.sql.streaming import DataStreamWriter

import sharegroup.spark  # noqa: F401  Sets the Python and the Java that Spark starts.

TABLES = """
CREATE TABLE IF NOT EXISTS orders (id BIGINT PRIMARY KEY, version BIGINT, total DOUBLE);
CREATE TABLE IF NOT EXISTS deliveries (batch BIGINT PRIMARY KEY, records BIGINT);
"""
MERGE = """
INSERT INTO orders
SELECT id, max(version), arg_max(total, version) FROM incoming GROUP BY id
ON CONFLICT (id) DO UPDATE SET version = excluded.version, total = excluded.total
WHERE orders.version < excluded.version
"""


def store(batch: DataFrame, batch_id: int, *, file: Path) -> None:
    """Merge the orders of a batch, and count its records, in one transaction."""
    order = f.from_json(f.col("value").cast("string"), "id LONG, version LONG, total DOUBLE")
    incoming = batch.select(order.alias("o")).select("o.*").where("id is not null").toArrow()
    with duckdb.connect(str(file)) as database:
        database.execute(TABLES)
        database.begin()
        done = database.execute("SELECT 1 FROM deliveries WHERE batch = ?", [batch_id]).fetchall()
        if not done:
            database.register("incoming", incoming)
            database.execute(MERGE)
            database.execute("INSERT INTO deliveries VALUES (?, ?)", [batch_id, len(incoming)])
        database.commit()


def query(spark: SparkSession, bootstrap: str, folder: Path) -> DataStreamWriter:
    """Return the query."""
    records = (
        spark.readStream.format("kafka-share")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "orders")
        .option("share.group", "reports")
        .load()
    )
    return records.writeStream.foreachBatch(
        lambda batch, batch_id: store(batch, batch_id, file=folder / "orders.duckdb")
    ).option("checkpointLocation", str(folder / "checkpoint"))


if __name__ == "__main__":
    session = SparkSession.builder.appName("duckdb_upsert").getOrCreate()
    folder = Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    query(session, sys.argv[1], folder).start().awaitTermination()
