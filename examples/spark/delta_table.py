"""``foreachBatch`` into a Delta table: a batch that is run again is skipped by its number.

    pip install '.[spark]' deltalake
    sharegroup serve --port 9092
    python examples/spark/delta_table.py 127.0.0.1:9092 orders
    echo '{"id": 1, "version": 1, "total": 9.5}' | sharegroup produce orders
    python -c 'import deltalake; print(deltalake.DeltaTable("orders/table").to_pyarrow_table())'

The commit of a Delta table can carry the name of an application and the number of its transaction.
With the batch id as that number, a batch that is run again finds itself committed and writes
nothing, so each order is in the table exactly once.

This uses delta-rs (the package ``deltalake``), which needs no jar: the rows of a batch go
through the driver as Arrow.  Delta's own writer for Spark (``delta-spark``) spares the driver. It
has the same two values as the options ``txnAppId`` and ``txnVersion`` of ``df.write``, and needs a
jar for exactly this version of Spark; docs/spark-pipelines.md says for which there is one.
"""

from __future__ import annotations

import sys
from pathlib import Path

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import DataFrame, SparkSession, functions as f
from pyspark.sql.streaming import DataStreamWriter

import sharegroup.spark  # noqa: F401  Sets the Python and the Java that Spark starts.

APPLICATION = "orders-to-delta"
"""The name of the query in the table: another query, or a new checkpoint, needs another name."""


def store(batch: DataFrame, batch_id: int, *, table: Path) -> None:
    """Append the orders of a batch, unless the table has the batch already."""
    if batch_id <= last_batch(table):
        return
    order = f.from_json(f.col("value").cast("string"), "id LONG, version LONG, total DOUBLE")
    orders = batch.select(order.alias("o"), "partition", "offset").where("o.id is not null")
    transaction = Transaction(APPLICATION, batch_id)
    write_deltalake(
        str(table),
        orders.select("o.*", "partition", "offset").toArrow(),
        mode="append",
        commit_properties=CommitProperties(app_transactions=[transaction]),
    )


def last_batch(table: Path) -> int:
    """Return the number of the last batch in the table, or -1."""
    if not DeltaTable.is_deltatable(str(table)):
        return -1
    version = DeltaTable(str(table)).transaction_version(APPLICATION)
    return -1 if version is None else version


def query(spark: SparkSession, bootstrap: str, folder: Path) -> DataStreamWriter:
    """Return the query."""
    records = (
        spark.readStream.format("kafka-share")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "orders")
        .option("share.group", "lake")
        .load()
    )
    return records.writeStream.foreachBatch(
        lambda batch, batch_id: store(batch, batch_id, table=folder / "table")
    ).option("checkpointLocation", str(folder / "checkpoint"))


if __name__ == "__main__":
    session = SparkSession.builder.appName("delta_table").getOrCreate()
    query(session, sys.argv[1], Path(sys.argv[2])).start().awaitTermination()
