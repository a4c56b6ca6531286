"""A real Apache Kafka beside us: the reference for behaviour and the rival for speed.

One KRaft node (broker and controller in one process) on free loopback ports, its data in a
folder that the caller names.  The jars come by Maven into a cache outside the checkout, once;
``KAFKA_HOME`` names an installation to use instead.  Without Java or Maven `why_missing` says
so, and tests skip with that sentence.

    with KafkaPeer(tmp_path, {"num.partitions": "3"}) as kafka:
        connect(kafka.bootstrap_servers)
        kafka.kill()      # kill -9
        kafka.start()     # the same ports, the same data
"""

from __future__ import annotations

import base64
import fcntl
import os
import random
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

VERSIONS = ("4.2.2", "4.3.1", "4.4.0")
"""The releases that tests ask for; each has a folder of jars of its own."""
KAFKA_VERSION = os.environ.get("KAFKA_VERSION") or VERSIONS[-1]
"""What is run where nobody asks for a release."""
BROKER_WRITES_LETTERS = KAFKA_VERSION >= "4.4"
"""Whether this release has dead letters that the broker writes (KIP-1191)."""
START_SECONDS_MAX = 90.0
STOP_SECONDS_MAX = 30.0
FETCH_SECONDS_MAX = 600.0
FETCH_PAUSES_SECONDS = (5, 20)
LISTENING_PORTS = range(15_000, 32_000)
QUICK_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""For a node that lives a minute: it needs half of the processor time until it answers."""
SERVER_JVM = ("-XX:+UseG1GC",)
"""As a production server runs: for a node whose speed is measured."""

TOOLS_API = {"4.4.0": "4.3.1"}
"""kafka-tools-api of 4.4.0 is not published; the release before it has the same classes."""


def pom_of(version: str) -> str:
    """The pom that depends on a Kafka of this release."""
    return f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>sharegroup.tests</groupId><artifactId>kafka-peer</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
      <version>{version}</version>
      <exclusions><exclusion>
        <groupId>org.apache.kafka</groupId><artifactId>kafka-tools-api</artifactId>
      </exclusion></exclusions>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools-api</artifactId>
      <version>{TOOLS_API.get(version, version)}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId>
      <version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId>
      <version>2.24.3</version>
    </dependency>
  </dependencies>
</project>
"""


LOG4J = """\
<Configuration status="warn"><Appenders><Console name="out">
<PatternLayout pattern="%d %p %m (%c)%n"/></Console></Appenders>
<Loggers><Root level="INFO"><AppenderRef ref="out"/></Root></Loggers></Configuration>
"""

# One node can replicate to nobody; short locks make tests short.
SINGLE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "100",
}


class KafkaPeerError(Exception):
    """The peer could not be fetched, formatted or started."""


def why_missing() -> str | None:
    """Why there can be no Apache Kafka here, or None when there can."""
    if java() is None:
        return "no Java: neither JAVA_HOME nor a java on the PATH"
    if installed_libs() is None and shutil.which("mvn") is None:
        return "no Maven on the PATH to fetch Apache Kafka, and no KAFKA_HOME"
    return None


def java() -> str | None:
    """The java to run, or None."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").is_file():
        return str(Path(home) / "bin" / "java")
    return shutil.which("java")


def cache_libs(version: str = KAFKA_VERSION) -> Path:
    """Where the fetched jars live: outside of every checkout, shared by all of them."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "sharegroup" / f"kafka-{version}" / "libs"


def installed_libs(version: str = KAFKA_VERSION) -> Path | None:
    """The folder of jars if it is there already: KAFKA_HOME's or the cache's.

    KAFKA_HOME stands for `KAFKA_VERSION` alone: it says nothing of other releases.
    """
    home = os.environ.get("KAFKA_HOME") if version == KAFKA_VERSION else None
    libs = Path(home) / "libs" if home else cache_libs(version)
    return libs if any(libs.glob("kafka_2.13-*.jar")) else None


def kafka_libs(version: str = KAFKA_VERSION) -> Path:
    """The folder of Kafka's jars; the first call on a machine fetches them by Maven."""
    return installed_libs(version) or fetch_jars(cache_libs(version), pom_of(version))


def fetch_jars(libs: Path, pom: str) -> Path:
    """What a pom depends on, in the folder ``libs``; fetched by Maven unless it is there.

    Into a folder beside and then renamed, so that a broken fetch leaves nothing.
    """
    with _one_at_a_time(libs.parent):
        if any(libs.glob("*.jar")):
            return libs
        with tempfile.TemporaryDirectory(dir=libs.parent) as folder:
            (Path(folder) / "pom.xml").write_text(pom)
            _run_maven(folder)
            os.rename(Path(folder) / "libs", libs)
    return libs


def _run_maven(folder: str) -> None:
    """Copy what the pom in ``folder`` depends on to its ``libs``.

    A registry may fail for a moment, and Maven remembers that for a day unless told otherwise (-U).
    """
    command = ["mvn", "-q", "-B", "-U", "dependency:copy-dependencies", "-DoutputDirectory=libs"]
    for pause_seconds in (*FETCH_PAUSES_SECONDS, None):
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX
        )
        if done.returncode == 0:
            return
        if pause_seconds is None:
            raise KafkaPeerError(f"mvn failed with {done.returncode}: {done.stdout[-2000:]}")
        time.sleep(pause_seconds)


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Hold a file lock: two test runs that start together fetch once."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on at the moment, all different.

    They lie below the range from which the system takes ports for outgoing connections.  Out
    of that range a client that tries a port before its server listens may be given this very
    port as its own, and then it has connected to itself.
    """
    free: list[int] = []
    for port in random.sample(LISTENING_PORTS, len(LISTENING_PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        free.append(port)
        if len(free) == count:
            return free
    raise KafkaPeerError(f"{count} free ports wanted, {len(free)} found in {LISTENING_PORTS}")


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


class KafkaNode:
    """A process of Apache Kafka over ``folder``; ``port`` on loopback answers when it is up."""

    jvm: tuple[str, ...] = QUICK_JVM

    def __init__(
        self,
        folder: Path,
        properties: Mapping[str, str],
        *,
        port: int,
        heap: str = "1g",
        version: str = KAFKA_VERSION,
    ) -> None:
        self.folder = folder
        self.heap = heap
        self.port = port
        self.version = version
        self.properties = {"log.dirs": str(folder / "data"), **properties}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id of the running node."""
        assert self._process is not None, "the node is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log_path(self) -> Path:
        return self.folder / "kafka.log"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self, *, wait: bool = True) -> None:
        """Start the node; format its folder first if it is new; wait until its port answers."""
        assert self._process is None, "the node is running already"
        if not (self.folder / "data").exists():
            self.format()
        with open(self.log_path, "ab") as log:
            self._process = self._launch(
                self._java("kafka.Kafka", str(self.folder / "server.properties")), log
            )
        if wait:
            try:
                self.wait_until_open()
            except BaseException:
                self.kill()
                raise

    def _launch(self, command: list[str], log: BinaryIO) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait_until_open(self, seconds: float = START_SECONDS_MAX) -> None:
        """Return as soon as the node accepts connections."""
        limit = time.monotonic() + seconds
        while not self._is_open():
            if not self.running:
                raise KafkaPeerError(f"Kafka ended while it started: {self.log_tail()}")
            if time.monotonic() > limit:
                raise KafkaPeerError(f"Kafka is not up after {seconds} s: {self.log_tail()}")
            time.sleep(0.01)

    def stop(self) -> None:
        """Stop the node cleanly (SIGTERM), by force when that takes too long."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        """End the node as ``kill -9`` does; `start` brings it back on the same data."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def log_tail(self) -> str:
        """The last of what the node printed."""
        return self.log_path.read_text(errors="replace")[-3000:] if self.log_path.exists() else ""

    def _is_open(self) -> bool:
        """Whether every listener for clients accepts connections: they open one by one."""
        return all(_accepts(port) for port in self.client_ports)

    @property
    def client_ports(self) -> tuple[int, ...]:
        """The ports of the listeners for clients."""
        return (self.port,)

    def write_settings(self) -> None:
        """Write the files that the process reads when it starts."""
        self.folder.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{key}={value}\n" for key, value in self.properties.items())
        (self.folder / "server.properties").write_text(text)
        (self.folder / "log4j2.xml").write_text(LOG4J)

    def format(self, *options: str) -> None:
        """Prepare an empty data folder, as `start` does for a new one."""
        self.write_settings()
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        # With "=": one id in 64 begins with a dash.
        named = f"--cluster-id={cluster_id}"
        properties = str(self.folder / "server.properties")
        tool = ["kafka.tools.StorageTool", "format", named, "-c", properties, *options]
        done = subprocess.run(
            self._java(*tool), capture_output=True, text=True, timeout=START_SECONDS_MAX
        )
        if done.returncode:
            raise KafkaPeerError(f"formatting failed: {done.stdout}{done.stderr}")

    def _java(self, *arguments: str) -> list[str]:
        executable = java()
        if executable is None:
            raise KafkaPeerError(str(why_missing()))
        return [
            executable,
            f"-Xms{self.heap}",
            f"-Xmx{self.heap}",
            *self.jvm,
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.xml'}",
            "-cp",
            f"{kafka_libs(self.version)}/*",
            *arguments,
        ]


class KafkaPeer(KafkaNode):
    """One node that is a whole cluster; a context manager that starts and stops it."""

    def __init__(
        self,
        folder: Path,
        properties: Mapping[str, str] | None = None,
        *,
        heap: str = "1g",
        version: str = KAFKA_VERSION,
    ) -> None:
        port, controller_port = free_ports(2)
        settings = {
            **SINGLE_NODE,
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            **(properties or {}),
        }
        super().__init__(folder, settings, port=port, heap=heap, version=version)

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"
