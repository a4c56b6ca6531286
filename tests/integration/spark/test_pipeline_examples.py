"""The pipelines under ``examples/spark`` do what their first lines say.

Each is loaded as the script that a user starts, so Spark sends its functions to the workers by
value, and each has a broker of its own, because the examples' topics have fixed names.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from sharegroup.testing.embedded import TestBroker
from tests.support import postgres
from tests.support.chosen_broker import LONG_WITH_A_JVM

pytestmark = LONG_WITH_A_JVM

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples" / "spark"
QUERY_SECONDS_MAX = 90
WAIT_SECONDS_MAX = 60


@pytest.fixture
def broker(sharegroup_broker: TestBroker) -> TestBroker:
    """A broker whose share groups begin with the oldest records."""
    for group in GROUPS:
        sharegroup_broker.configure_group(group, {"share.auto.offset.reset": "earliest"})
    return sharegroup_broker


GROUPS = (
    *("turnover", "orders-join", "payments-join", "watch", "warehouse", "lake", "shop", "reports"),
    *("copy", "priced", "checked"),
)


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def run(writer: DataStreamWriter) -> None:
    """Run a query until it has processed what there is."""
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(QUERY_SECONDS_MAX), "the query does not end"
    finally:
        query.stop()


def at(minute: int) -> str:
    return f"2026-01-01T12:{minute:02}:00Z"


def order(number: int, total: float, version: int = 1) -> str:
    return json.dumps({"id": number, "version": version, "total": total})


def table(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def run_twice(
    store: Callable[..., None], records: DataFrame, checkpoint: Path, **options: Any
) -> None:
    """Run a query that stores each batch twice, like one that was killed after the first time."""

    def both(batch: DataFrame, batch_id: int) -> None:
        store(batch, batch_id, **options)
        store(batch, batch_id, **options)

    run(records.writeStream.foreachBatch(both).option("checkpointLocation", str(checkpoint)))


def records_of(spark: SparkSession, broker: TestBroker, group: str, **options: str) -> DataFrame:
    reader = spark.readStream.format("kafka-share").options(**options)
    reader = reader.option("kafka.bootstrap.servers", broker.bootstrap_servers)
    return reader.option("subscribe", "orders").option("share.group", group).load()


def test_windows_are_written_once_the_watermark_has_passed(
    spark: SparkSession, broker: TestBroker, tmp_path: Path
) -> None:
    query = example("window_totals")["query"]

    def produce(*orders: tuple[int, float]) -> None:
        values = [
            json.dumps({"id": 1, "total": total, "at": at(minute)}) for minute, total in orders
        ]
        broker.produce("orders", *values)

    def written() -> list[tuple[Any, ...]]:
        windows = spark.read.parquet(str(tmp_path / "windows"))
        return table(windows.selectExpr("minute(start)", "minute(end)", "orders", "total"))

    produce((0, 9.5), (3, 0.5), (7, 1.0), (31, 2.0))
    broker.produce("orders", "one apple")
    run(query(spark, broker.bootstrap_servers, tmp_path))
    assert written() == [(0, 5, 2, 10.0), (5, 10, 1, 1.0)]

    produce((4, 100.0), (50, 4.0))  # The first is too late: its window is written.
    run(query(spark, broker.bootstrap_servers, tmp_path))
    assert written() == [(0, 5, 2, 10.0), (5, 10, 1, 1.0), (30, 35, 1, 2.0)]
    broker.wait_until(group="turnover", topic="orders", lag=0)


def test_join_has_paid_orders_and_those_that_are_overdue(
    spark: SparkSession, broker: TestBroker, tmp_path: Path
) -> None:
    query = example("join_payments")["query"]
    orders = [
        {"id": number, "total": 1.0, "at": at(minute)}
        for number, minute in ((1, 0), (2, 1), (3, 2), (9, 59))
    ]
    payments = [
        {"order": number, "paid": 1.0, "at": at(minute)}
        for number, minute in ((1, 20), (2, 40), (9, 59))
    ]
    broker.produce("orders", *map(json.dumps, orders))
    broker.produce("payments", *map(json.dumps, payments))
    run(query(spark, broker.bootstrap_servers, tmp_path))
    found = {row.id: row.paid for row in spark.read.parquet(str(tmp_path / "orders")).collect()}
    # Order 2 was paid after 39 minutes, order 3 never.
    assert found == {1: 1.0, 2: None, 3: None, 9: 1.0}


@pytest.mark.parametrize("in_pandas", [False, True], ids=["rows", "pandas"])
# PySpark warns that it does not know the newest pandas yet.
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_silent_sensor_is_reported_once(
    spark: SparkSession, broker: TestBroker, tmp_path: Path, in_pandas: bool
) -> None:
    query = example("silent_sensors")["query"]

    def produce(*readings: tuple[str, int]) -> None:
        values = [json.dumps({"sensor": name, "at": at(minute)}) for name, minute in readings]
        broker.produce("readings", *values)

    def reported() -> list[tuple[Any, ...]]:
        rows = spark.read.parquet(str(tmp_path / "silent"))
        return table(rows.selectExpr("sensor", "readings", "minute(timestamp_millis(last_ms))"))

    try:
        produce(("roof", 4), ("roof", 2), ("cellar", 3), ("cellar", 9))
        run(query(spark, broker.bootstrap_servers, tmp_path, in_pandas=in_pandas))
        produce(("cellar", 18))
        run(query(spark, broker.bootstrap_servers, tmp_path, in_pandas=in_pandas))
        assert reported() == [("roof", 2, 4)]
        produce(("roof", 50))
        run(query(spark, broker.bootstrap_servers, tmp_path, in_pandas=in_pandas))
        assert reported() == [("cellar", 3, 18), ("roof", 2, 4)]
    finally:
        spark.conf.unset("spark.sql.streaming.stateStore.providerClass")


def test_parquet_batch_that_runs_again_is_overwritten(
    spark: SparkSession, broker: TestBroker, tmp_path: Path
) -> None:
    broker.produce("orders", order(1, 9.5), "one apple", order(2, 1.0))
    records = records_of(spark, broker, "warehouse", outcomesLocation=str(tmp_path / "outcomes"))
    run_twice(example("parquet_batches")["store"], records, tmp_path / "check", folder=tmp_path)
    orders = spark.read.parquet(str(tmp_path / "table")).select("id", "total")
    assert table(orders) == [(1, 9.5), (2, 1.0)]
    assert {letter.value for letter in broker.records("warehouse.dead")} == {b"one apple"}


def test_delta_batch_that_runs_again_is_skipped(
    spark: SparkSession, broker: TestBroker, tmp_path: Path
) -> None:
    deltalake = pytest.importorskip("deltalake")
    broker.produce("orders", order(1, 9.5), order(2, 1.0))
    store = example("delta_table")["store"]
    records = records_of(spark, broker, "lake", maxOffsetsPerTrigger="1")
    run_twice(store, records, tmp_path / "check", table=tmp_path / "table")
    stored = deltalake.DeltaTable(str(tmp_path / "table"))
    rows = stored.to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["total"]) for row in rows) == [(1, 9.5), (2, 1.0)]


def test_duckdb_keeps_the_newest_version_and_counts_each_record_once(
    spark: SparkSession, broker: TestBroker, tmp_path: Path
) -> None:
    duckdb = pytest.importorskip("duckdb")
    broker.produce("orders", order(1, 2.0, version=2), order(2, 5.0), order(1, 1.0, version=1))
    file = tmp_path / "orders.duckdb"
    store = example("duckdb_upsert")["store"]
    run_twice(store, records_of(spark, broker, "reports"), tmp_path / "check", file=file)
    broker.produce("orders", order(2, 4.0, version=0), order(1, 3.0, version=3))
    run_twice(store, records_of(spark, broker, "reports"), tmp_path / "check", file=file)
    with duckdb.connect(str(file)) as database:
        orders = database.execute("SELECT * FROM orders ORDER BY id").fetchall()
        assert orders == [(1, 3, 3.0), (2, 1, 5.0)]
        assert database.execute("SELECT sum(records) FROM deliveries").fetchone() == (5,)


@pytest.mark.skipif(postgres.why_missing() is not None, reason=postgres.why_missing() or "")
def test_postgres_keeps_the_newest_version(
    spark: SparkSession, broker: TestBroker, tmp_path: Path
) -> None:
    psycopg = pytest.importorskip("psycopg")
    namespace = example("postgres_upsert")
    with postgres.running() as database:
        broker.produce("orders", order(1, 2.0, version=2), order(2, 5.0), order(1, 1.0, version=1))
        run(namespace["query"](spark, broker.bootstrap_servers, tmp_path, database))
        broker.produce("orders", order(2, 4.0, version=0), order(1, 3.0, version=3))
        records = records_of(spark, broker, "shop")
        run_twice(namespace["store"], records, tmp_path / "checkpoint", database=database)
        with psycopg.connect(database) as connection:
            orders = connection.execute("SELECT * FROM orders ORDER BY id").fetchall()
    assert orders == [(1, 3, 3.0), (2, 1, 5.0)]


def test_kafka_copy_of_a_batch_that_runs_again_is_written_once(
    spark: SparkSession, broker: TestBroker, tmp_path: Path
) -> None:
    broker.create_topic("orders.copy", partitions=2)
    broker.produce("orders", *(order(number, 1.0) for number in range(20)))
    records = records_of(spark, broker, "copy", maxOffsetsPerTrigger="10")
    store = example("write_once")["store"]
    run_twice(store, records, tmp_path / "check", bootstrap=broker.bootstrap_servers)
    copied = [json.loads(record.value)["id"] for record in broker.records("orders.copy")]
    assert sorted(copied) == list(range(20))


def test_refused_order_goes_back_to_the_worker_and_ends_after_three_tries(
    spark: SparkSession, broker: TestBroker, tmp_path: Path
) -> None:
    items = ("apple", "pear", "plum")
    values = [{"id": n, "item": item, "pieces": 2} for n, item in enumerate(items)]
    broker.create_topic("orders")
    broker.create_topic("orders.priced")
    broker.create_topic("orders.refused")
    broker.produce("orders", *map(json.dumps, values))
    query = example("priced_orders")["query"]
    with worker("examples.spark.priced_orders:app", broker, tmp_path):
        writer = query(spark, broker.bootstrap_servers, tmp_path)
        running = writer.trigger(processingTime="200 milliseconds").start()
        try:
            wait_for(lambda: len(broker.records("orders.refused.dead")) == 1, "a dead letter")
            broker.wait_until(group="priced", topic="orders.priced", lag=0)
        finally:
            running.stop()
    (dead,) = broker.records("orders.refused.dead")
    assert json.loads(dead.value)["item"] == "plum"
    priced = spark.read.parquet(str(tmp_path / "table")).select("item", "total", "tries")
    assert table(priced) == [("apple", 1.0, 1), ("pear", 1.2, 2)]


def test_refused_order_is_redriven_to_the_worker_three_times_and_then_stays(
    spark: SparkSession, broker: TestBroker, tmp_path: Path
) -> None:
    """Apples pass, pears pass after a redrive, and plums are refused each time."""
    items = ("apple", "pear", "plum")
    values = [{"id": n, "item": item, "pieces": 2} for n, item in enumerate(items)]
    for topic in ("orders", "orders.priced", "orders.refused", "checked.retry"):
        broker.create_topic(topic)
    broker.produce("orders", *map(json.dumps, values))
    module = example("returned_orders")

    def checked(records: int) -> None:
        broker.wait_until(topic="orders.priced", records=records, timeout_s=60)
        run(module["query"](spark, broker.bootstrap_servers, tmp_path))

    def redriven() -> tuple[dict[str, int], dict[str, int]]:
        done = module["send_back"](spark, broker.bootstrap_servers)["orders.refused"]
        assert done.refused.letters == 0
        return dict(done.sent), dict(done.left)

    with worker("examples.spark.returned_orders:app", broker, tmp_path):
        checked(3)
        assert redriven() == ({"checked.retry": 2}, {})
        checked(5)
        for count in (6, 7):
            assert redriven() == ({"checked.retry": 1}, {})
            checked(count)
        assert redriven() == ({}, {"redrives-exhausted": 1})
    priced = spark.read.parquet(str(tmp_path / "table")).select("item", "total")
    assert table(priced) == [("apple", 1.0), ("pear", 1.2)]
    items_refused = [json.loads(r.value)["item"] for r in broker.records("orders.refused")]
    assert sorted(items_refused) == ["pear", "plum", "plum", "plum", "plum"]


@contextmanager
def worker(application: str, broker: TestBroker, folder: Path) -> Iterator[None]:
    """``sharegroup worker`` with the application of an example."""
    log_path = folder / "worker.log"
    with open(log_path, "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "sharegroup", "worker", application],
            cwd=folder,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "SHAREGROUP_BOOTSTRAP": broker.bootstrap_servers,
            },
            stdout=log,
            stderr=log,
        )
    try:
        yield
        process.terminate()
        assert process.wait(WAIT_SECONDS_MAX) == 0, log_path.read_text()
    finally:
        process.kill()
        process.wait()


def wait_for(condition: Callable[[], bool], expected: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"expected {expected} within {WAIT_SECONDS_MAX} s"
        time.sleep(0.1)
