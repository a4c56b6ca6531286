"""The application under kills: copies a topic into the sink until its standard input ends.

    python -m tests.integration.spark.kills.query BOOTSTRAP FOLDER PIPELINE

It does what any application that means to stay up does: a query that fails is started again
from its checkpoint, in the same session; without its JVM it gives up, and whoever started it
starts it again.  What the source says of itself goes to the log, like all that Spark says.
"""

from __future__ import annotations

import hashlib
import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from sharegroup.spark import ShareGroupListener, ensure_java, ensure_python
from tests.integration.spark.conftest import CONFS
from tests.integration.spark.kills.pipeline import COPY, COPY_GROUP, GROUP, TOPIC, Pipeline
from tests.integration.spark.kills.sink import Sink

if TYPE_CHECKING:
    import pyarrow as pa

MASTER = "local[2,4]"
EXECUTOR = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": CONFS["spark.driver.extraJavaOptions"],
}
RECORDS_PER_BATCH = 500
LOOK_SECONDS = 0.2
HASHES_PER_ROW = 500
"""Work for the executor's Pythons: one that is killed should be in the middle of a task."""
QUERY_FAILED = "query.failed"
"""Begins the line that says why a query is started again."""


def session(folder: Path, pipeline: Pipeline) -> SparkSession:
    """Four tries for each task: workers are killed."""
    ensure_java()
    ensure_python()
    cluster = f"local-cluster[{pipeline.executors},1,1024]"
    builder = SparkSession.builder.master(cluster if pipeline.executors else MASTER)
    for name, value in {
        **CONFS,
        **EXECUTOR,
        "spark.app.name": "kills",
        "spark.ui.showConsoleProgress": "false",
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


def records(
    spark: SparkSession, bootstrap: str, folder: Path, pipeline: Pipeline, group: str
) -> DataFrame:
    """The rows of a share group."""
    options: dict[str, Any] = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": TOPIC,
        "share.group": group,
        "maxOffsetsPerTrigger": RECORDS_PER_BATCH,
        "minPartitions": 2,
        "outcomesLocation": str(folder / "outcomes"),
    }
    if pipeline.kept_bytes_max is not None:
        options["keptBytesMax"] = pipeline.kept_bytes_max
    return spark.readStream.format("kafka-share").options(**options).load()


def start_sink(rows: DataFrame, folder: Path) -> StreamingQuery:
    """The rows, worked on, into the idempotent sink."""
    sink = Sink(folder / "sink.sqlite")

    def write(batch: DataFrame, batch_id: int) -> None:
        sink.write(batch_id, ((row[0], row[1], bytes(row[2])) for row in batch.collect()))

    worked_rows = rows.select("partition", "offset", "value").mapInArrow(
        worked, "partition int, offset long, value binary"
    )
    return (
        worked_rows.writeStream.queryName("sink")
        .foreachBatch(write)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )


def start_copy(rows: DataFrame, bootstrap: str, folder: Path) -> StreamingQuery:
    """The rows into another topic, by the streaming sink."""
    return (
        rows.select("value")
        .writeStream.queryName("copy")
        .format("kafka-share")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", COPY)
        .option("checkpointLocation", str(folder / "copy.checkpoint"))
        .start()
    )


def run_queries(
    spark: SparkSession,
    bootstrap: str,
    folder: Path,
    pipeline: Pipeline,
    stopping: threading.Event,
) -> None:
    """Until one of them fails or all are to stop."""
    queries = [start_sink(records(spark, bootstrap, folder, pipeline, GROUP), folder)]
    try:
        if pipeline.is_copied:
            rows = records(spark, bootstrap, folder, pipeline, COPY_GROUP)
            queries.append(start_copy(rows, bootstrap, folder))
        while not stopping.is_set():
            for query in queries:
                query.awaitTermination(LOOK_SECONDS)
    finally:
        for query in queries:
            query.stop()


def main(bootstrap: str, folder: Path, pipeline: Pipeline) -> None:
    stopping = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        stopping.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    logging.getLogger("sharegroup").setLevel(logging.INFO)
    logging.getLogger("sharegroup").addHandler(logging.StreamHandler())
    spark = session(folder, pipeline)
    spark.streams.addListener(ShareGroupListener(spark))
    while not stopping.is_set():
        try:
            run_queries(spark, bootstrap, folder, pipeline, stopping)
        except StreamingQueryException as error:
            print(QUERY_FAILED, str(error).partition("\n")[0], file=sys.stderr, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Pipeline.of_json(sys.argv[3]))
