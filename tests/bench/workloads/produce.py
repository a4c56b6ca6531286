"""confluent's Producer: 100 B records, linger 5 ms, acks=all, one partition."""

from __future__ import annotations

from itertools import count
from typing import Any

from confluent_kafka import Producer

from tests.bench.client_process import Span, in_process
from tests.bench.lines import BenchError, Line, Measured, Scale
from tests.bench.peers import Peer
from tests.bench.workloads.share_consume import as_rate
from tests.confluent_calls import create_topic, end_offset

QUEUED_MAX = 200_000
FLUSH_SECONDS_MAX = 60.0
_topics = count(1)


class Produce:
    """A new topic each time, so that every round writes an empty log."""

    name = "produce"
    warms_up = True
    lines = (
        Line(
            what="confluent Producer, 100 B, linger 5 ms, acks=all, 1 partition",
            unit="records/s",
            higher_is_better=True,
            reach_fsync=0.6,
            reach_os=0.7,
        ),
    )

    def applies_to(self, peer: Peer) -> bool:
        return True

    def prepare(self, peer: Peer, scale: Scale) -> str:
        return ""

    def measure(self, peer: Peer, scale: Scale) -> tuple[Measured, ...]:
        with peer.awake() as broker:
            topic = f"produced-{next(_topics)}"
            create_topic(broker.bootstrap, topic)
            result = in_process(
                client,
                bootstrap=broker.bootstrap,
                broker_pid=broker.pid,
                topic=topic,
                records=scale.records,
                record_bytes=scale.record_bytes,
            )
            check_end(broker.bootstrap, topic, scale.records)
        return (as_rate(result, peer),)


def client(
    *, bootstrap: str, broker_pid: int, topic: str, records: int, record_bytes: int
) -> dict[str, Any]:
    """In the client's process: produce and wait until each record is confirmed."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 5,
            "queue.buffering.max.messages": QUEUED_MAX,
        }
    )
    producer.list_topics(topic, timeout=FLUSH_SECONDS_MAX)  # Connected before the clock starts.
    value = b"x" * record_bytes
    span = Span(broker_pid)
    for _ in range(records):
        while True:
            try:
                producer.produce(topic, value=value, partition=0)
                break
            except BufferError:
                producer.poll(0.01)
    if left := producer.flush(FLUSH_SECONDS_MAX):
        raise BenchError(f"{left} of {records} records are not confirmed")
    return {"counted": records, **span.end()}


def check_end(bootstrap: str, topic: str, records: int) -> None:
    """Every record is in the log, once."""
    end = end_offset(bootstrap, topic)
    if end != records:
        raise BenchError(f"expected {records} records in {topic}, its end is {end}")
