"""The pipeline of docs/spark.md, its first example, runs as it is written."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.integration.spark.conftest import create_topic, produce

PAGE = Path(__file__).resolve().parents[3] / "docs" / "spark.md"
WAIT_SECONDS = 60.0


@pytest.mark.slow
def test_the_pipeline_of_the_page_runs(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    group: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dead = create_topic(bootstrap, partitions=1)
    produce(bootstrap, topic, b'{"id": 1, "total": 9.5}', b"?", b'{"id": 2, "total": 1}')
    code, *_ = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for written, here in {
        "127.0.0.1:9092": bootstrap,
        "warehouse.dead": dead,
        '"orders"': repr(topic),
        '"warehouse"': repr(group),
        # Spark's working directory is that of its JVM.
        "orders.parquet/": f"{tmp_path}/orders.parquet/",
        "warehouse.checkpoint": f"{tmp_path}/checkpoint",
        "query.awaitTermination()\n": "",  # This test waits for the rows below.
    }.items():
        assert written in code
        code = code.replace(written, here)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    exec(compile(code, str(PAGE), "exec"), {})
    (query,) = spark.streams.active
    limit = time.monotonic() + WAIT_SECONDS
    while not (rows := written_rows(spark, tmp_path)) or letters(spark, bootstrap, dead) != [b"?"]:
        assert query.isActive, query.exception()
        assert time.monotonic() < limit, "the pipeline brings nothing"
    query.stop()
    assert rows == [(1, 9.5), (2, 1.0)]


def written_rows(spark: SparkSession, folder: Path) -> list[tuple[int, float]]:
    if not list(folder.glob("orders.parquet/*/_SUCCESS")):
        return []
    rows = spark.read.parquet(str(folder / "orders.parquet")).collect()
    return sorted((row.id, row.total) for row in rows)


def letters(spark: SparkSession, bootstrap: str, topic: str) -> list[bytes]:
    reader = spark.read.format("kafka-share").option("kafka.bootstrap.servers", bootstrap)
    return [bytes(row.value) for row in reader.option("subscribe", topic).load().collect()]
