"""P9: from produce() to the record in the consumer's hand, at steady rates.

Producer and consumer are two processes.  A record carries the reading of the monotonic clock,
which all processes of a machine share.  The producer keeps to its schedule: when it is late it
does not skip, so a stalled broker shows in every record that it delays.

One consumer of one group takes all: it subscribes to a topic of one partition and to one of
four, joins once, and then the rates come one after the other, first into the one topic, then into
the other.
"""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import count
from typing import Any

from confluent_kafka import Producer, ShareConsumer

from tests.bench.client_process import Span, in_process
from tests.bench.failure import BenchError
from tests.bench.peers.brokers import FLUSHED, FSYNC, KAFKA, OS, Peer
from tests.bench.peers.lines import Line, Measured, Scale, measured, with_kafka
from tests.bench.peers.workloads.log import new_group
from tests.support.confluent_calls import create_topic, produce, share_consumer, take_shared

WAIT_SECONDS_MAX = 60.0
RECORDS_MIN = 300
STEPS = tuple((partitions, rate) for partitions in (1, 4) for rate in (100, 1_000, 5_000))
FLUSHED_RATE_MAX = 1_000
"""A sync for each record allows no 5,000 a second: what waits would be the backlog."""
REACH = {
    "p50": with_kafka(flushes=True, behind_max=1.0),
    "p99": with_kafka(0.7, 1.0, flushes=True),
}
_topics = count(1)


class Latency:
    """confluent's Producer (linger 0) and ShareConsumer (implicit)."""

    name = "P9"
    title = "produce to consume, 100 to 5,000 records/s"
    headline = True
    peers: tuple[str, ...] = (FSYNC, OS, KAFKA, FLUSHED)
    warms_up: tuple[str, ...] = (KAFKA, FLUSHED)
    lines = tuple(
        Line(
            what=f"produce to consume, {rate:,} records/s, {partitions} partition"
            f"{'s' if partitions > 1 else ''}, {quantile}",
            unit="ms",
            higher_is_better=False,
            against=against,
        )
        for partitions, rate in STEPS
        for quantile, against in REACH.items()
    )

    def prepare(self, peer: Peer, scale: Scale) -> str:
        return ""

    def measure(self, peer: Peer, scale: Scale) -> tuple[Measured | None, ...]:
        with peer.awake() as broker:
            steps = [step for step in STEPS if peer.name != FLUSHED or step[1] <= FLUSHED_RATE_MAX]
            round_ = next(_topics)
            topics = {partitions: f"paced-{partitions}-{round_}" for partitions in (1, 4)}
            for partitions, topic in topics.items():
                create_topic(broker.bootstrap_servers, topic, partitions=partitions)
                for partition in range(partitions):
                    produce(broker.bootstrap_servers, topic, [b"0"], partition=partition)
            results = in_process(
                client,
                bootstrap=broker.bootstrap_servers,
                broker_pid=broker.pid,
                group=new_group(broker.bootstrap_servers),
                topics=list(topics.values()),
                steps=[
                    (topics[partitions], partitions, rate, records_of(rate, scale))
                    for partitions, rate in steps
                ],
            )["steps"]
        by_step = dict(zip(steps, results, strict=True))
        return tuple(
            measured(by_step[step][quantile], by_step[step], peer) if step in by_step else None
            for step in STEPS
            for quantile in REACH
        )


def records_of(rate: int, scale: Scale) -> int:
    """So many that a hundredth of them is more than chance."""
    return max(RECORDS_MIN, rate * scale.latency_seconds)


def client(
    *,
    bootstrap: str,
    broker_pid: int,
    group: str,
    topics: list[str],
    steps: list[tuple[str, int, int, int]],
) -> dict[str, Any]:
    """In the consumer's process: join, then start a producer for each step and take its records."""
    with share_consumer(bootstrap, group, topics[0]) as consumer:
        consumer.subscribe(topics)
        take_shared(consumer, sum({topic: partitions for topic, partitions, *_ in steps}.values()))
        return {
            "steps": [
                _step(consumer, bootstrap, broker_pid, topic, partitions, rate, records)
                for topic, partitions, rate, records in steps
            ]
        }


def _step(
    consumer: ShareConsumer,
    bootstrap: str,
    broker_pid: int,
    topic: str,
    partitions: int,
    rate: int,
    records: int,
) -> dict[str, Any]:
    """The delays of so many records at one rate, in milliseconds."""
    delays_ms: list[float] = []
    arguments = [bootstrap, topic, str(partitions), str(records), str(rate)]
    with subprocess.Popen([sys.executable, "-m", __name__, *arguments]) as producer:
        span = Span(broker_pid)
        limit = time.monotonic() + records / rate + WAIT_SECONDS_MAX
        while len(delays_ms) < records:
            if time.monotonic() > limit:
                raise BenchError(f"{len(delays_ms)} of {records} records of {topic} came in time")
            messages = consumer.poll(1.0)
            now_ns = time.monotonic_ns()
            delays_ms.extend((now_ns - int(message.value())) / 1e6 for message in messages)
        result = span.end()
    if producer.returncode:
        raise BenchError(f"the producer failed with {producer.returncode}")
    delays_ms.sort()
    return {"p50": delays_ms[records // 2], "p99": delays_ms[records * 99 // 100], **result}


def main(bootstrap: str, topic: str, partitions: str, records: str, rate: str) -> None:
    """In the producer's process: one record after the other, on schedule."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    producer.list_topics(topic, timeout=WAIT_SECONDS_MAX)
    begin_ns = time.monotonic_ns()
    for number in range(int(records)):
        due_ns = begin_ns + number * 1_000_000_000 // int(rate)
        while (wait_ns := due_ns - time.monotonic_ns()) > 0:
            time.sleep(wait_ns / 1e9)
        value = b"%d" % time.monotonic_ns()
        producer.produce(topic, value=value, partition=number % int(partitions))
        producer.poll(0)
    if left := producer.flush(WAIT_SECONDS_MAX):
        raise BenchError(f"{left} records are not confirmed")


if __name__ == "__main__":
    main(*sys.argv[1:])
