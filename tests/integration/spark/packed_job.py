"""A job for `spark-submit --archives`: which Python runs the tasks, and where sharegroup is there.

    spark-submit --master local-cluster[2,1,1024] --archives environment.tar.gz#environment \\
        packed_job.py BOOTSTRAP TOPIC GROUP FOLDER

Prints one line of JSON: the rows' offsets, the Pythons of functions in tasks, those of the tasks
that read (seen as processes), and the files of sharegroup in tasks.  It imports nothing that is
not in the archive.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

TASKS = 8
"""So many that both executors get some."""


def where(_: int) -> list[str]:
    """Of a task."""
    # Imported here because this runs in a task, with the Python of the executor.
    import sharegroup

    return [sys.executable, sharegroup.__file__]


def main(bootstrap: str, topic: str, group: str, folder: Path) -> None:
    spark = SparkSession.builder.getOrCreate()
    offsets: list[int] = []
    places: set[tuple[str, ...]] = set()
    workers: set[str] = set()
    placed = udf(where, "array<string>")

    def work(batch: DataFrame, batch_id: int) -> None:
        for row in batch.select("offset", placed("offset")).collect():
            offsets.append(row[0])
            places.add(tuple(row[1]))
        workers.update(worker_pythons())

    query = (
        spark.readStream.format("kafka-share")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("share.group", group)
        .option("minPartitions", TASKS)
        .load()
        .writeStream.foreachBatch(work)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()  # The test that runs this bounds the time.
    spark.stop()
    answer = {"offsets": sorted(offsets), "places": sorted(places), "workers": sorted(workers)}
    sys.stdout.write(json.dumps(answer) + "\n")


def worker_pythons() -> set[str]:
    """The Pythons that the executors have started for tasks, as they were named."""
    listed = subprocess.run(
        ["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    )
    rows = [line.split(maxsplit=2) for line in listed.stdout.splitlines()]
    family, found = {str(os.getppid())}, set()
    for pid, parent, command in sorted(rows, key=lambda row: int(row[0])):
        if parent in family:
            family.add(pid)
            if command.endswith("-m pyspark.daemon pyspark.worker"):
                found.add(command.split()[0])
    return found


if __name__ == "__main__":
    main(*sys.argv[1:4], Path(sys.argv[4]))
