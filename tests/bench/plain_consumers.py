"""Records per second of plain consumers on our broker: `python -m tests.bench.plain_consumers`.

Each consumer reads the same topic of four partitions from its beginning, in a group of its own, and
in turn with the others; the best of three rounds counts, from the first records on, because
another process may use the machine for a while.

    --records 300000     records of 100 bytes; a third as many of 1 KiB
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer as ConfluentConsumer

from sharegroup.client import AdminClient, Consumer, NewTopic, Producer
from tests.support.processes import ServeProcess

PARTITIONS = 4
ROUNDS = 3
POLL_SECONDS = 5.0
POLL_RECORDS = 500
groups = (f"bench-{number}" for number in count())

Read = Callable[[str, str, int], Awaitable[float]]
"""Reads so many records of a topic; returns the seconds from the first records to the last."""


class Watch:
    """Counts records from the first ones on."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._found = 0
        self._began = 0.0

    def counted(self, records: int) -> bool:
        """Count records; return whether these are all."""
        if records and not self._found:
            self._began = time.perf_counter()
        self._found += records
        return self._found >= self._wanted

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._began


async def polled(bootstrap: str, topic: str, wanted: int) -> float:
    watch = Watch(wanted)
    async with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=next(groups),
        auto_offset_reset="earliest",
        max_poll_records=POLL_RECORDS,
    ) as consumer:
        while not watch.counted(len(await consumer.poll(POLL_SECONDS))):
            pass
        return watch.seconds


async def polled_as_columns(bootstrap: str, topic: str, wanted: int) -> float:
    watch = Watch(wanted)
    async with Consumer(
        topic, bootstrap_servers=bootstrap, group_id=next(groups), auto_offset_reset="earliest"
    ) as consumer:
        while True:
            batch = await consumer.poll_arrow(POLL_SECONDS)
            if watch.counted(0 if batch is None else batch.num_rows):
                return watch.seconds


async def read_with_aiokafka(bootstrap: str, topic: str, wanted: int) -> float:
    watch = Watch(wanted)
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=next(groups), auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        while True:
            polled_records = await consumer.getmany(
                timeout_ms=round(POLL_SECONDS * 1000), max_records=POLL_RECORDS
            )
            if watch.counted(sum(map(len, polled_records.values()))):
                return watch.seconds
    finally:
        await consumer.stop()


async def read_with_confluent(bootstrap: str, topic: str, wanted: int) -> float:
    def read() -> float:
        watch = Watch(wanted)
        consumer = ConfluentConsumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": next(groups),
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([topic])
        try:
            while not watch.counted(len(consumer.consume(POLL_RECORDS, POLL_SECONDS))):
                pass
            return watch.seconds
        finally:
            consumer.close()

    return await asyncio.to_thread(read)


CONSUMERS: dict[str, Read] = {
    "Consumer.poll": polled,
    "Consumer.poll_arrow": polled_as_columns,
    "confluent-kafka, defaults": read_with_confluent,
    "aiokafka": read_with_aiokafka,
}


async def fill(bootstrap: str, topic: str, size: int, records: int) -> None:
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS)])
    async with Producer(bootstrap_servers=bootstrap, linger_ms=20) as producer:
        for number in range(records):
            await producer.send(topic, b"v" * size, partition=number * PARTITIONS // records)
        await producer.flush()


async def measure(bootstrap: str, records: int) -> None:
    for size, wanted in ((100, records), (1024, records // 3)):
        topic = f"records-{size}"
        await fill(bootstrap, topic, size, wanted)
        best = dict.fromkeys(CONSUMERS, 0.0)
        for _ in range(ROUNDS):
            for name, read in CONSUMERS.items():
                best[name] = max(best[name], wanted / await read(bootstrap, topic, wanted))
        for name, rate in best.items():
            print(f"{size:>5} B  {name:<28}{rate:>12,.0f} records/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--records", type=int, default=300_000)
    arguments = parser.parse_args()
    with (
        TemporaryDirectory() as folder,
        ServeProcess(Path(folder)) as ours,
    ):
        uvloop.run(measure(ours.bootstrap_servers, arguments.records))


if __name__ == "__main__":
    main()
