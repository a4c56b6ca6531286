"""The broker that the spec is held against: ours, or a real Apache Kafka.

One broker for the whole run; each test has topics and groups of its own.  Both are started
with the same settings, which make waits short and limits reachable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sharegroup.testing import run_broker
from tests.kafka_peer import KafkaPeer

Kind = Literal["ours", "kafka"]

MEMBERS_MAX = 5
SESSIONS_MAX = 30
UPDATES_PER_SNAPSHOT = 5

SETTINGS: Mapping[str, str] = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.session.timeout.ms": "500",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.assignment.interval.ms": "0",
    "group.share.max.size": str(MEMBERS_MAX),
    "group.share.max.share.sessions": str(SESSIONS_MAX),
    "share.coordinator.snapshot.update.records.per.snapshot": str(UPDATES_PER_SNAPSHOT),
}


@dataclass(frozen=True, slots=True)
class Peer:
    """Where a broker listens, and which one it is."""

    kind: Kind
    port: int

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"


@contextmanager
def start_ours(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[Peer]:
    """Our broker in this process, on a thread of its own, over ``folder``."""
    merged = {**SETTINGS, "sharegroup.durability": "os", **(settings or {})}
    with run_broker(merged, data=str(folder)) as broker:
        yield Peer("ours", int(broker.bootstrap.rpartition(":")[2]))


@contextmanager
def start_kafka(folder: Path) -> Iterator[Peer]:
    """A node of Apache Kafka over ``folder``."""
    with KafkaPeer(folder, SETTINGS) as kafka:
        yield Peer("kafka", kafka.port)
