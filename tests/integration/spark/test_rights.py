"""Queries with the rights that docs/spark.md names run, and without one of them say which.

It takes a minute or two, so it belongs to ``make interop`` and ``make interop-kafka``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.interop.guarded import Guarded, Visitor, each_missing, furnish, guarded, tables
from tests.support.chosen_broker import KAFKA, LONG_WITH_A_JVM, ON_KAFKA, chosen

pytestmark = [LONG_WITH_A_JVM, *(ON_KAFKA if chosen() == KAFKA else [])]

TABLES = tables()
Job = Callable[[SparkSession, Visitor, Path], None]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("guarded")) as node:
        yield node


def options(visitor: Visitor) -> dict[str, Any]:
    named = {f"kafka.{name.replace('_', '.')}": value for name, value in visitor.options.items()}
    for ours, kafkas in (("plain.username", "username"), ("plain.password", "password")):
        named[f"kafka.sasl.{kafkas}"] = named.pop(f"kafka.sasl.{ours}")
    return named


def stream(spark: SparkSession, visitor: Visitor, folder: Path) -> None:
    orders = (
        spark.readStream.format("kafka-share")
        .options(**options(visitor))
        .option("subscribe", f"{visitor.prefix}orders")
        .option("share.group", f"{visitor.prefix}billing")
        .option("outcomesLocation", str(folder / "outcomes"))
        .load()
    )
    seen: list[int] = []
    query = (
        orders.writeStream.foreachBatch(lambda batch, _: seen.append(batch.count()))
        .option("checkpointLocation", str(folder / visitor.name))
        .start()
    )
    try:
        for _ in range(600):
            if sum(seen) >= 2 or query.awaitTermination(0.1):
                break
        else:
            raise AssertionError("neither rows nor an error")
    finally:
        query.stop()


def read(spark: SparkSession, visitor: Visitor, folder: Path) -> None:
    orders = spark.read.format("kafka-share").options(**options(visitor))
    assert orders.option("subscribe", f"{visitor.prefix}orders").load().count() == 2


def write(spark: SparkSession, visitor: Visitor, folder: Path) -> None:
    rows = spark.createDataFrame([("three",)], "value string")
    writing = rows.write.format("kafka-share").options(**options(visitor)).mode("append")
    writing.option("topic", f"{visitor.prefix}orders").save()


JOBS: dict[str, Job] = {
    "`spark.readStream`": stream,
    "`spark.read`": read,
    "`df.write`, `df.writeStream` and `dead_letter`": write,
}


@pytest.mark.parametrize("title", JOBS)
def test_query(kafka: Guarded, spark: SparkSession, title: str, tmp_path: Path) -> None:
    rights = TABLES[title].rights
    visitor = kafka.visitor(rights)
    asyncio.run(furnish(visitor))
    JOBS[title](spark, visitor, tmp_path)
    for absent, others in each_missing(rights):
        visitor = kafka.visitor(others)
        asyncio.run(furnish(visitor))
        with pytest.raises(Exception, match="needs") as refused:
            JOBS[title](spark, visitor, tmp_path)
        text = str(refused.value)
        assert absent.missing(visitor.name, visitor.prefix).search(text), text
