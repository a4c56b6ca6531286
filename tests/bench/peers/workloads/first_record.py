"""P6: how long a new group waits for its first record, from subscribe on.

Share groups, and consumer groups of KIP-848. Kafka assigns to a share group, and resolves a regular
expression, with a heartbeat after the first one.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer

from tests.bench.client_process import Span, in_process
from tests.bench.failure import BenchError
from tests.bench.peers.brokers import FSYNC, KAFKA, OS, Peer
from tests.bench.peers.lines import Line, Measured, Scale, measured, with_kafka
from tests.bench.peers.workloads import java_tools
from tests.bench.peers.workloads.log import new_group
from tests.support.confluent_calls import create_topic, produce, share_consumer

TOPIC = "one-record"
WAIT_SECONDS_MAX = 30.0


class FirstRecord:
    """The topic and the record are there before; the group is new each time."""

    name = "P6"
    title = "new group: subscribe to first record"
    headline = True
    peers: tuple[str, ...] = (FSYNC, OS, KAFKA)
    warms_up: tuple[str, ...] = ()
    lines = tuple(
        Line(what=what, unit="s", higher_is_better=False, against=with_kafka(reach, reach))
        for what, reach in (
            ("new share group: subscribe to first record, confluent", 15),
            ("new share group: subscribe to first record, Java", 15),
            ("new consumer group (KIP-848): subscribe to first record, confluent", 1),
            ("new consumer group (KIP-848), regular expression: the same, confluent", 5),
        )
    )

    def prepare(self, peer: Peer, scale: Scale) -> str:
        with peer.awake() as broker:
            create_topic(broker.bootstrap_servers, TOPIC)
            produce(broker.bootstrap_servers, TOPIC, [b"first"])
        return ""

    def measure(self, peer: Peer, scale: Scale) -> tuple[Measured | None, ...]:
        with peer.awake() as broker:
            theirs = in_process(
                client,
                bootstrap=broker.bootstrap_servers,
                broker_pid=broker.pid,
                group=new_group(broker.bootstrap_servers),
            )
        first = measured(theirs["seconds"], theirs, peer)
        with peer.awake() as broker:
            javas = java_tools.first_record(broker, new_group(broker.bootstrap_servers), TOPIC)
        return (
            first,
            measured(javas["seconds"], javas, peer),
            _of_consumer(peer, TOPIC),
            _of_consumer(peer, f"^{TOPIC}$"),
        )


def _of_consumer(peer: Peer, topic: str) -> Measured:
    with peer.awake() as broker:
        result = in_process(
            consumer,
            bootstrap=broker.bootstrap_servers,
            broker_pid=broker.pid,
            group=f"first-{uuid4()}",
            topic=topic,
        )
    return measured(result["seconds"], result, peer)


def consumer(*, bootstrap: str, broker_pid: int, group: str, topic: str) -> dict[str, Any]:
    """In the client's process: subscribe with the protocol of KIP-848, take one record, close."""
    member = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
    )
    span = Span(broker_pid)
    member.subscribe([topic])
    message = member.poll(WAIT_SECONDS_MAX)
    result = span.end()
    member.close()
    if message is None or message.value() != b"first":
        raise BenchError(f"expected one record in {WAIT_SECONDS_MAX} s, got {message}")
    return result


def client(*, bootstrap: str, broker_pid: int, group: str) -> dict[str, Any]:
    """In the client's process: subscribe, take one record, close."""
    span = Span(broker_pid)
    with share_consumer(bootstrap, group, TOPIC) as consumer:
        messages = consumer.poll(WAIT_SECONDS_MAX)
        result = span.end()
        if [message.value() for message in messages] != [b"first"]:
            raise BenchError(f"expected one record in {WAIT_SECONDS_MAX} s, got {len(messages)}")
    return result
