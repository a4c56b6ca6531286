"""From produce() to the record in the consumer's hand, at a steady 1,000 records a second.

Producer and consumer are two processes.  A record carries the reading of the monotonic clock,
which all processes of a machine share.  The producer keeps to its schedule: when it is late it
does not skip, so a stalled broker shows in every record that it delays.
"""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import count
from typing import Any

from confluent_kafka import Producer

from tests.bench.client_process import Span, in_process
from tests.bench.lines import BenchError, Line, Measured, Scale
from tests.bench.peers import Peer
from tests.bench.workloads.share_consume import new_group
from tests.confluent_calls import create_topic, produce, share_consumer, take_shared

WAIT_SECONDS_MAX = 30.0
_topics = count(1)


class Latency:
    """confluent's Producer (linger 0) and ShareConsumer (implicit), one partition."""

    name = "latency"
    warms_up = True
    lines = (
        Line(
            what="produce to consume at 1,000 records/s, p50",
            unit="ms",
            higher_is_better=False,
            reach_fsync=0,
            reach_os=0,
        ),
        Line(
            what="produce to consume at 1,000 records/s, p99",
            unit="ms",
            higher_is_better=False,
            reach_fsync=0.6,
            reach_os=0.8,
        ),
    )

    def applies_to(self, peer: Peer) -> bool:
        return True

    def prepare(self, peer: Peer, scale: Scale) -> str:
        return ""

    def measure(self, peer: Peer, scale: Scale) -> tuple[Measured, ...]:
        with peer.awake() as broker:
            topic = f"paced-{next(_topics)}"
            create_topic(broker.bootstrap, topic)
            produce(broker.bootstrap, topic, [b"0"])
            result = in_process(
                client,
                bootstrap=broker.bootstrap,
                broker_pid=broker.pid,
                group=new_group(broker.bootstrap),
                topic=topic,
                records=scale.latency_rate * scale.latency_seconds,
                rate=scale.latency_rate,
            )
        cpu = {name: result[name] for name in ("broker_cpu_s", "client_cpu_s")}
        return tuple(
            Measured(value=result[name], syncs=peer.syncs(), **cpu) for name in ("p50", "p99")
        )


def client(
    *, bootstrap: str, broker_pid: int, group: str, topic: str, records: int, rate: int
) -> dict[str, Any]:
    """In the consumer's process: join, start the producer, take every record."""
    delays_ms: list[float] = []
    with share_consumer(bootstrap, group, topic) as consumer:
        take_shared(consumer, 1)
        arguments = (bootstrap, topic, str(records), str(rate))
        with subprocess.Popen([sys.executable, "-m", __name__, *arguments]) as producer:
            span = Span(broker_pid)
            limit = time.monotonic() + records / rate + WAIT_SECONDS_MAX
            while len(delays_ms) < records:
                if time.monotonic() > limit:
                    raise BenchError(f"{len(delays_ms)} of {records} records came in time")
                messages = consumer.poll(1.0)
                now_ns = time.monotonic_ns()
                delays_ms.extend((now_ns - int(message.value())) / 1e6 for message in messages)
            result = span.end()
        if producer.returncode:
            raise BenchError(f"the producer failed with {producer.returncode}")
    delays_ms.sort()
    return {
        "p50": delays_ms[records // 2],
        "p99": delays_ms[records * 99 // 100],
        **result,
    }


def main(bootstrap: str, topic: str, records: str, rate: str) -> None:
    """In the producer's process: one record after the other, on schedule."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    producer.list_topics(topic, timeout=WAIT_SECONDS_MAX)
    begin_ns = time.monotonic_ns()
    for number in range(int(records)):
        due_ns = begin_ns + number * 1_000_000_000 // int(rate)
        while (wait_ns := due_ns - time.monotonic_ns()) > 0:
            time.sleep(wait_ns / 1e9)
        producer.produce(topic, value=b"%d" % time.monotonic_ns(), partition=0)
        producer.poll(0)
    if left := producer.flush(WAIT_SECONDS_MAX):
        raise BenchError(f"{left} records are not confirmed")


if __name__ == "__main__":
    main(*sys.argv[1:])
