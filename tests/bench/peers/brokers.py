"""The brokers that are compared.  Only one of them is awake at a time.

Ours is started for each measurement and stopped cleanly after it, so that its count of syncs
belongs to that measurement.  Kafka is kept alive and stopped with SIGSTOP in between: its
virtual machine compiles what is hot, and a cold one would be an unfair rival.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Protocol

from tests.bench.first_answer import wait_for_metadata
from tests.support.confluent_calls import admin
from tests.support.kafka_peer import SERVER_JVM, KafkaPeer, free_ports
from tests.support.processes import ServeProcess, pss_bytes

FSYNC, OS = "ours fsync", "ours os"
KAFKA, FLUSHED = "Kafka", "Kafka flush.messages=1"
FSYNC_TLS, OS_TLS, KAFKA_TLS = "ours fsync TLS", "ours os TLS", "Kafka TLS"
RABBITMQ, NATS, REDIS = "RabbitMQ", "NATS", "Redis"

# A sleeping Kafka must not lose its place with its own controller.  Not for spares: one that is
# killed and started again would wait so long for its own earlier life to end.
SLEEPER_SETTINGS = {"broker.session.timeout.ms": "3600000"}
# The broker's default for flush.messages: of every topic, the one of share state among them.
FLUSH_SETTINGS = {"log.flush.interval.messages": "1"}
AWAKE_SECONDS_MAX = 30.0
WATCH_SECONDS = 0.5
MIB = 1024 * 1024


class Broker(Protocol):
    """One broker process."""

    data: Path

    @property
    def port(self) -> int: ...
    @property
    def bootstrap_servers(self) -> str: ...
    @property
    def pid(self) -> int: ...
    def start(self, *, wait: bool = True) -> None: ...
    def stop(self) -> None: ...
    def kill9(self) -> None: ...


class Peer(Protocol):
    """One of the brokers that are compared."""

    name: str
    durability: str
    """In words, for the report."""
    ours: bool
    company: ExitStack
    """What must live as long as the peer: clients that have to stay warm."""
    peak_pss_mib: float | None
    """The most memory that was seen during the last time awake."""

    @property
    def data(self) -> Path:
        """The data directory of the broker that `awake` wakes."""

    def awake(self) -> AbstractContextManager[Broker]:
        """The broker, running and ready to be measured; asleep again at the end."""

    def spare(self) -> Broker:
        """A new broker of the same kind on an empty folder, ready to start."""

    def syncs(self) -> int | None:
        """Syncs of the last time awake; None where nobody counts them."""

    def end(self) -> None:
        """Leave no process behind."""


class Ours:
    """Our broker, with one durability."""

    ours = True

    def __init__(
        self,
        folder: Path,
        durability: str,
        *,
        name: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name or f"ours {durability}"
        self.durability = {
            "fsync": "fsync: answered when it is on disk",
            "os": "os: answered after write(2), as Kafka does",
        }[durability]
        self._durability = durability
        self._settings = dict(settings or {})
        self._folder = folder / self.name.replace(" ", "-")
        self.company = ExitStack()
        self.peak_pss_mib: float | None = None
        self._spares = count(1)
        self._broker = self._new("main")

    @property
    def data(self) -> Path:
        return self._broker.data

    @contextmanager
    def awake(self) -> Iterator[Broker]:
        with self._broker, watched(self, self._broker.pid):
            try:
                yield self._broker
            finally:
                admin.cache_clear()  # A client without its broker would try to connect for ever.

    def spare(self) -> Broker:
        return self._new(f"spare{next(self._spares)}")

    def syncs(self) -> int | None:
        return self._broker.syncs()

    def end(self) -> None:
        self.company.close()
        self._broker.kill9()

    def _new(self, name: str) -> ServeProcess:
        (port,) = free_ports(1)
        return ServeProcess(
            self._folder / name, port=port, durability=self._durability, settings=self._settings
        )


class ApacheKafka:
    """A real Apache Kafka: with its default durability, the page cache, or flushing each batch."""

    ours = False

    def __init__(self, folder: Path, *, flushes: bool = False) -> None:
        self.name = FLUSHED if flushes else KAFKA
        self.durability = (
            "flush.messages=1 on every topic: answered when it is on disk"
            if flushes
            else "its default: answered from the page cache"
        )
        self._folder = folder / ("kafka-flushed" if flushes else "kafka")
        self._settings = FLUSH_SETTINGS if flushes else {}
        self.company = ExitStack()
        self.peak_pss_mib: float | None = None
        self._spares = count(1)
        self._broker = KafkaNode(self._folder / "main", {**self._settings, **SLEEPER_SETTINGS})
        self._started = False

    @property
    def data(self) -> Path:
        return self._broker.data

    @contextmanager
    def awake(self) -> Iterator[Broker]:
        if self._started:
            os.kill(self._broker.pid, signal.SIGCONT)
        else:
            self._broker.start()
            self._started = True
        wait_for_metadata(self._broker.port, AWAKE_SECONDS_MAX)
        try:
            with watched(self, self._broker.pid):
                yield self._broker
        finally:  # A workload that failed must leave it asleep too.
            admin.cache_clear()
            os.kill(self._broker.pid, signal.SIGSTOP)

    def spare(self) -> Broker:
        node = KafkaNode(self._folder / f"spare{next(self._spares)}", self._settings)
        node.format()
        return node

    def syncs(self) -> int | None:
        return None

    def end(self) -> None:
        self.company.close()
        self._broker.kill()


def tls_settings(folder: Path, listeners: str) -> dict[str, str]:
    """Settings of a broker with a listener SSL; both brokers read the same kind of files."""
    # The paired benchmark imports this module beside older packages, which lack certificates.
    from sharegroup.cli.access.local_certificates import CertificateFiles, make_certificates

    files = CertificateFiles(folder / "certificates", ())
    if not files.server.exists():
        make_certificates(files.folder, hosts=["127.0.0.1"], clients=())
    return {
        "listeners": listeners,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files.server),
    }


class OursTls(Ours):
    """Our broker with a second listener that has TLS."""

    def _new(self, name: str) -> ServeProcess:
        port, tls_port = free_ports(2)
        listeners = f"PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:{tls_port}"
        self._settings |= tls_settings(self._folder, listeners)
        self.authority = self._folder / "certificates" / "ca.pem"
        self.tls_bootstrap = f"127.0.0.1:{tls_port}"
        return super()._new(name)


class ApacheKafkaTls(ApacheKafka):
    """A real Apache Kafka with a second listener that has TLS."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "tls")
        self.name = KAFKA_TLS
        (tls_port,) = free_ports(1)
        properties = self._broker.properties
        listener = f",SSL://127.0.0.1:{tls_port}"
        listeners = properties["listeners"] + listener
        properties |= tls_settings(folder / "tls", listeners)
        properties["advertised.listeners"] += listener
        properties["listener.security.protocol.map"] += ",SSL:SSL"
        self.authority = folder / "tls" / "certificates" / "ca.pem"
        self.tls_bootstrap = f"127.0.0.1:{tls_port}"


class KafkaNode(KafkaPeer):
    """`KafkaPeer` by the names that our own process has."""

    jvm = SERVER_JVM

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def kill9(self) -> None:
        self.kill()


@contextmanager
def watched(peer: Peer, pid: int) -> Iterator[None]:
    """Look at the process's memory twice a second; the most of it is the peer's `peak_pss_mib`."""
    ended = threading.Event()
    peer.peak_pss_mib = pss_bytes(pid) / MIB

    def watch() -> None:
        while not ended.wait(WATCH_SECONDS):
            peer.peak_pss_mib = max(peer.peak_pss_mib or 0.0, pss_bytes(pid) / MIB)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
