"""Queues of another kind, where they are installed: RabbitMQ, NATS JetStream, Redis streams.

Each is the server of the machine's own package (``rabbitmq-server``, ``nats-server``,
``redis-server``), started here on loopback over a folder of its own and stopped by its process id;
nothing is installed.  Of their Python clients `pika`, `nats-py` and `redis` the same holds.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import psutil

from tests.bench.failure import BenchError
from tests.bench.peers.brokers import NATS, RABBITMQ, REDIS, Broker, watched
from tests.support.kafka_peer import free_ports

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 20.0
LOG_TAIL_BYTES = 2_000
# Debian's script on the PATH asks for another user; the one that it calls does not.
SEARCHED = os.pathsep.join(("/usr/lib/rabbitmq/bin", os.environ.get("PATH", ""), "/usr/sbin"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One of the servers and the Python client that goes with it."""

    server: str
    client: str
    package: str
    durability: str
    process: str
    """The name of the process that does the work, which the server's command may only start."""


KINDS = {
    RABBITMQ: Kind(
        server="rabbitmq-server",
        client="pika",
        package="pika",
        durability="durable queue, persistent messages",
        process="beam.smp",
    ),
    NATS: Kind(
        server="nats-server",
        client="nats",
        package="nats-py",
        durability="JetStream in files, synced every two minutes (its default)",
        process="nats-server",
    ),
    REDIS: Kind(
        server="redis-server",
        client="redis",
        package="redis",
        durability="append-only file, synced every second (its default)",
        process="redis-server",
    ),
}


def why_missing(name: str) -> str | None:
    """Why this peer can't take part here, or None when it can."""
    kind = KINDS[name]
    if shutil.which(kind.server, path=SEARCHED) is None:
        return f"no {kind.server} is installed"
    if find_spec(kind.client) is None:
        return f"Python has no {kind.client}: pip install '.[peers]'"
    return None


def versions() -> dict[str, str]:
    """Of the servers and clients that are installed, for the head of the report."""
    found = {}
    for name, kind in KINDS.items():
        server = shutil.which(kind.server, path=SEARCHED)
        if server is None or why_missing(name) is not None:
            continue
        if name == RABBITMQ:  # Asking it would start a virtual machine; its folder says it too.
            folders = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*"))
            said = folders[-1].name if folders else "unknown"
        else:
            asked = [server, "--version"]
            said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        digits = re.search(r"[0-9]+(\.[0-9]+)+", said)
        shown = digits[0] if digits else said
        found[name] = f"{shown}, {kind.package} {version(kind.package)}"
    return found


class Queue:
    """One server that is awake while it is measured, and not there otherwise."""

    ours = False

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.durability = KINDS[name].durability
        self.company = ExitStack()
        self.peak_pss_mib: float | None = None
        self._server = Server(name, folder / name)

    @property
    def data(self) -> Path:
        return self._server.data

    @contextmanager
    def awake(self) -> Iterator[Broker]:
        self._server.start()
        try:
            with watched(self, self._server.pid):
                yield self._server
        finally:
            self._server.stop()

    def spare(self) -> Broker:
        raise BenchError(f"{self.name} takes no part in what needs a second broker")

    def syncs(self) -> int | None:
        return None

    def end(self) -> None:
        self.company.close()
        self._server.kill9()


class Server:
    """The process, by the names that brokers have."""

    def __init__(self, name: str, data: Path) -> None:
        self.data = data
        self.port, *self._others = free_ports(3)
        self._name = name
        self._kind = KINDS[name]
        self._process: subprocess.Popen[bytes] | None = None
        self._family: list[psutil.Process] = []

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of the process that does the work."""
        for process in self._family:
            if process.name() == self._kind.process:
                return process.pid
        raise BenchError(f"no process {self._kind.process} of {self._name}: {self._log_tail()}")

    def start(self, *, wait: bool = True) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        command, environment = self._command()
        if self._name == RABBITMQ:
            self._start_port_mapper()
        with open(self._log_path, "ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.data,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        if wait:
            try:
                wait_until_open(self.port, self._process, START_SECONDS_MAX)
            except BenchError as error:
                self.stop()
                raise BenchError(f"{self._name}: {error}: {self._log_tail()}") from None
            root = psutil.Process(self._process.pid)
            self._family += [root, *root.children(recursive=True)]

    def stop(self) -> None:
        """End everything that was started, the last started first."""
        if self._process is None:
            return
        family = [*self._family, psutil.Process(self._process.pid)]
        for process in reversed(family):
            if process.is_running():
                process.send_signal(signal.SIGTERM)
        _, left = psutil.wait_procs(family, STOP_SECONDS_MAX)
        for process in left:
            process.kill()
        self._process.wait()
        self._process, self._family = None, []

    def kill9(self) -> None:
        self.stop()

    def _start_port_mapper(self) -> None:
        """Erlang starts its port mapper as a daemon that nobody ends; ours is a child."""
        mapper = shutil.which("epmd", path=SEARCHED)
        if mapper is None:
            raise BenchError("no epmd is installed, and RabbitMQ needs it")
        asked = [mapper, "-port", str(self._others[0]), "-address", "127.0.0.1"]
        quiet = subprocess.DEVNULL
        process = psutil.Popen(asked, stdin=quiet, stdout=quiet, stderr=quiet)
        self._family = [process]
        wait_until_open(self._others[0], process, START_SECONDS_MAX)

    def _command(self) -> tuple[Sequence[str], Mapping[str, str]]:
        server = shutil.which(self._kind.server, path=SEARCHED)
        if server is None:
            raise BenchError(str(why_missing(self._name)))
        port, data = str(self.port), str(self.data.absolute())
        if self._name == NATS:
            return (server, "-js", "-a", "127.0.0.1", "-p", port, "-sd", data), {}
        if self._name == REDIS:
            flags = ("--bind", "127.0.0.1", "--dir", data, "--appendonly", "yes", "--save", "")
            return (server, "--port", port, *flags), {}
        epmd_port, dist_port = (str(other) for other in self._others)
        return (server,), {
            "HOME": data,  # Where Erlang keeps what its nodes know each other by.
            "RABBITMQ_NODENAME": f"bench{port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": port,
            "RABBITMQ_DIST_PORT": dist_port,
            "ERL_EPMD_PORT": epmd_port,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_MNESIA_BASE": data,
            "RABBITMQ_LOG_BASE": data,
            "RABBITMQ_PID_FILE": f"{data}/pid",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{data}/enabled_plugins",
            "RABBITMQ_CONFIG_FILE": f"{data}/rabbitmq",
        }

    @property
    def _log_path(self) -> Path:
        return self.data.with_name(self.data.name + ".log")

    def _log_tail(self) -> str:
        return self._log_path.read_text(errors="replace")[-LOG_TAIL_BYTES:]


def wait_until_open(port: int, process: subprocess.Popen[bytes], seconds: float) -> None:
    """Return as soon as the process accepts connections on its port."""
    limit = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > limit:
                raise BenchError(f"nothing listens on port {port}") from None
            time.sleep(0.05)
        else:
            return
