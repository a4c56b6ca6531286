"""Logs made of equal batches, so that every broker hands out the same bytes.

A producer that batches by time makes other batches on another broker, and consumption speed
depends on their size more than on anything else.  Here the batches are built first, each with
the same number of records of the same size, and sent one by one.  Batches of one record are left
to confluent's Producer, told to make no larger ones: it has many under way.
"""

from __future__ import annotations

import asyncio
import os
import struct
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer

from tests.bench.failure import BenchError
from tests.support.confluent_calls import create_topic

IN_FLIGHT_MAX = 200
SINGLE_IN_FLIGHT_MAX = 10_000
FLUSH_SECONDS_MAX = 120.0
BATCH_BYTES_MAX = 1_000_000


def fill(
    bootstrap: str,
    topic: str,
    *,
    records: int,
    record_bytes: int,
    batch_records: int,
    partitions: int = 1,
    replicas: int = 1,
) -> None:
    """Create the topic and write the records into it, as many into each partition."""
    if records % (batch_records * partitions):
        raise BenchError(
            f"{records} records don't divide into {partitions} times batches of {batch_records}"
        )
    create_topic(bootstrap, topic, partitions=partitions, replicas=replicas)
    if batch_records == 1:
        _send_singly(bootstrap, topic, records, partitions, record_bytes)
        return
    partition_of_batch = [n % partitions for n in range(records // batch_records)]
    asyncio.run(_send(bootstrap, topic, partition_of_batch, batch_records, record_bytes))


def _send_singly(
    bootstrap: str, topic: str, records: int, partitions: int, record_bytes: int
) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "batch.num.messages": 1}
    )
    value = b"x" * record_bytes
    for number in range(records):
        producer.produce(topic, value=value, partition=number % partitions)
        while len(producer) > SINGLE_IN_FLIGHT_MAX:
            producer.poll(0.01)
    if left := producer.flush(FLUSH_SECONDS_MAX):
        raise BenchError(f"{left} of {records} records of {topic} are not confirmed")


async def _send(
    bootstrap: str,
    topic: str,
    partition_of_batch: Sequence[int],
    batch_records: int,
    record_bytes: int,
) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, acks="all", max_batch_size=BATCH_BYTES_MAX
    )
    value = b"x" * record_bytes
    first_ms = int(time.time() * 1000)  # Records of another day would fall to retention.
    waiting: list[asyncio.Future[object]] = []
    async with producer:
        for partition in partition_of_batch:
            batch = producer.create_batch()
            for number in range(batch_records):
                if batch.append(key=None, value=value, timestamp=first_ms + number) is None:
                    raise BenchError(f"{batch_records} records don't fit into one batch")
            waiting.append(await producer.send_batch(batch, topic, partition=partition))
            if len(waiting) == IN_FLIGHT_MAX:
                await asyncio.gather(*waiting)
                waiting.clear()
        await asyncio.gather(*waiting)


def batch_sizes(log: Path) -> Iterator[tuple[int, int]]:
    """Bytes and records of each batch in a segment file, by the headers alone."""
    with open(log, "rb") as file:
        while len(header := file.read(61)) == 61:
            (length,) = struct.unpack_from(">i", header, 8)
            (records,) = struct.unpack_from(">i", header, 57)
            if length <= 0:
                return  # Room that was reserved and not written yet.
            yield length + 12, records
            file.seek(length + 12 - len(header), os.SEEK_CUR)


def log_folders(data: Path) -> frozenset[Path]:
    """The folders that hold segments, one for each partition."""
    return frozenset(path.parent for path in data.rglob("*.log"))


def describe_log(data: Path, besides: frozenset[Path] = frozenset()) -> str:
    """The batches of the largest log under a data directory: how many, of which size.

    ``besides`` are logs that were there before the one that is meant.
    """
    logs = [path for path in data.rglob("*.log") if path.parent not in besides]
    if not logs:
        raise BenchError(f"no new segment under {data}")
    folder = max(logs, key=lambda path: path.stat().st_size).parent
    found = Counter(batch for log in sorted(folder.glob("*.log")) for batch in batch_sizes(log))
    parts = [
        f"{times:,} x {size:,} B of {records:,} record{'s' if records > 1 else ''}"
        for (size, records), times in found.most_common(3)
    ]
    return ", ".join(parts)
