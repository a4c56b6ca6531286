"""Resident memory: a broker that just started, and the same after five million records."""

from __future__ import annotations

import time

from tests.bench.client_process import in_process
from tests.bench.first_answer import wait_for_metadata
from tests.bench.lines import Line, Measured, Scale
from tests.bench.peers import Peer
from tests.bench.workloads import produce, share_consume
from tests.bench.workloads.share_consume import TOPIC, new_group
from tests.confluent_calls import admin, create_topic
from tests.processes import pss_bytes, rss_bytes

START_SECONDS_MAX = 60.0
IDLE_SECONDS = 3.0  # Start-up leaves work behind that ends by itself.
MIB = 1024 * 1024


class Memory:
    """A new broker in each round: produce everything, share-consume everything, weigh."""

    name = "memory"
    warms_up = False
    lines = (
        Line(
            what="resident memory, idle",
            unit="MiB",
            higher_is_better=False,
            reach_fsync=4,
            reach_os=4,
        ),
        Line(
            what="resident memory, after 5 M records produced and share-consumed",
            unit="MiB",
            higher_is_better=False,
            reach_fsync=3,
            reach_os=3,
        ),
    )

    def applies_to(self, peer: Peer) -> bool:
        return True

    def prepare(self, peer: Peer, scale: Scale) -> str:
        return ""

    def measure(self, peer: Peer, scale: Scale) -> tuple[Measured, ...]:
        broker = peer.spare()
        broker.start()
        wait_for_metadata(broker.port, START_SECONDS_MAX)
        try:
            time.sleep(IDLE_SECONDS)
            idle = weigh(broker.pid)
            create_topic(broker.bootstrap, TOPIC)
            common = {"bootstrap": broker.bootstrap, "broker_pid": broker.pid}
            in_process(
                produce.client,
                topic=TOPIC,
                records=scale.records,
                record_bytes=scale.record_bytes,
                **common,
            )
            in_process(
                share_consume.client,
                group=new_group(broker.bootstrap),
                records=scale.records,
                explicit=False,
                **common,
            )
            return idle, weigh(broker.pid)
        finally:
            admin.cache_clear()
            broker.kill9()


def weigh(pid: int) -> Measured:
    """RSS, for PSS falls when other Python processes happen to share the interpreter's pages."""
    return Measured(value=rss_bytes(pid) / MIB, note=f"PSS {pss_bytes(pid) / MIB:.0f} MiB")
