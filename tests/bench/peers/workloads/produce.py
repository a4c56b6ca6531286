"""P10: producing, acks=all, into one partition of a new topic."""

from __future__ import annotations

from itertools import count
from typing import Any

from confluent_kafka import Producer

from tests.bench.client_process import Span, in_process
from tests.bench.failure import BenchError
from tests.bench.peers.brokers import FLUSHED, FSYNC, KAFKA, OS, Broker, Peer
from tests.bench.peers.lines import Against, Line, Measured, Scale, as_rate
from tests.bench.peers.workloads import java_tools
from tests.support.confluent_calls import create_topic, delete_topic, dotted, end_offset

QUEUED_MAX = 200_000
FLUSH_SECONDS_MAX = 180.0
REACH_FLUSHED = 2.0
_topics = count(1)


class Produce:
    """A new topic each time, so that every round writes an empty log.

    Our ``os`` and Kafka's default promise the same, and so do our ``fsync`` and a Kafka that
    flushes; ``fsync`` against the page cache is told and has nothing to reach.
    """

    name = "P10"
    title = "produce"
    headline = False
    peers: tuple[str, ...] = (FSYNC, OS, KAFKA, FLUSHED)
    warms_up: tuple[str, ...] = (KAFKA, FLUSHED)
    lines = tuple(
        Line(
            what=what,
            unit="records/s",
            higher_is_better=True,
            against=(
                Against(ours=OS, rival=KAFKA, reach=reach),
                Against(ours=FSYNC, rival=KAFKA),
                Against(ours=FSYNC, rival=FLUSHED, reach=REACH_FLUSHED),
            ),
        )
        for what, reach in (
            ("confluent Producer, 100 B, linger 5 ms, 1 partition", 0.8),
            ("confluent Producer, 1 KiB, linger 5 ms, 1 partition", 1.0),
            ("confluent Producer, 100 B, one-record batches, 1 partition", 1.0),
            ("ProducerPerformance, 100 B, linger 5 ms, 1 partition", 0.8),
        )
    )

    def prepare(self, peer: Peer, scale: Scale) -> str:
        return ""

    def measure(self, peer: Peer, scale: Scale) -> tuple[Measured | None, ...]:
        records, some = scale.records, scale.records // 5
        single = scale.records // 200
        return (
            _confluent(peer, records=records, record_bytes=100),
            _confluent(peer, records=some, record_bytes=1_024),
            _confluent(peer, records=single, record_bytes=100, single=True),
            _java(peer, records=records, record_bytes=100),
        )


def _confluent(peer: Peer, **arguments: Any) -> Measured:
    with peer.awake() as broker:
        topic = new_topic(broker)
        result = in_process(
            client,
            bootstrap=broker.bootstrap_servers,
            broker_pid=broker.pid,
            topic=topic,
            **arguments,
        )
        check_and_delete(broker.bootstrap_servers, topic, arguments["records"])
    return as_rate(result, peer)


def _java(peer: Peer, *, records: int, record_bytes: int) -> Measured:
    with peer.awake() as broker:
        topic = new_topic(broker)
        result = java_tools.produce(broker, topic, records, record_bytes)
        check_and_delete(broker.bootstrap_servers, topic, records)
    return as_rate(result, peer)


def new_topic(broker: Broker) -> str:
    topic = f"produced-{next(_topics)}"
    create_topic(broker.bootstrap_servers, topic)
    return topic


def client(
    *,
    bootstrap: str,
    broker_pid: int,
    topic: str,
    records: int,
    record_bytes: int,
    single: bool = False,
    **settings: object,
) -> dict[str, Any]:
    """In the client's process: produce and wait until each record is confirmed.

    ``settings`` are confluent's, with ``_`` for dots.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "queue.buffering.max.messages": QUEUED_MAX,
            **({"linger.ms": 0, "batch.num.messages": 1} if single else {"linger.ms": 5}),
            **dotted(settings),
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


def check_and_delete(bootstrap: str, topic: str, records: int) -> None:
    """Every record is in the log, once; then the log goes: rounds of long logs fill a disk."""
    end = end_offset(bootstrap, topic)
    if end != records:
        raise BenchError(f"expected {records} records in {topic}, its end is {end}")
    delete_topic(bootstrap, topic)
