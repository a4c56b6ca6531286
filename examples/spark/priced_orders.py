"""A worker and a Spark query, one behind the other, and Spark's rejects back to the worker.

    pip install '.[spark,worker]'
    sharegroup serve --port 9092
    sharegroup worker examples.spark.priced_orders:app
    python examples/spark/priced_orders.py 127.0.0.1:9092 priced
    echo '{"id": 1, "item": "apple", "pieces": 3}' | sharegroup produce orders

    orders ---> worker: price ---> orders.priced ---> Spark ---> Parquet
                  ^                                     |
                  |                                     v  an item whose price Spark refuses
                worker: reprice <--------------- orders.refused

`reprice` gives an order another try, at most `TRIES_MAX` times; then it is a dead letter of the
worker, ``orders.refused.dead``, where ``sharegroup dlq`` lists and redrives it.  Without that limit
the order would go round for ever.  Both halves deliver at least once, so a priced order may be
there twice: id and try together name it.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sharegroup.client import Producer
from sharegroup.worker import App, DeadLetter, Reject

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

PRICES = {"apple": 0.5, "pear": -1.0, "plum": -0.2}
"""Prices of a piece; those of pears and plums are mistakes, which Spark notices."""
CORRECTED = {"pear": 0.6}
TRIES_MAX = 3
SCHEMA = "id LONG, item STRING, pieces LONG, total DOUBLE, tries LONG"

app = App("pricing")


@dataclass
class Order:
    """An order without a price."""

    id: int
    item: str
    pieces: int


@dataclass
class Priced:
    """An order with its price, and the number of tries to find it."""

    id: int
    item: str
    pieces: int
    total: float
    tries: int


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
async def price(order: Order) -> None:
    """Prices an order and passes it on to Spark."""
    await pass_on(Priced(**asdict(order), total=PRICES[order.item] * order.pieces, tries=1))


@app.share_group(
    "repricing", topics="orders.refused", dead_letter=DeadLetter("orders.refused.dead")
)
async def reprice(order: Priced) -> None:
    """Prices an order again that Spark has refused, unless it was tried too often."""
    if order.tries >= TRIES_MAX:
        raise Reject(f"no price for {order.item} after {order.tries} tries")
    price_per_piece = CORRECTED.get(order.item, PRICES[order.item])
    total = price_per_piece * order.pieces
    await pass_on(Priced(order.id, order.item, order.pieces, total, order.tries + 1))


async def pass_on(order: Priced) -> None:
    """Waits until the record is durable, so the order is accepted only after that."""
    value = json.dumps(asdict(order)).encode()
    await (await app.state.producer.send("orders.priced", value, key=str(order.id).encode()))


def store(batch: DataFrame, batch_id: int, *, folder: Path) -> None:
    """Write the orders of a batch, and send those with an impossible price back to the worker."""
    # Imported here because the worker, which imports this module, needs no Spark.
    from pyspark.sql import functions as f

    from sharegroup.spark import dead_letter

    order = f.from_json(f.col("value").cast("string"), SCHEMA)
    rows = batch.withColumn("o", order).persist()
    try:
        dead_letter(rows.where("o.total <= 0"), "orders.refused", message="no positive price")
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
        .option("share.group", "priced")
        .option("outcomesLocation", str(folder / "outcomes"))
        .load()
    )
    return records.writeStream.foreachBatch(
        lambda batch, batch_id: store(batch, batch_id, folder=folder)
    ).option("checkpointLocation", str(folder / "checkpoint"))


if __name__ == "__main__":
    # Imported here because the worker, which imports this module, needs no Spark.
    from pyspark.sql import SparkSession

    import sharegroup.spark  # noqa: F401  Sets the Python and the Java that Spark starts.

    session = SparkSession.builder.appName("priced_orders").getOrCreate()
    query(session, sys.argv[1], Path(sys.argv[2])).start().awaitTermination()
