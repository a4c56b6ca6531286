"""A DataFrame becomes records, written by a batch or a stream; a row that can't is named."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.errors import PySparkException

from tests.integration.spark.conftest import create_topic, produce, run_available, stream
from tests.integration.spark.test_batch import read
from tests.support.chosen_broker import sample


def write(frame, bootstrap, **options):
    (
        frame.write.format("kafka-share")
        .option("kafka.bootstrap.servers", bootstrap)
        .options(**options)
        .mode("append")
        .save()
    )


def test_all_columns_of_a_row_become_parts_of_its_record(spark, bootstrap, topic):
    moment = datetime(2013, 1, 1, 5, 15, tzinfo=UTC)
    frame = spark.createDataFrame(
        [(b"k", "grün", [("h", b"1"), ("n", None)], 1, moment), (None, None, None, 1, None)],
        "key binary, value string, headers array<struct<key:string,value:binary>>, "
        "partition int, timestamp timestamp",
    ).coalesce(1)
    write(frame, bootstrap, topic=topic)
    first, second = read(spark, bootstrap, topic, includeHeaders="true").orderBy("offset").collect()
    assert (first["key"], first["value"].decode(), first["partition"]) == (b"k", "grün", 1)
    assert [tuple(header) for header in first["headers"]] == [("h", b"1"), ("n", None)]
    assert first["timestamp"] == datetime(2013, 1, 1, 5, 15)  # noqa: DTZ001  Spark's session is UTC.
    assert (second["key"], second["value"], second["headers"]) == (None, None, None)


def test_each_row_may_name_its_topic(spark, bootstrap):
    left, right = create_topic(bootstrap, partitions=1), create_topic(bootstrap, partitions=1)
    rows = [("a", left), ("b", right), ("c", left)]
    write(spark.createDataFrame(rows, "value string, topic string"), bootstrap)
    assert {row["value"] for row in read(spark, bootstrap, left).collect()} == {b"a", b"c"}
    assert [row["value"] for row in read(spark, bootstrap, right).collect()] == [b"b"]


def test_stream_is_copied_to_another_topic(spark, bootstrap, topic, group, tmp_path):
    produce(bootstrap, topic, *(b"%d" % number for number in range(50)))
    copy = create_topic(bootstrap, partitions=2)
    query = (
        stream(spark, bootstrap, topic, group)
        .writeStream.format("kafka-share")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", copy)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    assert query.exception() is None
    copied = read(spark, bootstrap, copy).collect()
    assert sorted(int(row["value"]) for row in copied) == list(range(50))


@pytest.mark.slow
def test_sink_takes_batches_of_a_stream_too(spark, bootstrap, topic, group, tmp_path):
    produce(bootstrap, topic, b"1", b"2")
    copy = create_topic(bootstrap, partitions=2)
    run_available(
        stream(spark, bootstrap, topic, group),
        tmp_path,
        lambda batch, _: write(batch.select("value"), bootstrap, topic=copy),
    )
    assert read(spark, bootstrap, copy).count() == 2


@pytest.mark.parametrize(
    ("query", "options", "message"),
    sample(
        [
            (
                "select 'v' as value, cast(null as string) as topic",
                {},
                "row 0 of this task has no t",
            ),
            ("select 'v' as value", {}, "no topic: set the option topic"),
            (
                "select 1 as value",
                {"topic": "T"},
                "column 'value': expected binary or string, found i",
            ),
            ("select 'k' as key", {"topic": "T"}, "the DataFrame has no column 'value'"),
            ("select 'v' as value, 1 as x", {"topic": "T"}, "column 'x' has no place in a record"),
            (
                "select 'v' as value, 9 as partition",
                {"topic": "T"},
                "partitions 0 to 1; asked for 9",
            ),
            ("select 'v' as value", {"topic": "T", "kafka.ack": "1"}, "did you mean kafka.acks?"),
            ("select 'v' as value", {"topic": "T", "subscribe": "x"}, "this is an option of reads"),
        ]
    ),
)
def test_error_names_the_value_that_cannot_be_written(
    spark, bootstrap, topic, query, options, message
):
    filled = {name: text.replace("T", topic) for name, text in options.items()}
    with pytest.raises(PySparkException) as caught:
        write(spark.sql(query), bootstrap, **filled)
    assert message in str(caught.value)
