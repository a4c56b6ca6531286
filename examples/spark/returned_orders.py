"""Spark's rejects wait as dead letters until they are redriven to a worker, three times at most.

    pip install '.[spark,worker]'
    sharegroup serve --port 9092
    sharegroup topics create checked.retry
    sharegroup worker examples.spark.returned_orders:app
    python examples/spark/returned_orders.py 127.0.0.1:9092 checked
    echo '{"id": 1, "item": "pear", "pieces": 3}' | sharegroup produce orders
    python examples/spark/returned_orders.py 127.0.0.1:9092 --redrive

    orders ---> worker: price ---> orders.priced ---> Spark, group "checked" ---> Parquet
                                        ^                        |
                                        |                        v  a price that cannot be right
                worker: reprice --------+                  orders.refused
                        ^                                        |
                        +--------- checked.retry <--- redrive ---+  when the prices were corrected

A redrive sends the letters of a group to the group's own topic, ``checked.retry``.  A query does
not read that topic, but the handler `reprice` does.  `priced_orders.py` is the other way: there
the worker reads the rejects at once, and counts the tries in the payload.

The loop ends because a redrive leaves letters that were redriven three times.  The number is in a
header of the record (`record.redrive_headers`), and the handler gives it to the record that it
makes.  Without that each refused order would be a new one, and go round for ever.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sharegroup.client import Producer
from sharegroup.worker import App, Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

    from sharegroup.dead_letters.redriven import Redriven

PRICES = {"apple": 0.5, "pear": -1.0, "plum": -0.2}
"""Prices of a piece; those of pears and plums are mistakes, which Spark notices."""
CORRECTED = {**PRICES, "pear": 0.6}
SCHEMA = "id LONG, item STRING, pieces LONG, total DOUBLE"
REFUSED = "orders.refused"

app = App("pricing")


@dataclass
class Order:
    """An order, with or without a price."""

    id: int
    item: str
    pieces: int
    total: float | None = None


@app.on_startup
async def open_producer() -> None:
    """Connects the producer for the topic of priced orders, which Spark reads."""
    bootstrap = os.environ.get("SHAREGROUP_BOOTSTRAP", "127.0.0.1:9092")
    app.state.producer = Producer(bootstrap_servers=bootstrap)


@app.on_shutdown
async def close_producer() -> None:
    """Sends what is left."""
    await app.state.producer.close()


@app.share_group("pricing", topics="orders")
async def price(order: Order, record: Record) -> None:
    """Prices a new order."""
    await pass_on(order, PRICES, record)


@app.share_group("repricing", topics="checked.retry")
async def reprice(order: Order, record: Record) -> None:
    """Prices an order that Spark has refused and that was redriven."""
    await pass_on(order, CORRECTED, record)


async def pass_on(order: Order, prices: dict[str, float], record: Record) -> None:
    """Waits until the record is durable, so the order is accepted only after that."""
    order.total = prices[order.item] * order.pieces
    value = json.dumps(asdict(order)).encode()
    sent = await app.state.producer.send(
        "orders.priced", value, key=str(order.id).encode(), headers=record.redrive_headers
    )
    await sent


def store(batch: DataFrame, batch_id: int, *, folder: Path) -> None:
    """Write the orders of a batch; those with an impossible price become dead letters."""
    # Imported here because the worker, which imports this module, needs no Spark.
    from pyspark.sql import functions as f

    from sharegroup.spark import dead_letter

    order = f.from_json(f.col("value").cast("string"), SCHEMA)
    rows = batch.withColumn("o", order).persist()
    try:
        dead_letter(rows.where("o.total <= 0"), REFUSED, message="no positive price")
        priced = rows.where("o.total > 0").select("o.*")
        priced.write.mode("overwrite").parquet(str(folder / "table" / f"batch={batch_id}"))
    finally:
        rows.unpersist()


def query(spark: SparkSession, bootstrap: str, folder: Path) -> DataStreamWriter:
    """Return the query."""
    records = (
        spark.readStream.format("kafka-share")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "orders.priced")
        .option("share.group", "checked")
        .option("includeHeaders", "true")
        .option("outcomesLocation", str(folder / "outcomes"))
        .load()
    )
    return records.writeStream.foreachBatch(
        lambda batch, batch_id: store(batch, batch_id, folder=folder)
    ).option("checkpointLocation", str(folder / "checkpoint"))


def send_back(spark: SparkSession, bootstrap: str) -> dict[str, Redriven]:
    """Redrive the refused orders that were not redriven yet."""
    # Imported here because the worker, which imports this module, needs no Spark.
    from sharegroup.spark import redrive

    letters = (
        spark.read.format("kafka-share-letters")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", REFUSED)
        .load()
    )
    return redrive(letters.where("not redriven"), confirm=["checked.retry"])


if __name__ == "__main__":
    # Imported here because the worker, which imports this module, needs no Spark.
    from pyspark.sql import SparkSession

    import sharegroup.spark  # noqa: F401  Sets the Python and the Java that Spark starts.

    session = SparkSession.builder.appName("returned_orders").getOrCreate()
    if sys.argv[2] == "--redrive":
        sys.stdout.write(f"{send_back(session, sys.argv[1])}\n")
    else:
        query(session, sys.argv[1], Path(sys.argv[2])).start().awaitTermination()
