"""A streaming read gives every record once, with the columns of Spark's Kafka source."""

from __future__ import annotations

import asyncio

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions

from sharegroup.client import Producer
from sharegroup.spark import KafkaShareDataSource
from tests.integration.spark.conftest import create_topic, produce, run_available, stream
from tests.support.chosen_broker import sample


def collected(frame, checkpoint):
    """All rows of an ``availableNow`` run."""
    rows = []
    run_available(frame, checkpoint, lambda batch, _: rows.extend(batch.collect()))
    return rows


def test_every_record_is_read_once(spark, bootstrap, topic, group, tmp_path):
    produce(bootstrap, topic, *(b"%d" % number for number in range(1_000)))
    frame = stream(spark, bootstrap, topic, group)
    rows = collected(frame, tmp_path / "checkpoint")
    assert sorted(int(row["value"]) for row in rows) == list(range(1_000))
    assert {row["topic"] for row in rows} == {topic}
    produce(bootstrap, topic, b"later")
    assert [row["value"] for row in collected(frame, tmp_path / "checkpoint")] == [b"later"]


@pytest.mark.slow
def test_optional_columns_are_included_on_request(spark, bootstrap, topic, group, tmp_path):
    async def send():
        async with Producer(bootstrap_servers=bootstrap) as producer:
            await producer.send(
                topic, b"v", key=b"k", partition=1, timestamp_ms=5_000, headers=[("h", None)]
            )

    asyncio.run(send())
    (row,) = collected(
        stream(
            spark, bootstrap, topic, group, includeHeaders="true", includeDeliveryCount="true"
        ).withColumn("seconds", functions.unix_timestamp("timestamp")),
        tmp_path,
    )
    found = row.asDict(recursive=True)
    del found["timestamp"]
    assert found == {
        "key": b"k",
        "value": b"v",
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestampType": 0,
        "headers": [{"key": "h", "value": None}],
        "deliveryCount": 1,
        "seconds": 5,
    }


@pytest.mark.slow
def test_batches_and_tasks_have_the_requested_sizes(spark, bootstrap, group, tmp_path):
    topic = create_topic(bootstrap, partitions=1)
    produce(bootstrap, topic, *(b"%d" % number for number in range(60)), partition=0)
    sizes, tasks = [], []

    def work(batch, _):
        tasks.append(batch.rdd.getNumPartitions())
        sizes.append(batch.count())

    frame = stream(spark, bootstrap, topic, group, maxOffsetsPerTrigger="100", minPartitions="3")
    run_available(frame, tmp_path, work)
    assert (sizes, tasks) == ([60], [3])


@pytest.mark.slow
def test_task_that_fails_reads_the_same_again(spark, bootstrap, topic, group, tmp_path):
    produce(bootstrap, topic, *(b"%d" % number for number in range(20)))
    marker = tmp_path / "failed"

    def fail_once(rows):
        read = [int(row["value"]) for row in rows]
        if not marker.exists():
            marker.touch()
            raise RuntimeError("the first attempt")
        return iter(read)

    found = []
    run_available(
        stream(spark, bootstrap, topic, group),
        tmp_path / "checkpoint",
        lambda batch, _: found.extend(batch.rdd.mapPartitions(fail_once).collect()),
    )
    assert marker.exists()
    assert sorted(found) == list(range(20))


@pytest.mark.slow
def test_batch_can_be_inspected_before_it_is_read(spark, bootstrap, topic, group, tmp_path):
    produce(bootstrap, topic, *(b"%d" % number for number in range(2_000)))
    found = []

    def work(batch, _):
        assert not batch.isEmpty()
        assert len(batch.take(1)) == 1
        found.append(batch.count())

    run_available(stream(spark, bootstrap, topic, group), tmp_path, work)
    assert sum(found) == 2_000


@pytest.mark.slow
def test_source_can_be_registered_by_hand(spark, bootstrap, topic):
    class UnderAnotherName(KafkaShareDataSource):
        @classmethod
        def name(cls):
            return "my-queue"

    spark.dataSource.register(UnderAnotherName)
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    assert spark.read.format("my-queue").options(**options).load().count() == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    sample(
        [
            (
                {"includeHeader": "true"},
                "unknown option includeheader; did you mean includeHeaders?",
            ),
            ({"startingOffsets": "earliest"}, "a share group keeps its own position"),
            ({"kafka.security.protocol": "SSSL"}, "security_protocol='SSSL'"),
        ]
    ),
)
def test_wrong_option_is_an_error_of_load(spark, bootstrap, topic, group, wrong, message):
    with pytest.raises(PySparkException) as caught:
        stream(spark, bootstrap, topic, group, **wrong)
    assert message in str(caught.value)
