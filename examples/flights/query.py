"""The streaming query: takes flights from its own share group and adds up their delays.

    python -m examples.flights.query BOOTSTRAP RECORDS-PER-BATCH FOLDER LEDGER

    readable     counted by carrier and hour; accepted when Spark has committed the batch
    unreadable   copied to the dead letters, then rejected

It writes three Parquet tables, with one folder for each batch:

    delays/batch=7    the figures of the batch
    weeks/batch=7     its delays by week, joined with the weather of the airport and hour
    records/batch=7   the records of the batch

A batch interrupted by ``kill -9`` is run again, and still no record counts twice:

- The source logs the batch's offsets before Spark runs it. So the batch runs again with the
  same number and the same records, and overwrites the results of its first run.
- The source recognises a redelivered record of a written batch whose acknowledgement got lost,
  and drops it.

A copy among the dead letters may exist twice.

After a restart the query continues from its checkpoint. When the group has no records left, it
reads its tables, compares the figures with those of a batch job over the table of flights, and
ends. See `query_account` for the lines of its ledger.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession, functions as f

from examples.flights.delays import (
    GROUPS,
    added_up,
    by_batch_job,
    differing,
    figures,
    parsed,
    readable_flights,
)
from examples.flights.ledger import LineWriter
from examples.flights.names import DEAD, FLIGHTS, PIPELINE
from examples.flights.query_account import Delays, Result, Week, What
from examples.flights.weather import WEEKS, by_week, weather, weeks_added_up, weeks_differing
from sharegroup.spark import ShareGroupListener, dead_letter, ensure_java, ensure_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from sharegroup.spark.query_figures import QueryFigures

LOOK_SECONDS = 0.2
MEMORY = "640m"
"""The size of the JVM's heap."""
FOREIGN = ("HADOOP_", "PYSPARK_", "SPARK_")
"""Prefixes of variables that would make Spark use another installation's files or settings."""
UNREADABLE = "not JSON"


def session(folder: Path) -> SparkSession:
    """Start Spark on two cores, listening on loopback, with all its files in ``folder``.

    It uses the Spark and the Python that the demo is installed with, even if the environment
    names others.
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
    """The query between a start and its end or kill."""

    def __init__(self, spark: SparkSession, folder: Path, ledger: LineWriter) -> None:
        self._spark = spark
        self._folder = folder
        self._ledger = ledger
        self._told: dict[str, Any] = {}
        self._weather = weather(spark).persist()

    def run(self, bootstrap_servers: str, batch_records: int) -> None:
        """Process batches until the group has no records left."""
        records = (
            self._spark.readStream.format("kafka-share")
            .option("kafka.bootstrap.servers", bootstrap_servers)
            .option("subscribe", FLIGHTS)
            .option("share.group", PIPELINE)
            .option("maxOffsetsPerTrigger", batch_records)
            .option("includeDeliveryCount", True)
            .option("outcomesLocation", str(self._folder / "outcomes"))
            .load()
        )
        listener = ShareGroupListener(self._spark, is_logged=False, on_figures=self._tell_figures)
        self._spark.streams.addListener(listener)
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
            self._spark.streams.removeListener(listener)

    def compare(self) -> None:
        """Read the tables, compare them with a batch job, and write the result to the ledger."""
        streamed = added_up(self._spark.read.parquet(self._table("delays"))).persist()
        expected = by_batch_job(self._spark, self._table("flights.csv")).persist()
        records = self._spark.read.parquet(self._table("records")).persist()
        weeks = weeks_added_up(self._spark.read.parquet(self._table("weeks"))).persist()
        flights = readable_flights(self._spark, self._table("flights.csv"))
        record_key = ("partition", "offset")
        rejected = records.where("not readable").select(*record_key).distinct()
        result = Result(
            rows=records.count(),
            records=records.select(*record_key).distinct().count(),
            redelivered=records.where("deliveryCount > 1").count(),
            accepted=records.where("readable").count(),
            rejected=sorted((row.partition, row.offset) for row in rejected.collect()),
            groups=expected.count(),
            groups_differing=differing(streamed, expected),
            delays=[Delays(*row) for row in streamed.orderBy(*GROUPS).collect()],
            weeks_differing=weeks_differing(weeks, by_week(flights, self._weather)),
            weeks=[Week(*row) for row in weeks.orderBy(*WEEKS).collect()],
        )
        self._ledger.append({"what": What.RESULT, **result._asdict()})

    def _process(self, batch: DataFrame, batch_id: int) -> None:
        rows = parsed(batch).persist()
        try:
            self._tell_batch(rows, batch_id)
            unreadable = rows.where("flight is null")
            flights = rows.where("flight is not null").select("flight.*")
            self._write(figures(flights).coalesce(1), "delays", batch_id)
            self._write(by_week(flights, self._weather).coalesce(1), "weeks", batch_id)
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
        """Write the batch's number of records and fingerprint to the ledger.

        The same records always have the same fingerprint.
        """
        (row,) = rows.select(
            f.count("*").alias("records"),
            f.bit_xor(f.xxhash64("partition", "offset")).alias("fingerprint"),
        ).collect()
        self._ledger.append({"what": What.BATCH, "batch": batch_id, **row.asDict()})

    def _tell_figures(self, told: QueryFigures) -> None:
        """Write the figures of a batch, or of an idle query, to the ledger; in Spark's thread."""
        (group,) = told.groups
        self._ledger.append(
            {
                "what": What.FIGURES,
                "rows": told.rows,
                "batch_ms": told.batch_ms,
                "lag": group.lag,
                "held": group.held,
                "carried": group.carried,
                "recognised": group.counts["recognised"],
            }
        )

    def _write(self, rows: DataFrame, table: str, batch_id: int) -> None:
        rows.write.mode("overwrite").parquet(f"{self._table(table)}/batch={batch_id}")

    def _is_done(self, query: StreamingQuery) -> bool:
        """Return whether the group has no records left; raise the error of a failed query."""
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
    """Return the figures of the share group in the last progress; {} before the first one."""
    progress = query.lastProgress
    group_json = progress["sources"][0]["latestOffset"] if progress else None
    return json.loads(group_json) if group_json and group_json != "null" else {}


def main(bootstrap_servers: str, batch_records: int, folder: Path, path: Path) -> None:
    """Run the query, then compare its tables with a batch job."""
    ledger = LineWriter(path)
    spark = session(folder)
    try:
        pipeline = Pipeline(spark, folder, ledger)
        ledger.append({"what": What.STARTED})
        pipeline.run(bootstrap_servers, batch_records)
        pipeline.compare()
    finally:
        spark.stop()
        ledger.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]))
