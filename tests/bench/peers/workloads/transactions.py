"""P18: transactions of one producer, and how long readers of committed records wait for them.

Commits: transactions of 100 records, one after the other, by confluent's Producer and by ours.
Latency: 1,000 records/s in transactions of ten; from produce() to the record in the hand of a
consumer with ``isolation.level=read_committed``.  Producer and consumer are two processes, and a
record carries the reading of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from itertools import count
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    Producer as ConfluentProducer,
    TopicPartition,
)

from sharegroup.client import Producer
from tests.bench.client_process import Span, in_process
from tests.bench.failure import BenchError
from tests.bench.peers.brokers import FSYNC, KAFKA, OS, Peer
from tests.bench.peers.lines import Line, Measured, Scale, as_rate, measured, with_kafka
from tests.support.confluent_calls import create_topic

RECORDS_OF_A_COMMIT = 100
COMMITS = 400
RECORDS_OF_A_TICK = 10
RATE = 1_000
WAIT_SECONDS_MAX = 60.0
VALUE = b"x" * 100
_numbers = count(1)


class Transactions:
    """Commits per second, and the delay of committed records."""

    name = "P18"
    title = "transactions"
    headline = False
    peers: tuple[str, ...] = (FSYNC, OS, KAFKA)
    warms_up: tuple[str, ...] = (KAFKA,)
    lines = (
        Line(
            what="confluent Producer, transactions of 100 records of 100 B",
            unit="commits/s",
            higher_is_better=True,
            against=with_kafka(1.0, 1.5),
        ),
        Line(
            what="our Producer, transactions of 100 records of 100 B",
            unit="commits/s",
            higher_is_better=True,
            against=with_kafka(1.0, 1.5),
        ),
        *(
            Line(
                what=f"produce to read_committed, 1,000 records/s, transactions of ten, {quantile}",
                unit="ms",
                higher_is_better=False,
                against=with_kafka(1.0, 1.5),
            )
            for quantile in ("p50", "p99")
        ),
    )

    def prepare(self, peer: Peer, scale: Scale) -> str:
        return ""

    def measure(self, peer: Peer, scale: Scale) -> tuple[Measured | None, ...]:
        return (
            self._commits(peer, confluent_commits),
            self._commits(peer, own_commits),
            *self._delays(peer, scale),
        )

    def _commits(self, peer: Peer, client: Any) -> Measured:
        with peer.awake() as broker:
            result = in_process(client, **self._arguments(broker, peer), commits=COMMITS)
        return as_rate(result, peer)

    def _delays(self, peer: Peer, scale: Scale) -> tuple[Measured, Measured]:
        with peer.awake() as broker:
            result = in_process(
                delays,
                **self._arguments(broker, peer),
                records=RATE * max(2, scale.latency_seconds),
            )
        return measured(result["p50"], result, peer), measured(result["p99"], result, peer)

    def _arguments(self, broker: Any, peer: Peer) -> dict[str, Any]:
        topic = f"committed-{next(_numbers)}"
        create_topic(broker.bootstrap_servers, topic)
        return {
            "bootstrap": broker.bootstrap_servers,
            "broker_pid": broker.pid,
            "topic": topic,
        }


def confluent_commits(
    *, bootstrap: str, broker_pid: int, topic: str, commits: int
) -> dict[str, Any]:
    """In the client's process: one transaction after the other."""
    producer = _confluent(bootstrap, topic)
    _transaction(producer, topic)  # The first one is slower everywhere.
    span = Span(broker_pid)
    for _ in range(commits):
        _transaction(producer, topic)
    return {"counted": commits, **span.end()}


def own_commits(*, bootstrap: str, broker_pid: int, topic: str, commits: int) -> dict[str, Any]:
    """The same with our producer."""
    return asyncio.run(_own_commits(bootstrap, broker_pid, topic, commits))


async def _own_commits(bootstrap: str, broker_pid: int, topic: str, commits: int) -> dict[str, Any]:
    async with Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:

        async def transaction() -> None:
            async with producer.transaction():
                for _ in range(RECORDS_OF_A_COMMIT):
                    await producer.send(topic, VALUE)

        await transaction()
        span = Span(broker_pid)
        for _ in range(commits):
            await transaction()
        return {"counted": commits, **span.end()}


def _confluent(bootstrap: str, transactional_id: str) -> ConfluentProducer:
    producer = ConfluentProducer(
        {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0}
    )
    producer.init_transactions(WAIT_SECONDS_MAX)
    return producer


def _transaction(producer: ConfluentProducer, topic: str) -> None:
    producer.begin_transaction()
    for _ in range(RECORDS_OF_A_COMMIT):
        producer.produce(topic, VALUE, partition=0)
    producer.commit_transaction(WAIT_SECONDS_MAX)


def delays(*, bootstrap: str, broker_pid: int, topic: str, records: int) -> dict[str, Any]:
    """In the consumer's process: the delays of so many committed records, in milliseconds."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 500,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[float] = []
    arguments = [bootstrap, topic, str(records)]
    with subprocess.Popen([sys.executable, "-m", __name__, *arguments]) as paced:
        span = Span(broker_pid)
        limit = time.monotonic() + records / RATE + WAIT_SECONDS_MAX
        while len(found) < records:
            if time.monotonic() > limit:
                raise BenchError(f"{len(found)} of {records} records of {topic} came in time")
            message = consumer.poll(1.0)
            now_ns = time.monotonic_ns()
            if message is not None and message.error() is None:
                found.append((now_ns - int(message.value())) / 1e6)
        result = span.end()
    consumer.close()
    if paced.returncode:
        raise BenchError(f"the producer failed with {paced.returncode}")
    found = sorted(found[len(found) // 4 :])  # Until then producer and consumer have settled.
    return {"p50": found[len(found) // 2], "p99": found[len(found) * 99 // 100], **result}


def main(bootstrap: str, topic: str, records: int) -> None:
    """In the producer's process: keep to the schedule, in transactions of ten."""
    producer = _confluent(bootstrap, topic)
    begin = time.monotonic()
    for tick in range(records // RECORDS_OF_A_TICK):
        time.sleep(max(0.0, begin + tick * RECORDS_OF_A_TICK / RATE - time.monotonic()))
        producer.begin_transaction()
        for _ in range(RECORDS_OF_A_TICK):
            producer.produce(topic, b"%d" % time.monotonic_ns(), partition=0)
        producer.commit_transaction(WAIT_SECONDS_MAX)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
