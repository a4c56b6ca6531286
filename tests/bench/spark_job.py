"""One Spark session that runs a streaming query for each line of JSON that it reads.

    python tests/bench/spark_job.py '{"spark.driver.memory": "2g", ...}'

It runs under two interpreters, the project's own and the one of Spark 4.0.0, so it imports
nothing but pyspark; and it stays alive between queries, for a virtual machine that has just
started has not compiled anything yet.  A query reads until the end of its topic
(``availableNow``) into Spark's own sink that keeps nothing.  The answer is a line of JSON too.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import time
from typing import Any

from pyspark.sql import SparkSession


def main(confs: str) -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # What Spark prints is no answer.
    builder = SparkSession.builder
    for name, value in json.loads(confs).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    register_ours(session)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(run_query(session, **json.loads(line))), file=answers, flush=True)
    session.stop()


def register_ours(session: SparkSession) -> None:
    """Where there is ours.  Spark finds it by itself, but not from a path with a blank in it."""
    with contextlib.suppress(ModuleNotFoundError):
        session.dataSource.register(importlib.import_module("pyspark_sharegroup").DefaultSource)


def run_query(
    session: SparkSession, *, source: str, options: dict[str, str], checkpoint: str
) -> dict[str, Any]:
    """The query's wall time, and of each batch when it started, how long it took, its rows."""
    begin = time.perf_counter()
    query = (
        session.readStream.format(source)
        .options(**options)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return {
        "seconds": time.perf_counter() - begin,
        "batches": [
            {
                "started": progress["timestamp"],
                "milliseconds": progress["durationMs"]["triggerExecution"],
                "rows": progress["numInputRows"],
            }
            for progress in query.recentProgress
        ],
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
