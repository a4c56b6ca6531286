"""P8: resident memory of a broker that just started, and the same after five million records."""

from __future__ import annotations

import time

from tests.bench.client_process import in_process
from tests.bench.first_answer import wait_for_metadata
from tests.bench.peers.brokers import FSYNC, KAFKA, MIB, OS, Peer
from tests.bench.peers.lines import Line, Measured, Scale, with_kafka
from tests.bench.peers.workloads import produce, share_consume
from tests.bench.peers.workloads.log import new_group
from tests.support.confluent_calls import admin, create_topic
from tests.support.processes import pss_bytes, rss_bytes

TOPIC = "weighed"
START_SECONDS_MAX = 60.0
IDLE_SECONDS = 3.0  # Start-up leaves work behind that ends by itself.


class Memory:
    """A new broker in each round: produce everything, share-consume everything, weigh."""

    name = "P8"
    title = "resident memory"
    headline = False
    peers: tuple[str, ...] = (FSYNC, OS, KAFKA)
    warms_up: tuple[str, ...] = ()
    lines = (
        Line(
            what="resident memory, idle",
            unit="MiB",
            higher_is_better=False,
            against=with_kafka(4, 4),
        ),
        Line(
            what="resident memory, after 5 M records produced and share-consumed",
            unit="MiB",
            higher_is_better=False,
            against=with_kafka(3, 3),
        ),
    )

    def prepare(self, peer: Peer, scale: Scale) -> str:
        return ""

    def measure(self, peer: Peer, scale: Scale) -> tuple[Measured | None, ...]:
        records = scale.records * 5 // 2
        broker = peer.spare()
        broker.start()
        wait_for_metadata(broker.port, START_SECONDS_MAX)
        try:
            time.sleep(IDLE_SECONDS)
            idle = weigh(broker.pid)
            create_topic(broker.bootstrap_servers, TOPIC)
            common = {
                "bootstrap": broker.bootstrap_servers,
                "broker_pid": broker.pid,
                "topic": TOPIC,
                "records": records,
            }
            in_process(produce.client, record_bytes=scale.record_bytes, **common)
            in_process(
                share_consume.client,
                group=new_group(broker.bootstrap_servers),
                explicit=False,
                **common,
            )
            return idle, weigh(broker.pid)
        finally:
            admin.cache_clear()
            broker.kill9()


def weigh(pid: int) -> Measured:
    """RSS, for PSS falls when other Python processes happen to share the interpreter's pages."""
    return Measured(value=rss_bytes(pid) / MIB, peak_pss_mib=pss_bytes(pid) / MIB)
