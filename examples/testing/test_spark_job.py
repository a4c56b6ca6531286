"""Tests a Spark job that reads a share group.

pip install '.[spark]' pytest     # with [spark,java] if there is no Java 17
pytest examples/testing/test_spark_job.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import sharegroup.spark  # noqa: F401  Registers the format "kafka-share".
from sharegroup.testing import TestBroker


def start_billing(spark: SparkSession, bootstrap: str, folder: Path) -> StreamingQuery:
    """The code under test: it writes the total of each order to a folder."""
    reader = spark.readStream.format("kafka-share").option("share.group", "billing")
    orders = reader.option("kafka.bootstrap.servers", bootstrap).option("subscribe", "orders")
    totals = orders.load().selectExpr("from_json(string(value), 'id long, total double') o")
    writer = totals.select("o.*").writeStream.format("parquet").option("path", str(folder / "out"))
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False)
    with session.getOrCreate() as running:
        yield running


def test_every_order_is_written_once(
    spark: SparkSession,
    sharegroup_broker: TestBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    broker = sharegroup_broker
    broker.configure_group("billing", {"share.auto.offset.reset": "earliest"})
    broker.produce("orders", '{"id": 1, "total": 9.5}', '{"id": 2, "total": 1}')
    query = start_billing(spark, broker.bootstrap_servers, tmp_path)
    try:
        broker.wait_until(group="billing", topic="orders", lag=0, timeout_s=120)
    finally:
        query.stop()
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted((row.id, row.total) for row in rows) == [(1, 9.5), (2, 1.0)]
