"""Rows of Arrow batches become records; a task has written when all of them are acknowledged."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from itertools import count

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, DateType, IntegerType, StringType, StructType

from sharegroup.client import AdminClient, NewTopic
from sharegroup.errors import InvalidConfig, InvalidRecord, MessageTooLarge, RequestTimedOut
from sharegroup.spark import executor_fetch
from sharegroup.spark.batch_read import KafkaShareBatchReader
from sharegroup.spark.options import batch_options, sink_options
from sharegroup.spark.sink import check_schema, write_rows
from sharegroup.testing import run_broker

_names = count(1)


@pytest.fixture(scope="module")
def bootstrap():
    with run_broker() as broker:
        yield broker.bootstrap_servers
    executor_fetch.close()


@pytest.fixture
def topic(bootstrap):
    name = f"topic{next(_names)}"

    async def create():
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics([NewTopic(name, 2)])

    asyncio.run(create())
    return name


def options_for(bootstrap, **more):
    return sink_options({"kafka.bootstrap.servers": bootstrap, **more})


def written(bootstrap, topic):
    """All records of the topic as rows."""
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true"}
    reader = KafkaShareBatchReader(batch_options(given))
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def test_types_that_spark_may_send_are_taken(bootstrap, topic):
    moment = datetime(2013, 1, 1, tzinfo=UTC)
    batch = pa.record_batch(
        {
            "value": pa.array(["grün"], pa.large_string()),
            "key": pa.array([b"k"], pa.large_binary()),
            "partition": pa.array([1], pa.int32()),
            "timestamp": pa.array([moment], pa.timestamp("us", tz="Europe/Berlin")),
            "offset": pa.array([77], pa.int64()),
        }
    )
    assert write_rows(options_for(bootstrap, topic=topic), iter([batch])) == 1
    (row,) = written(bootstrap, topic)
    assert (row["value"], row["key"], row["partition"]) == ("grün".encode(), b"k", 1)
    assert row["timestamp"] == moment
    assert row["offset"] == 0


def test_topic_option_overrides_the_column(bootstrap, topic):
    batch = pa.record_batch({"value": ["v"], "topic": ["another"]})
    write_rows(options_for(bootstrap, topic=topic), iter([batch]))
    assert len(written(bootstrap, topic)) == 1


def test_row_without_a_topic_is_counted_over_all_batches(bootstrap, topic):
    batches = [
        pa.record_batch({"value": ["a", "b"], "topic": [topic, topic]}),
        pa.record_batch({"value": ["c", "d"], "topic": [topic, None]}),
    ]
    with pytest.raises(InvalidRecord, match="row 3 of this task has no topic"):
        write_rows(options_for(bootstrap), iter(batches))


def test_record_that_is_too_large_names_its_topic(bootstrap, topic):
    batch = pa.record_batch({"value": [b"x" * 2_000_000]})
    with pytest.raises(MessageTooLarge, match=f"topic '{topic}'"):
        write_rows(options_for(bootstrap, topic=topic), iter([batch]))


def test_refused_record_fails_the_task_even_if_later_ones_are_accepted(bootstrap):
    topic = f"topic{next(_names)}"

    async def create():
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            small = {"max.message.bytes": "10000"}
            await admin.create_topics([NewTopic(topic, 1, configs=small)])

    asyncio.run(create())
    batches = [pa.record_batch({"value": [b"x" * size]}) for size in (20_000, 1, 1, 1)]
    # In batches of their own: what is refused together fails together.
    options = options_for(bootstrap, topic=topic, **{"kafka.batch.size": "1"})
    with pytest.raises(MessageTooLarge, match=f"topic '{topic}' partition 0"):
        write_rows(options, iter(batches))


def test_nothing_to_write_is_written_at_once(bootstrap, topic):
    assert write_rows(options_for(bootstrap, topic=topic), iter([])) == 0


def test_unreachable_broker_is_an_error():
    batch = pa.record_batch({"value": ["v"]})
    options = options_for("127.0.0.1:1", topic="t", **{"kafka.max.block.ms": "300"})
    with pytest.raises(RequestTimedOut, match="metadata of topic 't'"):
        write_rows(options, iter([batch]))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"value": IntegerType()}, "column 'value': expected binary or string, found int"),
        ({"timestamp": DateType()}, "column 'timestamp': expected timestamp, found date"),
        ({"headers": StringType()}, "expected array<struct<key:string,value:binary>>, found str"),
        ({"key": BinaryType()}, "the DataFrame has no column 'value'"),
        ({"x": BinaryType()}, "column 'x' has no place in a record; expected only value, key"),
        ({"value": BinaryType()}, "no topic: set the option topic, or give the DataFrame a col"),
    ],
)
def test_columns_that_cannot_become_records_are_named(columns, message):
    schema = StructType()
    for name, kind in columns.items():
        schema.add(name, kind)
    with pytest.raises(InvalidConfig) as caught:
        check_schema(options_for("a:1"), schema)
    assert message in str(caught.value)
