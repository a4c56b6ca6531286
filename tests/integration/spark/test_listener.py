"""`ShareGroupListener` on a real query: figures of batches, of an idle query, and of its end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from pyspark.sql import DataFrame, SparkSession

from sharegroup.spark import ShareGroupListener, reject
from sharegroup.spark.query_figures import QueryFigures
from tests.integration.spark.conftest import produce, stream

WAIT_SECONDS_MAX = 60.0
IDLE_INTERVAL = "spark.sql.streaming.noDataProgressEventInterval"


def wait_for(condition: Callable[[], object], expected: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"expected {expected} in {WAIT_SECONDS_MAX} s"
        time.sleep(0.05)


@pytest.mark.slow
def test_figures_of_a_query_from_its_batch_to_its_end(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    group: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    produce(bootstrap, topic, *[b"good"] * 9, b"bad")
    registry = CollectorRegistry()
    seen: list[QueryFigures] = []
    listener = ShareGroupListener(spark, registry=registry, on_figures=seen.append)

    def work(batch: DataFrame, batch_id: int) -> None:
        reject(batch.where("value = 'bad'"))

    spark.conf.set(IDLE_INTERVAL, "100")
    spark.streams.addListener(listener)
    query = None
    try:
        with caplog.at_level(logging.INFO, logger="sharegroup.spark.query"):
            records = stream(spark, bootstrap, topic, group, outcomesLocation=str(tmp_path / "o"))
            query = (
                records.writeStream.queryName("orders")
                .foreachBatch(work)
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .start()
            )
            wait_for(
                lambda: any(f.is_idle and f.groups[0].counts["rejected"] == 1 for f in seen),
                "an idle report after the outcome of the batch",
            )
        (batch,) = [figures for figures in seen if figures.rows]
        idle = next(f for f in seen if f.is_idle and f.groups[0].counts["rejected"] == 1)
        assert (batch.name, batch.rows, batch.groups[0].group) == ("orders", 10, group)
        assert batch.batch_ms >= batch.phases_ms["addBatch"] > 0
        assert (batch.groups[0].held, batch.groups[0].counts["accepted"]) == (10, 0)
        assert (idle.groups[0].held, idle.groups[0].counts["accepted"]) == (0, 9)
        assert any(f"group={group} batch=" in message for message in caplog.messages)
        labels = {"query": "orders", "group": group}
        wait_for(
            lambda: registry.get_sample_value("sharegroup_spark_lag", labels) == 0, "a lag of 0"
        )
        query.stop()
        wait_for(
            lambda: registry.get_sample_value("sharegroup_spark_lag", labels) is None,
            "no lag of a query that has ended",
        )
        accepted = {**labels, "event": "accepted"}
        assert registry.get_sample_value("sharegroup_spark_records_total", accepted) == 9
    finally:
        if query is not None:
            query.stop()
        spark.streams.removeListener(listener)
        spark.conf.unset(IDLE_INTERVAL)
