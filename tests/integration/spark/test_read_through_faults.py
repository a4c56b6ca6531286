"""A task's read goes on where it was when the broker dies and comes back."""

from __future__ import annotations

import asyncio

import pytest

from sharegroup.client import AdminClient, NewTopic, Producer
from sharegroup.client.share.session.acquired_records import AcquiredRecords
from sharegroup.errors import RequestTimedOut
from sharegroup.spark import executor_fetch, executor_read
from sharegroup.spark.options import stream_options
from sharegroup.spark.plan import PartitionRuns, RunsPartition
from sharegroup.wire.batches.batches import parse_header
from tests.support.processes import ServeProcess

RECORDS = 240
VALUE_BYTES = 100_000  # So that no answer holds them all: an answer has 8 MiB at most.


@pytest.fixture
def broker(tmp_path):
    with ServeProcess(tmp_path / "data", durability="os") as process:
        yield process
    executor_fetch.close()


def filled(bootstrap, *, partitions):
    async def fill():
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics([NewTopic("orders", partitions)])
            topic_id = (await admin.describe_topics(["orders"]))["orders"].topic_id
        async with Producer(bootstrap_servers=bootstrap) as producer:
            for number in range(RECORDS):
                await producer.send(
                    "orders", b"%d" % number * (VALUE_BYTES // 3), partition=number % partitions
                )
        return topic_id

    return asyncio.run(fill())


def reading(bootstrap, parts, **more):
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "orders", "share.group": "g"}
    return executor_read.read(stream_options({**options, **more}), RunsPartition(parts))


def offsets_in(batches):
    return [
        (partition, offset)
        for batch in batches
        for partition, offset in zip(
            batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True
        )
    ]


@pytest.mark.slow
def test_reading_continues_after_the_broker_restarts(broker):
    topic_id = filled(broker.bootstrap_servers, partitions=1)
    part = PartitionRuns("orders", topic_id, 0, (AcquiredRecords.of_range(0, RECORDS, 1),))
    batches = reading(broker.bootstrap_servers, [part])
    found = offsets_in([next(batches)])
    broker.kill9()
    broker.start()
    found += offsets_in(batches)
    assert found == [(0, offset) for offset in range(RECORDS)]


@pytest.mark.slow
def test_partitions_take_turns_when_an_answer_is_full(broker):
    topic_id = filled(broker.bootstrap_servers, partitions=24)
    parts = [
        PartitionRuns("orders", topic_id, number, (AcquiredRecords.of_range(0, 10, 1),))
        for number in range(24)
    ]
    found = offsets_in(reading(broker.bootstrap_servers, parts))
    assert sorted(found) == [(number, offset) for number in range(24) for offset in range(10)]


@pytest.mark.slow
def test_error_of_an_unreachable_broker_names_partition_and_offset(broker):
    topic_id = filled(broker.bootstrap_servers, partitions=1)
    broker.kill9()
    part = PartitionRuns("orders", topic_id, 0, (AcquiredRecords.of_range(7, RECORDS, 1),))
    limit = {"kafka.default.api.timeout.ms": "1000"}
    with pytest.raises(RequestTimedOut, match="fetch of topic 'orders' partition 0 offset 7: gave"):
        list(reading(broker.bootstrap_servers, [part], **limit))


@pytest.mark.slow
def test_batch_damaged_on_disk_is_left_out_with_a_log_line(broker, caplog):
    topic_id = filled(broker.bootstrap_servers, partitions=1)
    (log,) = (path for path in broker.data.rglob("0*.log") if path.stat().st_size > VALUE_BYTES)
    octets = bytearray(log.read_bytes())
    header = parse_header(octets)
    octets[header.size - 1] ^= 1
    log.write_bytes(octets)
    part = PartitionRuns("orders", topic_id, 0, (AcquiredRecords.of_range(0, RECORDS, 1),))
    found = offsets_in(reading(broker.bootstrap_servers, [part], failOnUnreadable="false"))
    assert found == [(0, offset) for offset in range(header.end_offset, RECORDS)]
    (line,) = (message for message in caplog.messages if "event=batch_unreadable" in message)
    assert f"topic=orders partition=0 first=0 end={header.end_offset} " in line
