"""How long a new share group waits for its first record, from subscribe on."""

from __future__ import annotations

from typing import Any

from tests.bench.client_process import Span, in_process
from tests.bench.lines import BenchError, Line, Measured, Scale
from tests.bench.peers import Peer
from tests.bench.workloads.share_consume import new_group
from tests.confluent_calls import create_topic, produce, share_consumer

TOPIC = "one-record"
WAIT_SECONDS_MAX = 30.0


class FirstRecord:
    """The topic and the record are there before; the group is new each time."""

    name = "first-record"
    warms_up = False
    lines = (
        Line(
            what="new share group: subscribe to first record",
            unit="s",
            higher_is_better=False,
            reach_fsync=15,
            reach_os=15,
        ),
    )

    def applies_to(self, peer: Peer) -> bool:
        return True

    def prepare(self, peer: Peer, scale: Scale) -> str:
        with peer.awake() as broker:
            create_topic(broker.bootstrap, TOPIC)
            produce(broker.bootstrap, TOPIC, [b"first"])
        return ""

    def measure(self, peer: Peer, scale: Scale) -> tuple[Measured, ...]:
        with peer.awake() as broker:
            result = in_process(
                client,
                bootstrap=broker.bootstrap,
                broker_pid=broker.pid,
                group=new_group(broker.bootstrap),
            )
        return (
            Measured(
                value=result["seconds"],
                broker_cpu_s=result["broker_cpu_s"],
                client_cpu_s=result["client_cpu_s"],
                syncs=peer.syncs(),
            ),
        )


def client(*, bootstrap: str, broker_pid: int, group: str) -> dict[str, Any]:
    """In the client's process: subscribe, take one record, close."""
    span = Span(broker_pid)
    with share_consumer(bootstrap, group, TOPIC) as consumer:
        messages = consumer.poll(WAIT_SECONDS_MAX)
        result = span.end()
        if [message.value() for message in messages] != [b"first"]:
            raise BenchError(f"expected one record in {WAIT_SECONDS_MAX} s, got {len(messages)}")
    return result
