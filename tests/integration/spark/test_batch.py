"""``spark.read`` gives the records between two offsets and acquires nothing."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing

import pytest
from pyspark.errors import PySparkException

from sharegroup.client import AdminClient, NewTopic, Producer
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.settings.client_config import ReadingConfig, config_from
from sharegroup.spark.batch_read import NoSuchTopic, existing_topic
from tests.integration.spark.conftest import create_topic, produce
from tests.support.chosen_broker import sample

TIMES = {0: (1000, 2000, 5000, 3000, 6000), 1: (1000, 1500)}
"""Timestamps of the records of each partition; a producer's clock may go back."""


@pytest.fixture
def dated_topic(bootstrap, topic):
    """A topic with the records of `TIMES`."""

    async def send() -> None:
        async with Producer(bootstrap_servers=bootstrap) as producer:
            for partition, times in TIMES.items():
                for time in times:
                    await producer.send(topic, b"x", partition=partition, timestamp_ms=time)

    asyncio.run(send())
    return topic


def places(frame):
    return sorted((row["partition"], row["offset"]) for row in frame.collect())


def read(spark, bootstrap, topic, **options):
    return (
        spark.read.format("kafka-share")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .options(**options)
        .load()
    )


def test_all_records_are_read(spark, bootstrap, topic):
    produce(bootstrap, topic, *(b"%d" % number for number in range(100)))
    frame = read(spark, bootstrap, topic)
    assert frame.count() == 100
    values = frame.selectExpr("cast(value as string) as value").collect()
    assert sorted(int(row["value"]) for row in values) == list(range(100))


def test_columns_agree_with_sparks_kafka_source(spark, bootstrap, topic):
    frame = read(spark, bootstrap, topic, includeHeaders="true")
    assert [f"{name} {kind}" for name, kind in frame.dtypes] == [
        "key binary",
        "value binary",
        "topic string",
        "partition int",
        "offset bigint",
        "timestamp timestamp",
        "timestampType int",
        "headers array<struct<key:string,value:binary>>",
    ]
    assert frame.collect() == []


def test_starting_and_ending_offsets_limit_the_records_read(spark, bootstrap, topic):
    produce(bootstrap, topic, *(b"%d" % number for number in range(20)), partition=0)
    produce(bootstrap, topic, *(b"%d" % number for number in range(20)), partition=1)
    frame = read(
        spark,
        bootstrap,
        topic,
        startingOffsets=json.dumps({topic: {"0": 5, "1": -2}}),
        endingOffsets=json.dumps({topic: {"0": 7, "1": 1}}),
    )
    assert sorted((row["partition"], row["offset"]) for row in frame.collect()) == [
        (0, 5),
        (0, 6),
        (1, 0),
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    sample(
        [
            ({"startingTimestamp": "1500"}, [(0, 1), (0, 2), (0, 3), (0, 4), (1, 1)]),
            ({"endingTimestamp": "2000"}, [(0, 0), (1, 0), (1, 1)]),
            ({"startingTimestamp": "1001", "endingTimestamp": "5000"}, [(0, 1), (1, 1)]),
            ({"startingTimestamp": "1001", "endingTimestamp": "1500"}, []),
            (
                {"startingTimestamp": "5500", "startingOffsetsByTimestampStrategy": "latest"},
                [(0, 4)],
            ),
            (
                {
                    "startingOffsetsByTimestamp": '{"%s": {"0": 5000, "1": 0}}',
                    "endingOffsetsByTimestamp": '{"%s": {"0": 6000, "1": 1500}}',
                },
                [(0, 2), (0, 3), (1, 0)],
            ),
            (
                {"startingTimestamp": "1500", "endingOffsets": '{"%s": {"0": 3, "1": -1}}'},
                [(0, 1), (0, 2), (1, 1)],
            ),
        ],
        2,
    ),
)
def test_times_limit_the_records_read(spark, bootstrap, dated_topic, options, expected):
    filled = {name: text.replace("%s", dated_topic) for name, text in options.items()}
    assert places(read(spark, bootstrap, dated_topic, **filled)) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    sample(
        [
            (
                {"startingTimestamp": "5500"},
                "%s-1 are older than the starting time; expected a rec",
            ),
            (
                {"startingTimestamp": "1500", "endingTimestamp": "1000"},
                "partition 0: the start of the read is offset 1, which is after its end, offset 0",
            ),
            (
                {"startingOffsetsByTimestamp": '{"%s": {"0": 1, "7": 1}}'},
                "startingOffsetsByTimestamp has to name all partitions to read and no others; miss",
            ),
        ]
    ),
)
def test_times_that_fit_no_records_are_errors(spark, bootstrap, dated_topic, options, message):
    filled = {name: text.replace("%s", dated_topic) for name, text in options.items()}
    with pytest.raises(PySparkException) as caught:
        read(spark, bootstrap, dated_topic, **filled).collect()
    assert message.replace("%s", dated_topic) in str(caught.value)


def test_assign_selects_partitions(spark, bootstrap, dated_topic):
    def assigned(partitions, **options):
        frame = spark.read.format("kafka-share").options(**options)
        frame = frame.option("kafka.bootstrap.servers", bootstrap)
        return frame.option("assign", json.dumps({dated_topic: partitions})).load()

    assert places(assigned([1])) == [(1, 0), (1, 1)]
    ending = json.dumps({dated_topic: {"0": 1}})
    assert places(assigned([0], endingOffsets=ending)) == [(0, 0)]
    with pytest.raises(PySparkException, match="has no partition 2; expected 0 to 1"):
        assigned([0, 2]).collect()


def test_many_tasks_read_one_partition(spark, bootstrap):
    topic = create_topic(bootstrap, partitions=1)
    produce(bootstrap, topic, *(b"x" for _ in range(50)), partition=0)
    frame = read(spark, bootstrap, topic, minPartitions="4")
    assert frame.rdd.getNumPartitions() == 4
    assert sorted(row["offset"] for row in frame.collect()) == list(range(50))


@pytest.mark.parametrize(
    ("options", "message"),
    sample(
        [
            (
                {"share.group": "g"},
                "share.group is not supported here: a batch read acquires nothing",
            ),
            ({"startingOffset": "earliest"}, "did you mean startingOffsets?"),
            ({"startingOffsets": '{"%s": {"0": 1}}'}, "has to name all partitions"),
            (
                {"startingOffsets": '{"%s": {"0": 9, "1": 0}}'},
                "is offset 9, which is after its end",
            ),
        ]
    ),
)
def test_wrong_option_is_named(spark, bootstrap, topic, options, message):
    filled = {name: text.replace("%s", topic) for name, text in options.items()}
    with pytest.raises(PySparkException) as caught:
        read(spark, bootstrap, topic, **filled).collect()
    assert message in str(caught.value)


def test_missing_topic_is_an_error_after_some_seconds(bootstrap):
    """Not after the minute that a client waits for a broker, which Spark lets it wait twice."""

    async def run():
        config = config_from(ReadingConfig, {"bootstrap_servers": bootstrap})
        with closing(Cluster(config)) as cluster:
            with pytest.raises(NoSuchTopic, match="topic 'no-such' does not exist: check the opt"):
                await existing_topic(cluster, "no-such", missing_ms=300)
            waiting = asyncio.create_task(existing_topic(cluster, "late", missing_ms=60_000))
            async with AdminClient(bootstrap_servers=bootstrap) as admin:
                await admin.create_topics([NewTopic("late", 2)])
            assert len((await waiting).leaders) == 2

    asyncio.run(run())
