"""P7: from the start of the process to the first metadata answer: on nothing, and after kill -9.

The log after the kill is the same in every round: it is set aside once and laid out again
before each start, so no broker profits from what it had already recovered.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.bench.equal_batches import describe_log, fill
from tests.bench.first_answer import wait_for_metadata
from tests.bench.peers.brokers import FSYNC, KAFKA, OS, Broker, Peer
from tests.bench.peers.lines import Line, Measured, Scale, with_kafka
from tests.support.confluent_calls import admin
from tests.support.processes import cpu_seconds

START_SECONDS_MAX = 120.0
TOPIC = "big-log"
BATCH_RECORDS = 64
RECORD_BYTES = 1_012  # 64 of them and their framing make a batch of 64 KiB.
BATCH_BYTES = 65_536


class Start:
    """A broker on an empty data directory (Kafka's is formatted before), and on 2 GB."""

    name = "P7"
    title = "start to first metadata answer"
    headline = True
    peers: tuple[str, ...] = (FSYNC, OS, KAFKA)
    warms_up: tuple[str, ...] = ()
    lines = (
        Line(
            what="start to first metadata answer, empty",
            unit="s",
            higher_is_better=False,
            against=with_kafka(4, 4),
        ),
        Line(
            what="start to first metadata answer, after kill -9 with 2 GB of 64 KB batches",
            unit="s",
            higher_is_better=False,
            against=with_kafka(8, 8),
        ),
    )

    def __init__(self) -> None:
        self._killed: dict[str, tuple[Broker, Path]] = {}

    def prepare(self, peer: Peer, scale: Scale) -> str:
        broker = peer.spare()
        broker.start()
        wait_for_metadata(broker.port, START_SECONDS_MAX)
        try:
            fill(
                broker.bootstrap_servers,
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
        return f"log {TOPIC} of {peer.name}: {describe_log(aside)}"

    def measure(self, peer: Peer, scale: Scale) -> tuple[Measured | None, ...]:
        empty = peer.spare()
        try:
            first = timed_start(empty, None)
        finally:
            empty.kill9()
        broker, aside = self._killed[peer.name]
        shutil.rmtree(broker.data, ignore_errors=True)
        shutil.copytree(aside, broker.data)
        os.sync()  # The disk is nobody's when the clock starts.
        try:
            return first, timed_start(broker, TOPIC)
        finally:
            broker.kill9()


def timed_start(broker: Broker, topic: str | None) -> Measured:
    """Start the process and ask until it answers."""
    broker.start(wait=False)
    seconds = wait_for_metadata(broker.port, START_SECONDS_MAX, topic)
    return Measured(value=seconds, broker_cpu_s=cpu_seconds(broker.pid))
