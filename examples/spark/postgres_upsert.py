"""``foreachBatch`` into PostgreSQL: the newest version of each order, by upsert.

    pip install '.[spark]' 'psycopg[binary]'
    sharegroup serve --port 9092
    python examples/spark/postgres_upsert.py 127.0.0.1:9092 orders 'host=127.0.0.1 dbname=shop'
    echo '{"id": 1, "version": 1, "total": 9.5}' | sharegroup produce orders

Two rules make an upsert right under a share group:

- It compares versions.  A share group does not deliver in order, so an older version of an order
  can come after a newer one; it must not overwrite it.
- It can be repeated.  A task or a batch may run again after a crash, and the row is then the same.

The tasks write, each in one transaction of its own: rows are copied to a temporary table and
merged from there, which is faster than an INSERT per row.  Rows are ordered by id, so tasks that
touch the same orders wait for each other instead of getting into a deadlock.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
from pyspark.sql import DataFrame, Row, SparkSession, functions as f
from pyspark.sql.streaming import DataStreamWriter

import sharegroup.spark  # noqa: F401  Sets the Python and the Java that Spark starts.

TABLE = """
CREATE TABLE IF NOT EXISTS orders (
    id bigint PRIMARY KEY, version bigint NOT NULL, total double precision)
"""
INCOMING = "CREATE TEMPORARY TABLE incoming (LIKE orders) ON COMMIT DROP"
MERGE = """
INSERT INTO orders
SELECT DISTINCT ON (id) id, version, total FROM incoming ORDER BY id, version DESC
ON CONFLICT (id) DO UPDATE SET version = excluded.version, total = excluded.total
WHERE orders.version < excluded.version
"""


def upsert(rows: Iterator[Row], *, database: str) -> None:
    """Merge the rows of one task into the table, on an executor."""
    with psycopg.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute(INCOMING)
        with cursor.copy("COPY incoming FROM STDIN") as copy:
            for row in rows:
                copy.write_row((row.id, row.version, row.total))
        cursor.execute(MERGE)


def store(batch: DataFrame, batch_id: int, *, database: str) -> None:  # noqa: ARG001
    """Merge the orders of a batch."""
    order = f.from_json(f.col("value").cast("string"), "id LONG, version LONG, total DOUBLE")
    orders = batch.select(order.alias("o")).select("o.*").where("id is not null")
    orders.foreachPartition(lambda rows: upsert(rows, database=database))


def query(spark: SparkSession, bootstrap: str, folder: Path, database: str) -> DataStreamWriter:
    """Create the table if necessary and return the query."""
    with psycopg.connect(database) as connection:
        connection.execute(TABLE)
    records = (
        spark.readStream.format("kafka-share")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "orders")
        .option("share.group", "shop")
        .load()
    )
    return records.writeStream.foreachBatch(
        lambda batch, batch_id: store(batch, batch_id, database=database)
    ).option("checkpointLocation", str(folder / "checkpoint"))


if __name__ == "__main__":
    session = SparkSession.builder.appName("postgres_upsert").getOrCreate()
    query(session, sys.argv[1], Path(sys.argv[2]), sys.argv[3]).start().awaitTermination()
