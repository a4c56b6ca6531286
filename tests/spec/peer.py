"""The broker that the spec is held against: ours, or a real Apache Kafka.

One broker for the whole run; each test has topics and groups of its own.  Both are started
with the same settings, which make waits short and limits reachable.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from sharegroup.testing import TestBroker, broker
from tests.support.kafka_peer import KafkaPeer, free_ports
from tests.support.limits import HANGING_SECONDS

Kind = Literal["ours", "kafka"]
T = TypeVar("T")

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
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "log.cleaner.backoff.ms": "100",
    "log.retention.check.interval.ms": "200",
    "share.coordinator.snapshot.update.records.per.snapshot": str(UPDATES_PER_SNAPSHOT),
}
OURS = {"sharegroup.durability": "os", "sharegroup.share.state.apis.enable": "true"}
"""Only ours has them: quick answers, and the requests that Kafka serves to other brokers."""
KAFKAS = {"log.initial.task.delay.ms": "500"}
"""Only Kafka has it: its logs are looked through that soon after its start."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Where a broker listens, and which one it is."""

    kind: Kind
    port: int
    restart: Callable[[], None]
    """Stop it in order and start it on the same port and data."""
    checkpoint: Callable[[], None] = lambda: None
    """Ours compacts what a checkpoint has passed, which it makes twice a minute: make one now."""

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"


class _LoopThread:
    """An event loop on a thread of its own; coroutines are run on it one after another."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="spec-broker")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(HANGING_SECONDS)


class _Ours:
    """Our broker, started and stopped on its loop."""

    def __init__(self, thread: _LoopThread, folder: Path, settings: Mapping[str, str]) -> None:
        [self.port] = free_ports(1)
        self._thread = thread
        self._folder = folder
        self._settings = {**SETTINGS, **OURS, **settings}
        self._stack = AsyncExitStack()
        self._broker: TestBroker | None = None

    def start(self) -> None:
        context = broker(self._settings, data=str(self._folder), port=self.port)
        self._broker = self._thread.run(self._stack.enter_async_context(context))

    def stop(self) -> None:
        self._broker = None
        self._thread.run(self._stack.aclose())

    def restart(self) -> None:
        self.stop()
        self.start()

    def checkpoint(self) -> None:
        assert self._broker is not None, "the broker is not running"
        self._thread.run(self._broker.running.directory.checkpoint())


@contextmanager
def start_ours(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[Peer]:
    """Our broker in this process, on a thread of its own, over ``folder``."""
    with _LoopThread() as thread:
        ours = _Ours(thread, folder, settings or {})
        ours.start()
        try:
            yield Peer("ours", ours.port, ours.restart, ours.checkpoint)
        finally:
            ours.stop()


@contextmanager
def start_kafka(folder: Path) -> Iterator[Peer]:
    """A node of Apache Kafka over ``folder``."""
    with KafkaPeer(folder, {**SETTINGS, **KAFKAS}) as kafka:

        def restart() -> None:
            kafka.stop()
            kafka.start()

        yield Peer("kafka", kafka.port, restart)
