"""A query over Spark Connect, in a process of its own: a session is either of Connect or classic.

    python -m tests.integration.spark.connect_job BOOTSTRAP FOLDER

It starts a server and connects a client to it.  The function of `foreachBatch` runs in a process
of the server: it must bring along what it needs.  The last line is a JSON object with what the
client has seen.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

import sharegroup.spark  # noqa: F401  Sets the Python and the Java that Spark starts.
from sharegroup.spark import ShareGroupListener
from tests.integration.spark.conftest import CONFS

WAIT_SECONDS_MAX = 150.0


def session(folder: Path) -> SparkSession:
    """A server in a JVM of its own, and the client that is connected to it."""
    builder = SparkSession.builder.remote("local[2]")
    for name, value in {**CONFS, "spark.sql.warehouse.dir": str(folder / "warehouse")}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main(bootstrap: str, folder: Path) -> dict[str, object]:
    spark = session(folder)
    outcomes, table = str(folder / "outcomes"), str(folder / "table")

    def store(batch, batch_id):  # type: ignore[no-untyped-def]
        # In the function, because only the function goes to the server.
        from sharegroup.spark import dead_letter, write_in_transaction

        # The batch id is enough as a name of the query, because there is one query.
        dead_letter(batch.where("value = 'bad'"), "orders.bad", message="bad")
        batch.where("value != 'bad'").selectExpr("string(value) v").write.mode("overwrite").parquet(
            f"{table}/batch={batch_id}"
        )
        for _run in range(2):
            write_in_transaction(
                batch.select("value"),
                batch_id,
                transactional_id="connect",
                options={"kafka.bootstrap.servers": bootstrap, "topic": "orders.copy"},
                query_id="connect",
            )

    records = (
        spark.readStream.format("kafka-share")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "orders")
        .option("share.group", "connect")
        .option("outcomesLocation", outcomes)
        .load()
    )
    seen: list[int] = []
    listener = ShareGroupListener(
        spark, on_figures=lambda figures: seen.append(figures.groups[0].held)
    )
    spark.streams.addListener(listener)
    query = (
        records.writeStream.foreachBatch(store)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(WAIT_SECONDS_MAX), "the query does not end"
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not seen and time.monotonic() < deadline:
        time.sleep(0.1)
    spark.streams.removeListener(listener)
    rows = sorted(row.v for row in spark.read.parquet(table).collect())
    spark.stop()
    return {"rows": rows, "held": seen}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
