"""A record that nobody can process: it stops neither its query nor the records behind it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession

from sharegroup.client import AdminClient, SharePartitionOffset
from sharegroup.errors import KafkaError
from sharegroup.spark import outcomes, reject
from sharegroup.spark.offsets import ranges_of
from tests.integration.spark.conftest import produce, run_available, stream
from tests.support.chosen_broker import LONG_WITH_A_JVM, chosen
from tests.support.unreadable import RECORDS, cut_off, produce_batches, untrue

POISON = b'{"id": '
DELIVERIES_MAX = 5
"""Kafka's default of share.delivery.count.limit."""


def orders(count: int, *poison: int) -> list[bytes]:
    return [POISON if id_ in poison else b'{"id": %d}' % id_ for id_ in range(count)]


def lag(bootstrap: str, group: str) -> dict[int, int | None]:
    async def ask() -> dict[int, int | None]:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            listed = (await admin.list_share_group_offsets({group: None}))[group]
        assert not isinstance(listed, KafkaError)
        return {
            where.partition: lag_.lag
            for where, lag_ in listed.items()
            if isinstance(lag_, SharePartitionOffset)
        }

    return asyncio.run(ask())


@pytest.mark.slow
def test_rejected_poison_record_does_not_stop_the_query(
    spark: SparkSession, bootstrap: str, topic: str, group: str, tmp_path: Path
) -> None:
    """Spark SQL cannot parse the record: the batch rejects it and writes the others."""
    produce(bootstrap, topic, *orders(40, 3, 20))
    written: Counter[int] = Counter()
    rejected: Counter[tuple[int, int]] = Counter()

    def work(batch: DataFrame, batch_id: int) -> None:
        rows = batch.selectExpr(
            "topic", "partition", "offset", "from_json(string(value), 'id long').id as id"
        ).persist()
        bad = rows.where("id is null")
        rejected.update((row.partition, row.offset) for row in bad.collect())
        reject(bad)
        written.update(row.id for row in rows.where("id is not null").collect())
        rows.unpersist()

    frame = stream(spark, bootstrap, topic, group, outcomesLocation=str(tmp_path / "outcomes"))
    run_available(frame, tmp_path / "checkpoint", work)
    assert written == {id_: 1 for id_ in range(40) if id_ not in (3, 20)}
    assert rejected == {(1, 1): 1, (0, 10): 1}
    assert lag(bootstrap, group) == {0: 0, 1: 0}


@LONG_WITH_A_JVM
def test_failing_record_is_redelivered_up_to_the_delivery_limit(
    spark: SparkSession, bootstrap: str, topic: str, group: str, tmp_path: Path
) -> None:
    """A handler in Python that raises: its record is released, the others are accepted."""
    produce(bootstrap, topic, *orders(40, 8))
    handled: Counter[int] = Counter()
    deliveries: list[int] = []

    def outcome_of(row: Row) -> str:
        try:
            handled[json.loads(bytes(row.value))["id"]] += 1
        except json.JSONDecodeError:
            deliveries.append(row.deliveryCount)
            return "release"
        return "accept"

    def work(batch: DataFrame, batch_id: int) -> None:
        decided = [
            (row.topic, row.partition, row.offset, outcome_of(row)) for row in batch.collect()
        ]
        schema = "topic string, partition int, offset long, outcome string"
        outcomes(spark.createDataFrame(decided, schema), source=batch)

    frame = stream(
        spark,
        bootstrap,
        topic,
        group,
        includeDeliveryCount="true",
        outcomesLocation=str(tmp_path / "outcomes"),
    )
    run_available(frame, tmp_path / "checkpoint", work)
    assert handled == {id_: 1 for id_ in range(40) if id_ != 8}
    assert deliveries == [*range(1, DELIVERIES_MAX + 1)]
    assert lag(bootstrap, group) == {0: 0, 1: 0}


@pytest.mark.skipif(chosen() == "kafka", reason="Kafka decodes each batch before it appends it")
@LONG_WITH_A_JVM
def test_unreadable_batches_end_the_query_unless_it_leaves_them_out(
    spark: SparkSession, bootstrap: str, topic: str, group: str, tmp_path: Path
) -> None:
    produce(bootstrap, topic, b"1", b"2", partition=0)
    produce_batches(bootstrap, topic, cut_off(), untrue())
    produce(bootstrap, topic, b"3", partition=0)
    written: Counter[bytes] = Counter()

    def work(batch: DataFrame, batch_id: int) -> None:
        written.update(bytes(row.value) for row in batch.collect())

    outcomes = str(tmp_path / "outcomes")
    frame = stream(spark, bootstrap, topic, group, outcomesLocation=outcomes)
    with pytest.raises(
        StreamingQueryException, match=f"'{topic}' partition 0 offsets 2 to 401 cann"
    ):
        run_available(frame, tmp_path / "checkpoint", work)
    assert not written
    leave_out = {"outcomesLocation": outcomes, "failOnUnreadable": "false"}
    frame = stream(spark, bootstrap, topic, group, **leave_out)
    run_available(frame, tmp_path / "checkpoint", work)
    assert written == {b"1": 1, b"2": 1, b"3": 1}
    assert lag(bootstrap, group) == {0: 0, 1: 0}
    # The reader gives the files that it settled a number of a batch in their names.
    settled = (tmp_path / "outcomes").rglob("*.*.*.json")
    rejected = [json.loads(path.read_bytes())["outcomes"][topic]["0"]["reject"] for path in settled]
    ranges = [range_ for deltas in rejected for range_ in ranges_of(deltas)]
    assert sorted(ranges) == [(2, 2 + RECORDS), (2 + RECORDS, 2 + 2 * RECORDS)]


@pytest.mark.skipif(chosen() == "kafka", reason="Kafka decodes each batch before it appends it")
@LONG_WITH_A_JVM
def test_batch_read_fails_or_leaves_out_unreadable_batches(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    produce_batches(bootstrap, topic, cut_off(), untrue())
    produce(bootstrap, topic, b"1", partition=0)
    read = (
        spark.read.format("kafka-share")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
    )
    with pytest.raises(Exception, match=r"offsets 0 to 399 cannot be read.*failOnUnreadable=false"):
        read.load().collect()
    frame = read.option("failOnUnreadable", "false").load()
    assert [bytes(row.value) for row in frame.collect()] == [b"1"]
