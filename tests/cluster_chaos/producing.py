"""A process that produces numbered records, and writes down which of them were confirmed.

    python -m tests.cluster_chaos.producing {producer-ours|producer-confluent} BOOTSTRAP FOLDER

SIGTERM: it sends no more, waits for every outcome, and ends.

    ours        plain (even numbers), what the worker application and the Spark query read
    confluent   plain (odd numbers)
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import confluent_kafka

from sharegroup.client import Producer, SendFuture
from sharegroup.errors import KafkaError
from tests.cluster_chaos.names import CONFLUENT, OURS, PLAIN, SPARK_TOPIC, journal, stopping
from tests.faults.worker_chaos.journal import Journal
from tests.faults.worker_chaos.records import records

PLAIN_RATE, JOBS_RATE, SPARK_RATE = 80, 20, 50
"""Records a second; of the plain ones for each producer."""
TICK_SECONDS = 0.05
JOBS_MAX = 500_000
FLUSH_SECONDS_MAX = 180.0
CLIENT = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 5,
    "message.timeout.ms": 120_000,
}
QUIET = logging.getLogger("cluster_chaos.producing")

Record = tuple[str, int, bytes, bytes]
"""Topic, number, value and key."""


def ours() -> Iterator[tuple[int, Iterator[Record]]]:
    """Rates and records of our producer."""
    yield PLAIN_RATE, plain_records(0)
    yield SPARK_RATE, ((SPARK_TOPIC, n, b"%d" % n, b"%d" % n) for n in count())
    jobs = records(JOBS_MAX, 0)
    yield JOBS_RATE, ((sent.topic, sent.number, sent.value, sent.key) for sent in jobs)


def confluents() -> Iterator[tuple[int, Iterator[Record]]]:
    """Rates and records of confluent's producer."""
    yield PLAIN_RATE, plain_records(1)


def is_ours(number: int) -> bool:
    """Whether our producer sends this plain record."""
    return number % 2 == 0


def plain_records(first: int) -> Iterator[Record]:
    """Every second number."""
    return ((PLAIN, number, b"%d" % number, b"%d" % number) for number in count(first, 2))


def due(
    streams: Iterator[tuple[int, Iterator[Record]]], ended: threading.Event
) -> Iterator[list[Record]]:
    """What is to be sent at each tick, until ``ended``; a tick that was missed is made up for."""
    sources = [[rate, source, 0] for rate, source in streams]
    began = time.monotonic()
    while not ended.is_set():
        passed = time.monotonic() - began
        found: list[Record] = []
        for source in sources:
            rate, stream, sent = source
            wanted = int(passed * rate)
            found += [next(stream) for _ in range(wanted - sent)]
            source[2] = max(sent, wanted)
        yield found


async def produce(bootstrap: str, journal: Journal, ended: threading.Event) -> None:
    """With our producer."""
    pending: list[tuple[str, int, SendFuture]] = []

    def look() -> None:
        for topic, number, future in [entry for entry in pending if entry[2].done()]:
            error = future.exception()
            if error is None:
                written = future.result()
                place = (topic, written.partition, written.offset)
                journal.write("confirmed", number, place=place)
            else:
                journal.write("refused", number, place=(topic, -1, -1), error=repr(error)[:200])
        pending[:] = [entry for entry in pending if not entry[2].done()]

    async with Producer(bootstrap_servers=bootstrap) as producer:
        for batch in due(ours(), ended):
            for topic, number, value, key in batch:
                journal.write("sent", number, place=(topic, -1, -1))
                try:
                    pending.append((topic, number, await producer.send(topic, value, key=key)))
                except (KafkaError, TimeoutError) as error:
                    journal.write("refused", number, place=(topic, -1, -1), error=repr(error)[:200])
            look()
            await asyncio.sleep(TICK_SECONDS)
        while pending:
            look()
            await asyncio.sleep(TICK_SECONDS)


def produce_confluent(bootstrap: str, journal: Journal, ended: threading.Event) -> None:
    """With confluent's."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **CLIENT}, logger=QUIET)

    def told(error: object, message: confluent_kafka.Message) -> None:
        topic, number = message.topic() or "", int(message.key() or b"-1")
        if error is None:
            place = (topic, message.partition(), message.offset())
            journal.write("confirmed", number, place=place)
        else:
            journal.write("refused", number, place=(topic, -1, -1), error=str(error)[:200])

    for batch in due(confluents(), ended):
        for topic, number, value, key in batch:
            journal.write("sent", number, place=(topic, -1, -1))
            producer.produce(topic, value=value, key=key, on_delivery=told)
        producer.poll(TICK_SECONDS)
    producer.flush(FLUSH_SECONDS_MAX)


def main(name: str, bootstrap: str, folder: Path) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    ended = stopping()
    written = journal(folder, name)
    if name == OURS:
        asyncio.run(produce(bootstrap, written, ended))
    else:
        assert name == CONFLUENT, name
        QUIET.setLevel(logging.CRITICAL + 1)  # That a broker is away is no news here.
        produce_confluent(bootstrap, written, ended)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
