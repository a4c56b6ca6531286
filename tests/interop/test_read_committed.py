"""Clients that read committed records only, on a log with open and aborted transactions.

The transactions are written into the log itself, so that their offsets are known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition as AIOKafkaPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition as ConfluentPartition
from kafka import KafkaConsumer, TopicPartition

from sharegroup.ids import TopicName
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.testing import TestBroker, broker
from sharegroup.wire.batches.markers import encode_marker
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.interop.foreign_clients import LEAVES_SOCKETS
from tests.support.limits import HANGING_SECONDS

pytestmark = LEAVES_SOCKETS

TOPIC = TopicName("accounts")
NOW_MS = 1_700_000_000_000
A, B, C = 71, 72, 73


def written(producer: int, *values: bytes, sequence: int = 0) -> bytearray:
    return encode_batch(
        [SimpleRecord(None, value, NOW_MS) for value in values],
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )


def marker(producer: int, *, is_commit: bool) -> bytearray:
    return encode_marker(
        is_commit=is_commit, producer_id=producer, producer_epoch=0, timestamp=NOW_MS
    )


def plain(value: bytes) -> bytearray:
    return encode_batch([SimpleRecord(None, value, NOW_MS)])


TRANSACTIONS = [
    written(A, b"a0", b"a1"),  # 0
    plain(b"p2"),  # 2
    written(B, b"b3"),  # 3
    written(A, b"a4", sequence=2),  # 4
    marker(B, is_commit=True),  # 5
    marker(A, is_commit=False),  # 6
    plain(b"p7"),  # 7
    written(C, b"c8"),  # 8: open
    plain(b"p9"),  # 9: behind what is undecided
]
COMMITTED = [b"p2", b"b3", b"p7"]


async def fill(running: TestBroker, *batches: bytearray) -> PartitionLog:
    topics = running.running.parts.topics
    if topics.catalog.find(TOPIC) is None:
        await topics.create(TOPIC, partitions=1, settings={})
    _, log = topics.named(TOPIC, 0)
    for batch in batches:
        await log.append(bytearray(batch), now_ms=NOW_MS)
    return log


def with_kafka_python(bootstrap: str, count: int, level: str) -> tuple[list[bytes], int]:
    """The values, and the end offset that the client is told."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level=level, consumer_timeout_ms=5_000
    )
    try:
        place = TopicPartition(TOPIC, 0)
        consumer.assign([place])
        consumer.seek(place, 0)
        values = [record.value for _, record in zip(range(count), consumer, strict=False)]
        return values, consumer.end_offsets([place])[place]
    finally:
        consumer.close()


def with_confluent(bootstrap: str, count: int, level: str) -> tuple[list[bytes], int]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "isolation.level": level}
    )
    try:
        place = ConfluentPartition(TOPIC, 0, OFFSET_BEGINNING)
        consumer.assign([place])
        values = [
            message.value()
            for message in consumer.consume(num_messages=count, timeout=HANGING_SECONDS)
            if message.error() is None
        ]
        return values, consumer.get_watermark_offsets(place, timeout=HANGING_SECONDS)[1]
    finally:
        consumer.close()


@pytest.mark.parametrize("read", [with_kafka_python, with_confluent])
def test_only_committed_records_are_delivered(
    read: Callable[[str, int, str], tuple[list[bytes], int]],
) -> None:
    async def main() -> None:
        async with broker() as running:
            await fill(running, *TRANSACTIONS)
            values, end = await asyncio.to_thread(
                read, running.bootstrap_servers, len(COMMITTED), "read_committed"
            )
            assert (values, end) == (COMMITTED, 8)
            values, end = await asyncio.to_thread(
                read, running.bootstrap_servers, 8, "read_uncommitted"
            )
            assert values == [b"a0", b"a1", b"p2", b"b3", b"a4", b"p7", b"c8", b"p9"]
            assert end == 10

    asyncio.run(main())


def test_marker_completes_the_fetch_of_a_waiting_consumer() -> None:
    async def main() -> None:
        async with broker() as running:
            await fill(running, *TRANSACTIONS)
            consumer = AIOKafkaConsumer(
                bootstrap_servers=running.bootstrap_servers,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
                fetch_max_wait_ms=60_000,
            )
            await consumer.start()
            try:
                consumer.assign([AIOKafkaPartition(TOPIC, 0)])
                values = [(await consumer.getone()).value for _ in COMMITTED]
                waiting = asyncio.create_task(consumer.getone())
                await asyncio.sleep(0)
                await fill(running, marker(C, is_commit=True))
                async with asyncio.timeout(HANGING_SECONDS):
                    values.append((await waiting).value)
                    values.append((await consumer.getone()).value)
                assert values == [*COMMITTED, b"c8", b"p9"]
            finally:
                await consumer.stop()

    asyncio.run(main())
