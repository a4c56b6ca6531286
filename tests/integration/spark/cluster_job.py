"""A job for `local-cluster[2,1,1024]`: two executors in processes of their own.

    python -m tests.integration.spark.cluster_job BOOTSTRAP TOPIC GROUP FOLDER

Prints one line of JSON: every row's partition and offset, and how many executors worked.  A
process has one Spark session, so this is not a test but a program that a test runs.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

from sharegroup.spark import ensure_java, ensure_python
from tests.integration.spark.conftest import CONFS, stream

MASTER = "local-cluster[2,1,1024]"
TASKS = 8
"""So many that both executors get some."""


def main(bootstrap: str, topic: str, group: str, folder: Path) -> None:
    ensure_java()
    ensure_python()
    builder = SparkSession.builder.master(MASTER).appName("local cluster")
    for name, value in {
        **CONFS,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": CONFS["spark.driver.extraJavaOptions"],
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    rows: list[tuple[int, int]] = []
    executors: set[int] = set()
    # Of a worker, the parent is the process that forks all workers of its executor.
    executor = udf(lambda _: os.getppid(), "int")

    def work(batch: DataFrame, batch_id: int) -> None:
        for row in batch.select("partition", "offset", executor("offset")).collect():
            rows.append((row[0], row[1]))
            executors.add(row[2])

    query = (
        stream(spark, bootstrap, topic, group, minPartitions=TASKS)
        .writeStream.foreachBatch(work)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()  # The test that runs this bounds the time.
    spark.stop()
    print(json.dumps({"rows": sorted(rows), "executors": len(executors)}))


if __name__ == "__main__":
    main(*sys.argv[1:4], Path(sys.argv[4]))
