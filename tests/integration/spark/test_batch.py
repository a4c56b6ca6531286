"""``spark.read`` gives the records between two offsets and acquires nothing."""

from __future__ import annotations

import json

import pytest
from pyspark.errors import PySparkException

from tests.integration.spark.conftest import create_topic, produce


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


def test_many_tasks_read_one_partition(spark, bootstrap):
    topic = create_topic(bootstrap, partitions=1)
    produce(bootstrap, topic, *(b"x" for _ in range(50)), partition=0)
    frame = read(spark, bootstrap, topic, minPartitions="4")
    assert frame.rdd.getNumPartitions() == 4
    assert sorted(row["offset"] for row in frame.collect()) == list(range(50))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"share.group": "g"}, "share.group is not supported here: a batch read acquires nothing"),
        ({"startingOffset": "earliest"}, "did you mean startingOffsets?"),
        ({"startingOffsets": '{"%s": {"0": 1}}'}, "has to name all partitions"),
        ({"startingOffsets": '{"%s": {"0": 9, "1": 0}}'}, "is 9, which is after endingOffsets, 0"),
    ],
)
def test_wrong_option_is_named(spark, bootstrap, topic, options, message):
    filled = {name: text.replace("%s", topic) for name, text in options.items()}
    with pytest.raises(PySparkException) as caught:
        read(spark, bootstrap, topic, **filled).collect()
    assert message in str(caught.value)
