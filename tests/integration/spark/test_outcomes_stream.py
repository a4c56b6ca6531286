"""Per-row outcomes in foreachBatch: what a whole query makes of them."""

from __future__ import annotations

import shutil
import time
from collections import Counter, defaultdict
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, concat, lit, when

from sharegroup.spark import dead_letter, outcomes, reject, release
from tests.integration.spark.conftest import (
    create_topic,
    produce,
    run_available,
    set_group_config,
    stream,
)
from tests.support.chosen_broker import KAFKA, chosen


@pytest.mark.slow
def test_released_rows_are_redelivered_and_rejected_ones_are_not(
    spark: SparkSession, bootstrap: str, topic: str, group: str, tmp_path: Path
) -> None:
    """One record is released until its delivery limit of 3, one rejected, the others accepted."""
    set_group_config(bootstrap, group, "share.delivery.count.limit", "3")
    produce(bootstrap, topic, b"good", b"bad", b"later", b"good")
    seen: Counter[bytes] = Counter()

    def work(batch: DataFrame, batch_id: int) -> None:
        batch.persist()
        seen.update(bytes(row.value) for row in batch.select("value").collect())
        reject(batch.where("value = 'bad'"))
        release(batch.where("value = 'later'"))
        batch.unpersist()

    run_available(
        stream(spark, bootstrap, topic, group, outcomesLocation=str(tmp_path / "outcomes")),
        tmp_path / "checkpoint",
        work,
    )
    assert seen == {b"good": 2, b"bad": 1, b"later": 3}
    kept = [path.name.split(".") for path in (tmp_path / "outcomes").rglob("*.json")]
    assert [seq for _query, seq, _hash, _json in kept] == ["3"], "of the last batch only"


def test_outcomes_follow_a_column(
    spark: SparkSession, bootstrap: str, topic: str, group: str, tmp_path: Path
) -> None:
    set_group_config(bootstrap, group, "share.delivery.count.limit", "2")
    produce(bootstrap, topic, b"accept", b"reject", b"release", b"null")
    seen: Counter[bytes] = Counter()

    def work(batch: DataFrame, batch_id: int) -> None:
        seen.update(bytes(row.value) for row in batch.select("value").collect())
        text = col("value").cast("string")
        outcomes(batch.withColumn("outcome", when(text != "null", text)))

    run_available(
        stream(spark, bootstrap, topic, group, outcomesLocation=str(tmp_path / "outcomes")),
        tmp_path / "checkpoint",
        work,
    )
    assert seen == {b"accept": 1, b"reject": 1, b"release": 2, b"null": 1}


@pytest.mark.slow
def test_rows_released_with_a_delay_come_again_after_it(
    spark: SparkSession, bootstrap: str, topic: str, group: str, tmp_path: Path
) -> None:
    """Apache Kafka has no delays, so there the query ends."""
    produce(bootstrap, topic, b"now", b"later", b"late")
    seen: dict[bytes, list[float]] = defaultdict(list)

    def work(batch: DataFrame, batch_id: int) -> None:
        for row in batch.collect():
            seen[bytes(row.value)].append(time.monotonic())
        if batch_id == 0:
            release(batch.where("value = 'later'"), delay="2s")
            named = batch.withColumn("outcome", when(col("value") == b"late", lit("release")))
            outcomes(named, delay=timedelta(seconds=1))

    frame = stream(spark, bootstrap, topic, group, outcomesLocation=str(tmp_path / "outcomes"))
    if chosen() == KAFKA:
        with pytest.raises(PySparkException, match="does not, as Apache Kafka"):
            run_available(frame, tmp_path / "checkpoint", work)
        return
    run_available(frame, tmp_path / "checkpoint", work)
    assert {value: len(times) for value, times in seen.items()} == {
        b"now": 1,
        b"later": 2,
        b"late": 2,
    }
    assert seen[b"late"][1] - seen[b"late"][0] >= 1
    assert seen[b"later"][1] - seen[b"later"][0] >= 2


@pytest.mark.slow
def test_dead_letters_keep_key_value_and_headers(
    spark: SparkSession, bootstrap: str, topic: str, group: str, tmp_path: Path
) -> None:
    dead = create_topic(bootstrap, partitions=1)
    produce(bootstrap, topic, b"good", b"bad", partition=1)

    def work(batch: DataFrame, batch_id: int) -> None:
        bad = batch.where("value = 'bad'")
        dead_letter(bad, dead, message=concat(lit("can't read "), col("value").cast("string")))

    run_available(
        stream(
            spark,
            bootstrap,
            topic,
            group,
            includeHeaders="true",
            includeDeliveryCount="true",
            outcomesLocation=str(tmp_path / "outcomes"),
        ),
        tmp_path / "checkpoint",
        work,
    )
    (letter,) = (
        spark.read.format("kafka-share")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", dead)
        .option("includeHeaders", "true")
        .load()
        .collect()
    )
    assert (letter.key, bytes(letter.value)) == (None, b"bad")
    assert {header.key: bytes(header.value).decode() for header in letter.headers} == {
        "__dlq.errors.topic": topic,
        "__dlq.errors.partition": "1",
        "__dlq.errors.offset": "1",
        "__dlq.errors.group": group,
        "__dlq.errors.delivery.count": "1",
        "__dlq.errors.message": "can't read bad",
    }


@pytest.mark.slow
def test_rows_that_the_caller_has_persisted_stay_so(
    spark: SparkSession, bootstrap: str, topic: str, group: str, tmp_path: Path
) -> None:
    """The letters are rows of the batch itself, of a part that is persisted, and of one that is
    not."""
    dead = create_topic(bootstrap, partitions=1)
    produce(bootstrap, topic, b"good", b"bad", b"worse")
    kept: dict[str, bool] = {}

    def work(batch: DataFrame, batch_id: int) -> None:
        if batch_id or not batch.count():
            return
        parts = {
            "batch": batch.persist(),
            "part": batch.where("value = 'bad'").persist(StorageLevel.DISK_ONLY),
            "other part": batch.where("value = 'worse'"),
        }
        for name, rows in parts.items():
            dead_letter(rows, dead)
            kept[name] = rows.storageLevel != StorageLevel.NONE
        batch.unpersist()
        parts["part"].unpersist()

    run_available(
        stream(spark, bootstrap, topic, group, outcomesLocation=str(tmp_path / "outcomes")),
        tmp_path / "checkpoint",
        work,
    )
    assert kept == {"batch": True, "part": True, "other part": False}


@pytest.mark.slow
def test_lost_outcomes_end_the_query_unless_they_may_be_lost(
    spark: SparkSession, bootstrap: str, topic: str, group: str, tmp_path: Path
) -> None:
    """The driver's machine is replaced: the checkpoint is there, the outcomes are not."""
    location = tmp_path / "outcomes"
    seen: list[bytes] = []

    def work(batch: DataFrame, batch_id: int) -> None:
        seen.extend(bytes(row.value) for row in batch.select("value").collect())
        reject(batch.where("value = 'bad'"))

    def run(**options: str) -> None:
        source = stream(spark, bootstrap, topic, group, outcomesLocation=str(location), **options)
        run_available(source, tmp_path / "checkpoint", work)

    for value in (b"bad", b"good"):
        produce(bootstrap, topic, value)
        run()
    shutil.rmtree(location)
    produce(bootstrap, topic, b"later")
    with pytest.raises(PySparkException, match=r"the decisions about batch 2 of query .* missing"):
        run()
    run(failOnDataLoss="false")
    assert seen == [b"bad", b"good", b"later"]


def test_rows_of_nowhere_are_refused(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("t", 0, 1)], "topic string, partition int, offset long")
    with pytest.raises(ValueError, match="do not show which query they belong to"):
        reject(rows)


@pytest.mark.slow
def test_rows_of_another_stream_in_a_union_are_refused(
    spark: SparkSession, bootstrap: str, group: str, tmp_path: Path
) -> None:
    first, two = (create_topic(bootstrap, partitions=1) for _ in range(2))
    produce(bootstrap, first, b"a", partition=0)
    produce(bootstrap, two, b"b", partition=0)
    set_group_config(bootstrap, f"{group}-two", "share.auto.offset.reset", "earliest")
    streams = stream(spark, bootstrap, first, group).union(
        stream(spark, bootstrap, two, f"{group}-two")
    )
    refused: list[str] = []

    def work(batch: DataFrame, batch_id: int) -> None:
        if batch.count():
            with pytest.raises(ValueError, match="decide about each stream of a union") as error:
                reject(batch)
            refused.append(str(error.value))

    run_available(streams, tmp_path / "checkpoint", work)
    assert refused
