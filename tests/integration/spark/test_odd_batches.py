"""Spark reads a log of odd batches as Java does, record by record: as a batch and as a stream."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from sharegroup.spark.offsets import ranges_of
from sharegroup.wire.batches.header_columns import headers_of
from tests.integration.spark.conftest import run_available, stream
from tests.integration.spark.test_poison import lag
from tests.interop.odd_log import (
    TIME_TYPES,
    TOPIC,
    OddLog,
    Seen,
    first_difference,
    odd_log,
    offsets_in,
    raw,
)

COLUMNS = (
    "offset", "unix_millis(timestamp) as timestamp", "timestampType", "key", "value", "headers",
)  # fmt: skip


@pytest.fixture(scope="module", params=TIME_TYPES)
def log(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OddLog]:
    with odd_log(tmp_path_factory.mktemp("odd") / "data", request.param) as log:
        yield log


def rows(frame: DataFrame) -> list[Seen]:
    return [_seen(row.asDict(recursive=True)) for row in frame.selectExpr(*COLUMNS).collect()]


def _seen(row: dict[str, Any]) -> Seen:
    headers = [
        {"key": header["key"], "value": _bytes(header["value"])} for header in row["headers"] or ()
    ]
    return Seen(
        row["offset"], row["timestamp"], row["timestampType"], _bytes(row["key"]),
        _bytes(row["value"]), raw(headers_of(headers)),
    )  # fmt: skip


def _bytes(content: bytearray | None) -> bytes | None:
    return None if content is None else bytes(content)


@pytest.mark.slow
def test_batch_has_every_record_or_names_the_first_range(spark: SparkSession, log: OddLog) -> None:
    read = (
        spark.read.format("kafka-share")
        .option("kafka.bootstrap.servers", log.bootstrap)
        .option("subscribe", TOPIC)
        .option("includeHeaders", "true")
    )
    with pytest.raises(Exception, match="cannot be read") as failed:
        read.load().selectExpr(*COLUMNS).collect()
    told = re.search(r"offsets (\d+) to (\d+) cannot be read", str(failed.value))
    assert told is not None
    assert (int(told[1]), int(told[2]) + 1) == log.unreadable[0]
    found = rows(read.option("failOnUnreadable", "false").load())
    assert first_difference(found, log.records) is None


@pytest.mark.slow
def test_stream_has_every_record_and_rejects_the_rest(
    spark: SparkSession, log: OddLog, tmp_path: Path
) -> None:
    found: list[Seen] = []
    outcomes = tmp_path / "outcomes"
    options = {
        "includeHeaders": "true",
        "failOnUnreadable": "false",
        "outcomesLocation": str(outcomes),
    }
    frame = stream(spark, log.bootstrap, TOPIC, log.group("spark"), **options)
    run_available(frame, tmp_path / "checkpoint", lambda batch, _: found.extend(rows(batch)))
    assert first_difference(found, log.records) is None
    # The reader gives the files that it settled a number of a batch in their names.
    settled = [json.loads(path.read_bytes()) for path in outcomes.rglob("*.*.*.json")]
    rejected = [
        range_
        for document in settled
        for deltas in [document["outcomes"].get(TOPIC, {}).get("0", {}).get("reject", [])]
        for range_ in ranges_of(deltas)
    ]
    # Files of earlier batches may be gone; what they rejected has left the group all the same.
    assert rejected
    assert set(offsets_in(rejected)) <= log.unreadable_offsets
    assert lag(log.bootstrap, "spark") == {0: 0}
