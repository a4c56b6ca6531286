"""A task reads exactly the offsets it was given, from whatever the log has become since."""

from __future__ import annotations

import asyncio
from itertools import count

import pyarrow as pa
import pytest

from sharegroup.client import AdminClient, NewTopic, Producer, TopicPartition
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.client.share.session.acquired_records import AcquiredRecords
from sharegroup.errors import OffsetOutOfRange, UnreadableBatch
from sharegroup.ids import TopicId
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.spark import executor_fetch, executor_read
from sharegroup.spark.options import stream_options
from sharegroup.spark.plan import PartitionRuns, RunsPartition
from sharegroup.testing import run_broker
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.support.unreadable import cut_off, produce_batches, untrue

_names = count(1)


@pytest.fixture(scope="module")
def bootstrap():
    with run_broker() as broker:
        yield broker.bootstrap_servers
    executor_fetch.close()


def options_for(bootstrap, **more):
    return stream_options(
        {
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": "any",
            "share.group": "any",
            **more,
        }
    )


def filled_topic(bootstrap, *partitions: int, value_bytes: int = 0) -> tuple[str, TopicId]:
    """A topic whose partitions hold so many records each, ``<partition>.<offset>``."""
    name = f"topic{next(_names)}"

    async def fill() -> TopicId:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics([NewTopic(name, len(partitions), 1)])
            topic_id = (await admin.describe_topics([name]))[name].topic_id
        async with Producer(bootstrap_servers=bootstrap, batch_bytes=4_000) as producer:
            for partition, records in enumerate(partitions):
                for offset in range(records):
                    await producer.send(
                        name,
                        f"{partition}.{offset}".ljust(value_bytes).encode(),
                        key=b"k" if offset % 2 else None,
                        partition=partition,
                        timestamp_ms=1_000 + offset,
                        headers=[("h", b"%d" % offset)] if offset % 3 == 0 else [],
                    )
        return topic_id

    return name, asyncio.run(fill())


def rows_of(bootstrap, *parts: PartitionRuns, **more):
    batches = list(executor_read.read(options_for(bootstrap, **more), RunsPartition(parts)))
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def values_of(bootstrap, *parts, **more):
    return [row["value"].decode() for row in rows_of(bootstrap, *parts, **more)]


def test_rows_have_the_columns_of_sparks_kafka_source(bootstrap):
    topic, topic_id = filled_topic(bootstrap, 4)
    first, second = rows_of(
        bootstrap,
        PartitionRuns(
            topic,
            topic_id,
            0,
            (AcquiredRecords.of_range(0, 1, 3), AcquiredRecords.of_range(3, 4, 1)),
        ),
        includeHeaders="true",
        includeDeliveryCount="true",
    )
    assert list(first.values())[:5] == [None, b"0.0", topic, 0, 0]
    assert first["timestamp"].isoformat() == "1970-01-01T00:00:01+00:00"
    assert first["timestampType"] == 0
    assert first["headers"] == [{"key": "h", "value": b"0"}]
    assert (first["deliveryCount"], second["deliveryCount"]) == (3, 1)
    assert (second["offset"], second["key"]) == (3, b"k")


def test_record_without_headers_has_null(bootstrap):
    topic, topic_id = filled_topic(bootstrap, 2)
    part = PartitionRuns(topic, topic_id, 0, (AcquiredRecords.of_range(1, 2, 1),))
    assert [row["headers"] for row in rows_of(bootstrap, part, includeHeaders="true")] == [None]


def test_only_the_runs_are_read_over_all_partitions(bootstrap):
    topic, topic_id = filled_topic(bootstrap, 3_000, 2, 600)
    runs = (
        AcquiredRecords.of_range(5, 8, 1),
        AcquiredRecords.of_range(8, 9, 2),
        AcquiredRecords.of_range(2_990, 3_000, 1),
    )
    assert values_of(
        bootstrap,
        PartitionRuns(topic, topic_id, 0, runs),
        PartitionRuns(topic, topic_id, 2, (AcquiredRecords.of_range(0, 600, 1),)),
    ) == [f"0.{offset}" for offset in (5, 6, 7, 8, *range(2_990, 3_000))] + [
        f"2.{offset}" for offset in range(600)
    ]


def test_records_far_between_the_runs_are_not_fetched(bootstrap):
    topic, topic_id = filled_topic(bootstrap, 3_000, value_bytes=1_000)
    part = PartitionRuns(
        topic,
        topic_id,
        0,
        (AcquiredRecords.of_range(0, 5, 1), AcquiredRecords.of_range(2_990, 3_000, 1)),
    )

    async def fetched_bytes():
        cluster = Cluster(ClientConfig(bootstrap_servers=bootstrap))
        fetch = executor_fetch.range_fetch(cluster, [part], options_for(bootstrap))
        total = 0
        while fetched := await fetch.next_round():
            total += sum(len(part.records) for part in fetched)
        cluster.close()
        return total

    assert asyncio.run(fetched_bytes()) < 300_000


def test_repeated_read_returns_the_same_rows(bootstrap):
    topic, topic_id = filled_topic(bootstrap, 50)
    part = PartitionRuns(topic, topic_id, 0, (AcquiredRecords.of_range(10, 20, 1),))
    assert rows_of(bootstrap, part) == rows_of(bootstrap, part)


def test_reader_can_be_left_in_the_middle(bootstrap):
    topic, topic_id = filled_topic(bootstrap, 2_000)
    partition = RunsPartition(
        [PartitionRuns(topic, topic_id, 0, (AcquiredRecords.of_range(0, 2_000, 1),))]
    )
    rows = executor_read.read(options_for(bootstrap), partition)
    assert next(rows).num_rows > 0
    rows.close()
    assert len(values_of(bootstrap, *partition.parts)) == 2_000


def deleted_until(bootstrap, topic, offset):
    async def delete():
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.delete_records({TopicPartition(topic, 0): offset})

    asyncio.run(delete())


def test_records_deleted_since_are_an_error(bootstrap):
    topic, topic_id = filled_topic(bootstrap, 100)
    deleted_until(bootstrap, topic, 40)
    with pytest.raises(
        OffsetOutOfRange, match=r"offset 30: records up to offset 40 no longer exist"
    ):
        values_of(
            bootstrap, PartitionRuns(topic, topic_id, 0, (AcquiredRecords.of_range(30, 50, 1),))
        )


def test_deleted_records_are_left_out_without_fail_on_data_loss(bootstrap, caplog):
    topic, topic_id = filled_topic(bootstrap, 100)
    deleted_until(bootstrap, topic, 40)
    part = PartitionRuns(
        topic,
        topic_id,
        0,
        (AcquiredRecords.of_range(10, 12, 1), AcquiredRecords.of_range(30, 42, 1)),
    )
    told = []
    partition = RunsPartition((part,))
    options = options_for(bootstrap, failOnDataLoss="false")
    batches = [*executor_read.read(options, partition, decide=lambda *call: told.append(call))]
    assert [row["value"] for batch in batches for row in batch.to_pylist()] == [b"0.40", b"0.41"]
    assert [(kind, offsets.ranges) for _, kind, offsets in told] == [
        (AcknowledgeType.GAP, ((10, 12), (30, 40)))
    ]
    assert "records up to offset 40 no longer exist: the log begins at 40" in caplog.text


def test_recreated_topic_has_lost_the_records_of_the_old_one(bootstrap):
    topic, topic_id = filled_topic(bootstrap, 5)
    part = PartitionRuns(topic, topic_id, 0, (AcquiredRecords.of_range(0, 5, 1),))
    assert len(values_of(bootstrap, part)) == 5

    async def make_again():
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.delete_topics([topic])
            await admin.create_topics([NewTopic(topic, 1, 1)])

    asyncio.run(make_again())
    with pytest.raises(OffsetOutOfRange, match=r"no longer exist: .*deleted and created again"):
        values_of(bootstrap, part)
    assert values_of(bootstrap, part, failOnDataLoss="false") == []


def test_unreadable_batches_are_left_out_with_one_log_line_each(bootstrap, caplog):
    topic, topic_id = filled_topic(bootstrap, 2)
    produce_batches(bootstrap, topic, cut_off(), *[batch_of(b"sound")] * 2, untrue())
    part = PartitionRuns(
        topic,
        topic_id,
        0,
        (AcquiredRecords.of_range(1, 300, 1), AcquiredRecords.of_range(350, 600, 1)),
    )
    told = []
    partition = RunsPartition((part,))
    with pytest.raises(UnreadableBatch, match=r"offsets 2 to 401 cannot be read: .*failOnUnread"):
        list(executor_read.read(options_for(bootstrap), partition))
    batches = executor_read.read(
        options_for(bootstrap, failOnUnreadable="false"),
        partition,
        decide=lambda *call: told.append(call),
    )
    values = pa.Table.from_batches(list(batches)).column("value").to_pylist()
    assert values == [b"0.1", b"sound", b"sound"]
    found = [(partition.topic, kind, offsets.ranges) for partition, kind, offsets in told]
    assert found == [
        (topic, AcknowledgeType.REJECT, ((2, 300), (350, 402))),
        (topic, AcknowledgeType.REJECT, ((404, 600),)),
    ]
    lines = [message for message in caplog.messages if "event=batch_unreadable" in message]
    assert [f"first={first}" in line for first, line in zip((2, 404), lines, strict=True)] == [
        True,
        True,
    ]


def batch_of(*values: bytes) -> bytes:
    return bytes(encode_batch([SimpleRecord(None, value, 0) for value in values]))
