"""The streaming query: takes flights from a share group of its own and adds up their delays.

    python -m sharegroup.cli.flights.query BOOTSTRAP RECORDS-PER-BATCH FOLDER LEDGER

    readable     counted by carrier and hour; accepted when Spark has committed the batch
    unreadable   copied to the dead letters, then rejected

It writes two tables of Parquet, each with one folder for each batch:

    delays/batch=7    what the batch adds to the figures
    records/batch=7   which records it had: the query's account of itself

Why nothing counts twice, though a batch that was under way at a ``kill -9`` is run again: the
source logs the batch's offsets before Spark runs it, so it is run again under the same number
with the same records, and overwrites what it wrote the first time.  And a record of a batch
that was written, but whose acknowledgement got lost, is recognised when it comes again, and not
shown.  A copy among the dead letters may be there twice.

Started again, it goes on from its checkpoint.  When the group has nothing left, it reads its
tables back, compares the figures with those of a batch job over the table of flights, and ends.
Its ledger is written as a worker's is; see `query_account` for its lines.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from sharegroup.cli.flights.delays import GROUPS, added_up, by_batch_job, differing, figures, parsed
from sharegroup.cli.flights.ledger import LineWriter
from sharegroup.cli.flights.names import DEAD, FLIGHTS, PIPELINE
from sharegroup.cli.flights.query_account import Delays, Result, What
from sharegroup.spark import dead_letter, ensure_java, ensure_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_SECONDS = 0.2
MEMORY = "640m"
"""Of the JVM's heap: the demo is no large job."""
FOREIGN = ("HADOOP_", "PYSPARK_", "SPARK_")
"""Variables that would have Spark run with another installation's files or settings."""
UNREADABLE = "not JSON"


def session(folder: Path) -> SparkSession:
    """Spark on two cores of this machine, listening on loopback, with all its files in ``folder``.

    It is the Spark and the Python that the demo is installed with, whatever others the
    environment names.
    """
    ensure_java()
    for name in [name for name in os.environ if name.startswith(FOREIGN)]:
        del os.environ[name]
    ensure_python()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    scratch = folder / "spark"
    scratch.mkdir(exist_ok=True)
    java = f'-XX:+UseSerialGC -XX:TieredStopAtLevel=1 "-Djava.io.tmpdir={scratch}"'
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": java,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": MEMORY,
        "spark.local.dir": str(scratch),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.noDataProgressEventInterval": "0",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("sharegroup demo")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class Pipeline:
    """One start of the query."""

    def __init__(self, spark: SparkSession, folder: Path, ledger: LineWriter) -> None:
        self._spark = spark
        self._folder = folder
        self._ledger = ledger
        self._told: dict[str, Any] = {}

    def run(self, bootstrap: str, batch_records: int) -> None:
        """Work until the group has nothing left."""
        records = (
            self._spark.readStream.format("kafka-share")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", FLIGHTS)
            .option("share.group", PIPELINE)
            .option("maxOffsetsPerTrigger", batch_records)
            .option("includeDeliveryCount", True)
            .option("outcomesLocation", str(self._folder / "outcomes"))
            .load()
        )
        query = (
            records.writeStream.foreachBatch(self._process)
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .start()
        )
        try:
            while not self._is_done(query):
                time.sleep(LOOK_SECONDS)
        finally:
            query.stop()

    def compare(self) -> None:
        """Read the tables back, and write down what they say, and what they should say."""
        streamed = added_up(self._spark.read.parquet(self._table("delays"))).persist()
        expected = by_batch_job(self._spark, self._table("flights.csv")).persist()
        records = self._spark.read.parquet(self._table("records")).persist()
        place = ("partition", "offset")
        rejected = records.where("not readable").select(*place).distinct()
        result = Result(
            rows=records.count(),
            records=records.select(*place).distinct().count(),
            redelivered=records.where("deliveryCount > 1").count(),
            accepted=records.where("readable").count(),
            rejected=sorted((row.partition, row.offset) for row in rejected.collect()),
            groups=expected.count(),
            groups_differing=differing(streamed, expected),
            delays=[Delays(*row) for row in streamed.orderBy(*GROUPS).collect()],
        )
        self._ledger.append({"what": What.RESULT, **result._asdict()})

    def _process(self, batch: DataFrame, batch_id: int) -> None:
        rows = parsed(batch).persist()
        try:
            self._tell_batch(rows, batch_id)
            unreadable = rows.where("flight is null")
            flights = rows.where("flight is not null").select("flight.*")
            self._write(figures(flights).coalesce(1), "delays", batch_id)
            account = rows.selectExpr(
                "partition", "offset", "deliveryCount", "flight is not null as readable"
            )
            self._write(account, "records", batch_id)
            self._ledger.append({"what": What.WRITTEN, "batch": batch_id})
            dead_letter(unreadable, DEAD, message=UNREADABLE)
        finally:
            rows.unpersist()
        self._ledger.append({"what": What.DONE, "batch": batch_id})

    def _tell_batch(self, rows: DataFrame, batch_id: int) -> None:
        """The records are in the query's hands; the fingerprint is the same for the same ones."""
        (said,) = rows.select(
            f.count("*").alias("records"),
            f.bit_xor(f.xxhash64("partition", "offset")).alias("fingerprint"),
        ).collect()
        self._ledger.append({"what": What.BATCH, "batch": batch_id, **said.asDict()})

    def _write(self, rows: DataFrame, table: str, batch_id: int) -> None:
        rows.write.mode("overwrite").parquet(f"{self._table(table)}/batch={batch_id}")

    def _is_done(self, query: StreamingQuery) -> bool:
        """Whether nothing is left of the group; raises what the query died of."""
        if not query.isActive:
            query.awaitTermination()
        group = _group(query)
        if group != self._told:
            self._told = group
            self._ledger.append({"what": What.PROGRESS, "group": group})
        return group.get("lag") == 0 and group.get("held") == 0

    def _table(self, name: str) -> str:
        return str(self._folder / name)


def _group(query: StreamingQuery) -> dict[str, Any]:
    """What the last progress says of the share group; empty before there is one."""
    progress = query.lastProgress
    said = progress["sources"][0]["latestOffset"] if progress else None
    return json.loads(said) if said and said != "null" else {}


def main(bootstrap: str, batch_records: int, folder: Path, path: Path) -> None:
    """Run the query, then compare."""
    ledger = LineWriter(path)
    spark = session(folder)
    try:
        pipeline = Pipeline(spark, folder, ledger)
        ledger.append({"what": What.STARTED})
        pipeline.run(bootstrap, batch_records)
        pipeline.compare()
    finally:
        spark.stop()
        ledger.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]))
