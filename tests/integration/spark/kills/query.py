"""The application under kills: copies a topic into the sink until its standard input ends.

    python -m tests.integration.spark.kills.query BOOTSTRAP FOLDER

It does what any application that means to stay up does: a query that fails is started again
from its checkpoint, in the same session; without its JVM it gives up, and whoever started it
starts it again.
"""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from sharegroup.spark import ensure_java, ensure_python
from tests.integration.spark.conftest import CONFS
from tests.integration.spark.kills.sink import Sink

if TYPE_CHECKING:
    import pyarrow as pa

TOPIC = "orders"
GROUP = "billing"
RECORDS_PER_BATCH = 500
LOOK_SECONDS = 0.2
HASHES_PER_ROW = 500
"""Work for the executor's Pythons: one that is killed should be in the middle of a task."""
QUERY_FAILED = "query.failed"
"""Begins the line that says why a query is started again."""


def session(folder: Path) -> SparkSession:
    """Four tries for each task: workers are killed."""
    ensure_java()
    ensure_python()
    builder = SparkSession.builder.master("local[2,4]").appName("kills")
    for name, value in {
        **CONFS,
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def worked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, after a while."""
    for batch in batches:
        for value in batch.column("value").to_pylist():
            hashlib.pbkdf2_hmac("sha256", value, b"work", HASHES_PER_ROW)
        yield batch


def run_query(spark: SparkSession, bootstrap: str, folder: Path, stopping: threading.Event) -> None:
    """Until it fails or is to stop."""
    sink = Sink(folder / "sink.sqlite")

    def write(batch: DataFrame, batch_id: int) -> None:
        sink.write(batch_id, ((row[0], row[1], bytes(row[2])) for row in batch.collect()))

    query = (
        spark.readStream.format("kafka-share")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", TOPIC)
        .option("share.group", GROUP)
        .option("maxOffsetsPerTrigger", RECORDS_PER_BATCH)
        .option("minPartitions", 2)
        .option("outcomesLocation", str(folder / "outcomes"))
        .load()
        .select("partition", "offset", "value")
        .mapInArrow(worked, "partition int, offset long, value binary")
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    try:
        while not stopping.is_set():
            query.awaitTermination(LOOK_SECONDS)
    finally:
        query.stop()


def main(bootstrap: str, folder: Path) -> None:
    stopping = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        stopping.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    spark = session(folder)
    while not stopping.is_set():
        try:
            run_query(spark, bootstrap, folder, stopping)
        except StreamingQueryException as error:
            print(QUERY_FAILED, str(error).partition("\n")[0], file=sys.stderr, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
