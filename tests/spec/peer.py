"""The broker that the spec is held against: ours, or a real Apache Kafka.

One broker for the whole run; each test has topics and groups of its own.  Both are started
with the same settings, which make waits short and limits reachable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sharegroup.testing import run_broker
from tests.kafka_peer import KafkaPeer, free_ports

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
OURS = {"sharegroup.durability": "os", "sharegroup.share.state.apis.enable": "true"}
"""Only ours has them: quick answers, and the requests that Kafka serves to other brokers."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Where a broker listens, and which one it is."""

    kind: Kind
    port: int
    restart: Callable[[], None]
    """Stop it in order and start it on the same port and data."""

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"


@contextmanager
def start_ours(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[Peer]:
    """Our broker in this process, on a thread of its own, over ``folder``."""
    [port] = free_ports(1)
    with ExitStack() as running:

        def start() -> None:
            merged = {**SETTINGS, **OURS, **(settings or {})}
            running.enter_context(run_broker(merged, data=str(folder), port=port))

        def restart() -> None:
            running.close()
            start()

        start()
        yield Peer("ours", port, restart)


@contextmanager
def start_kafka(folder: Path) -> Iterator[Peer]:
    """A node of Apache Kafka over ``folder``."""
    with KafkaPeer(folder, SETTINGS) as kafka:

        def restart() -> None:
            kafka.stop()
            kafka.start()

        yield Peer("kafka", kafka.port, restart)
