"""`write_in_transaction`: which batches it writes, and which it knows to be written."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from sharegroup.errors import InvalidConfig, UnknownTopicOrPartition
from sharegroup.spark import write_in_transaction
from sharegroup.testing.embedded import TestBroker


def options(broker: TestBroker) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "copy"}


def test_batch_is_known_by_its_number_and_its_query(
    spark: SparkSession, sharegroup_broker: TestBroker
) -> None:
    """The same number of another query, with a checkpoint of its own, is another batch."""
    broker = sharegroup_broker
    broker.create_topic("copy")

    def write(batch_id: int, query_id: str) -> int:
        rows = spark.createDataFrame([(f"{query_id}{batch_id}",)], "value STRING")
        return write_in_transaction(
            rows,
            batch_id,
            transactional_id="copies",
            options=options(broker),
            query_id=query_id,
        )

    written = [write(0, "a"), write(0, "a"), write(1, "a"), write(0, "a"), write(0, "b")]
    assert written == [1, 0, 1, 0, 1]
    assert [record.value for record in broker.records("copy")] == [b"a0", b"a1", b"b0"]


def test_failed_batch_leaves_nothing_and_can_be_written_again(
    spark: SparkSession, sharegroup_broker: TestBroker
) -> None:
    broker = sharegroup_broker
    broker.create_topic("copy")

    def write(*partitions: int) -> int:
        rows = [(f"to {partition}", partition) for partition in partitions]
        return write_in_transaction(
            spark.createDataFrame(rows, "value STRING, partition INT"),
            0,
            transactional_id="copies",
            options=options(broker),
            query_id="a",
        )

    with pytest.raises(UnknownTopicOrPartition, match="asked for 7"):
        write(0, 0, 7)
    assert write(0) == 1
    assert [record.value for record in broker.records("copy")] == [b"to 0"]


def test_rows_outside_of_a_query_are_refused(
    spark: SparkSession, sharegroup_broker: TestBroker
) -> None:
    rows = spark.createDataFrame([("a",)], "value STRING")
    with pytest.raises(ValueError, match="expected a call in foreachBatch"):
        write_in_transaction(rows, 0, transactional_id="copies", options=options(sharegroup_broker))


def test_write_without_a_topic_is_refused(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("a", "b")], "value STRING, topic STRING")
    brokers = {"kafka.bootstrap.servers": "127.0.0.1:1"}
    with pytest.raises(InvalidConfig, match="needs the option topic"):
        write_in_transaction(rows, 0, transactional_id="copies", options=brokers, query_id="a")
