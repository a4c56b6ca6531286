"""From the start of the process to the first metadata answer: on nothing, and after kill -9.

The log after the kill is the same in every round: it is set aside once and laid out again
before each start, so no broker profits from what it had already recovered.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.bench.equal_batches import describe_log, fill
from tests.bench.first_answer import wait_for_metadata
from tests.bench.lines import Line, Measured, Scale
from tests.bench.peers import Broker, Peer
from tests.confluent_calls import admin
from tests.processes import cpu_seconds

START_SECONDS_MAX = 120.0
TOPIC = "big-log"
BATCH_RECORDS = 64
RECORD_BYTES = 1_012  # 64 of them and their framing make a batch of 64 KiB.
BATCH_BYTES = 65_536


class StartEmpty:
    """A broker on an empty data directory (Kafka's is formatted before)."""

    name = "start-empty"
    warms_up = False
    lines = (
        Line(
            what="start to first metadata answer, empty",
            unit="s",
            higher_is_better=False,
            reach_fsync=4,
            reach_os=4,
        ),
    )

    def applies_to(self, peer: Peer) -> bool:
        return True

    def prepare(self, peer: Peer, scale: Scale) -> str:
        return ""

    def measure(self, peer: Peer, scale: Scale) -> tuple[Measured, ...]:
        broker = peer.spare()
        try:
            return (timed_start(broker, None),)
        finally:
            broker.kill9()


class StartAfterKill:
    """A broker on 1 GB of batches, after kill -9."""

    name = "start-after-kill"
    warms_up = False
    lines = (
        Line(
            what="start to first metadata answer, after kill -9 with 1 GB of 64 KB batches",
            unit="s",
            higher_is_better=False,
            reach_fsync=6,
            reach_os=6,
        ),
    )

    def __init__(self) -> None:
        self._killed: dict[str, tuple[Broker, Path]] = {}

    def applies_to(self, peer: Peer) -> bool:
        return True

    def prepare(self, peer: Peer, scale: Scale) -> str:
        broker = peer.spare()
        broker.start()
        wait_for_metadata(broker.port, START_SECONDS_MAX)
        try:
            fill(
                broker.bootstrap,
                TOPIC,
                records=scale.big_log_bytes // BATCH_BYTES * BATCH_RECORDS,
                record_bytes=RECORD_BYTES,
                batch_records=BATCH_RECORDS,
            )
        finally:
            admin.cache_clear()
            broker.kill9()
        aside = broker.data.with_name(broker.data.name + ".aside")
        broker.data.rename(aside)
        self._killed[peer.name] = broker, aside
        return f"log of {peer.name}: {describe_log(aside)}"

    def measure(self, peer: Peer, scale: Scale) -> tuple[Measured, ...]:
        broker, aside = self._killed[peer.name]
        shutil.rmtree(broker.data, ignore_errors=True)
        shutil.copytree(aside, broker.data)
        try:
            return (timed_start(broker, TOPIC),)
        finally:
            broker.kill9()


def timed_start(broker: Broker, topic: str | None) -> Measured:
    """Start the process and ask until it answers."""
    broker.start(wait=False)
    seconds = wait_for_metadata(broker.port, START_SECONDS_MAX, topic)
    return Measured(value=seconds, broker_cpu_s=cpu_seconds(broker.pid))
