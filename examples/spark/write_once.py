"""``foreachBatch`` into Kafka: each record exactly once, by transactions with the batch's number.

    pip install '.[spark]'
    sharegroup serve --port 9092
    python examples/spark/write_once.py 127.0.0.1:9092 copies
    echo '{"id": 1, "total": 9.5}' | sharegroup produce orders
    sharegroup tail orders.copy

`write_in_transaction` writes a batch in one transaction, which also stores the batch's number.  A
batch that is run again after a crash finds its number stored and writes nothing.  Readers have to
read committed records only (``isolation.level=read_committed``; for share groups the setting
``share.isolation.level`` of the group).

The simple sink ``df.writeStream.format("kafka-share")`` writes from the executors, which is
faster, and at least once: a batch that is run again writes its records again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from sharegroup.spark import write_in_transaction

TRANSACTIONAL_ID = "orders-copy"
"""One query at a time may use it; a second one fences the first."""


def store(batch: DataFrame, batch_id: int, *, bootstrap: str) -> None:
    """Copy the records of a batch."""
    write_in_transaction(
        batch.select("key", "value"),
        batch_id,
        transactional_id=TRANSACTIONAL_ID,
        options={"kafka.bootstrap.servers": bootstrap, "topic": "orders.copy"},
    )


def query(spark: SparkSession, bootstrap: str, folder: Path) -> DataStreamWriter:
    """Return the query."""
    records = (
        spark.readStream.format("kafka-share")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "orders")
        .option("share.group", "copy")
        .load()
    )
    return records.writeStream.foreachBatch(
        lambda batch, batch_id: store(batch, batch_id, bootstrap=bootstrap)
    ).option("checkpointLocation", str(folder / "checkpoint"))


if __name__ == "__main__":
    session = SparkSession.builder.appName("write_once").getOrCreate()
    query(session, sys.argv[1], Path(sys.argv[2])).start().awaitTermination()
