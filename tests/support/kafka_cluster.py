"""A cluster of real Apache Kafka nodes beside us, whose network and processes tests can break.

Three combined KRaft nodes on loopback (or three controllers and three brokers), replication
factor 3 and min ISR 2, for internal topics as well.  Every listener stands behind links of a
`tests.support.tcp_proxy.Proxy`.  Between nodes there is a link for each pair: every JVM has a
hosts file of its own, in which the name ``node2`` is the address 127.0.1.2 for node 1 and
127.0.3.2 for node 3, so a link knows who connects.  Clients connect to 127.0.0.1.

    with KafkaCluster(tmp_path) as cluster:
        connect(cluster.bootstrap_servers)
        cluster.kill(cluster.leader_of("orders", 0))
        cluster.isolate(2)                 # clients still reach it
        cluster.heal()

The nodes end with the process that started them, however it ends.  Linux alone has what this
needs: all of 127.0.0.0/8 as loopback, and a signal to the child when the parent dies.

`make cluster` (`tests.support.kafka_cluster_shell`) runs one in the foreground.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, TypeVar
from uuid import UUID, uuid4

from sharegroup.ids import uuid_text
from tests.support import kafka_peer
from tests.support.cluster_security import MutualTls, Security
from tests.support.cluster_views import View, view_of
from tests.support.kafka_peer import KAFKA_VERSION, QUICK_JVM, KafkaNode, KafkaPeerError, free_ports
from tests.support.tcp_proxy import Link, Proxy

NODES = (1, 2, 3)
CONTROLLER_OFFSET = 10
"""Separate controllers are the nodes 11, 12 and 13."""
CLIENTS = 0
"""The place of all clients among the sources of links."""
LISTENERS = ("CLIENT", "BROKER", "CONTROLLER")
WHOLE_SECONDS_MAX = 120.0
LOOK_SECONDS = 0.05
FIND_GROUP, FIND_SHARE = 0, 2

DEFAULTS = {
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "BROKER",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "6",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "share.coordinator.state.topic.num.partitions": "6",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    # A dead broker is noticed soon, and a busy machine does not make one of a living broker.
    "broker.heartbeat.interval.ms": "1000",
    "broker.session.timeout.ms": "6000",
    "replica.lag.time.max.ms": "6000",
    "group.initial.rebalance.delay.ms": "0",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    # Its default takes a third of the heap.
    "log.cleaner.dedupe.buffer.size": "4194304",
}

T = TypeVar("T")


def why_missing() -> str | None:
    """Why there can be no cluster here, or None when there can."""
    if sys.platform != "linux" or shutil.which("setpriv") is None:
        return "no Linux, or no setpriv of util-linux on the PATH"
    return kafka_peer.why_missing()


class KafkaCluster:
    """The nodes and the links between them; a context manager that starts and stops all."""

    def __init__(
        self,
        folder: Path,
        version: str = KAFKA_VERSION,
        properties: Mapping[str, str] | None = None,
        *,
        security: Security | MutualTls | None = None,
        separate_controllers: bool = False,
        release_version: str | None = None,
        heap: str = "400m",
        jvm: tuple[str, ...] = QUICK_JVM,
        proxied: bool = True,
    ) -> None:
        """``release_version`` is that of the features; None: the newest one of ``version``.

        ``proxied`` False: clients connect to the brokers themselves, for measurements.
        """
        self.folder = folder
        self.security = security
        self.nodes = NODES
        """The brokers."""
        self.controllers = tuple(
            node + (CONTROLLER_OFFSET if separate_controllers else 0) for node in NODES
        )
        self._release_version = release_version
        self._proxy = Proxy()
        self._links: dict[tuple[int, int, str], Link] = {}
        """By source, destination and listener; the source `CLIENTS` stands for all clients."""
        self._cut: set[int] = set()
        self._frozen: set[int] = set()
        self._reserved: list[socket.socket] = []
        listeners = self._all_listeners()
        # In one call: the second of two may give a port again.
        ports = free_ports(len(listeners) + len(NODES))
        real, public = ports[: len(listeners)], ports[len(listeners) :]
        self._ports = dict(zip(listeners, real, strict=True))
        self._client_ports = dict(zip(NODES, public, strict=True))
        if not proxied:
            self._client_ports = {node: self._ports[node, "CLIENT"] for node in NODES}
        self._processes = {
            node: _Process(
                self._proxy,
                folder / f"node{node}",
                self._properties(node, properties or {}),
                port=self._ports[node, "CLIENT" if node in NODES else "CONTROLLER"],
                heap=heap,
                jvm=jvm,
                version=version,
            )
            for node in self.all_nodes
        }

    @property
    def all_nodes(self) -> tuple[int, ...]:
        """The brokers and, where they are nodes of their own, the controllers."""
        return tuple(dict.fromkeys((*self.nodes, *self.controllers)))

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers for clients."""
        return ",".join(self.address_of(node) for node in self.nodes)

    def address_of(self, node: int) -> str:
        """The address of one broker for clients."""
        return f"127.0.0.1:{self._client_ports[node]}"

    def log_of(self, node: int) -> Path:
        """What a node printed, over all its starts."""
        return self._processes[node].log_path

    def pid_of(self, node: int) -> int:
        """The process id of a running node."""
        return self._processes[node].pid

    def __enter__(self) -> Self:
        self._proxy.__enter__()
        try:
            self._open_links()
            self._format()
            for process in self._processes.values():
                process.start(wait=False)
            for process in self._processes.values():
                process.wait_until_open()
            self._make_internal_topics()
            self.wait_until_whole()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    # Processes.

    def kill(self, node: int) -> None:
        """End a node as ``kill -9`` does; `start` brings it back on the same data."""
        self._processes[node].kill()
        self._ended(node)

    def stop(self, node: int) -> None:
        """Stop a node cleanly (SIGTERM): it hands over what it leads."""
        self._processes[node].stop()
        self._ended(node)

    def start(self, node: int, *, wait: bool = True, version: str | None = None) -> None:
        """Start a node that was ended, on the same data; ``version``: of another release.

        It answers when this returns, and may not be in sync yet: see `wait_until_whole`.
        """
        process = self._processes[node]
        if version is not None:
            process.version = version
        process.start(wait=wait)

    def freeze(self, node: int) -> None:
        """SIGSTOP: connections are there, new ones are accepted, and nothing answers."""
        os.kill(self._processes[node].pid, signal.SIGSTOP)
        self._frozen.add(node)

    def thaw(self, node: int) -> None:
        """Let a frozen node go on."""
        os.kill(self._processes[node].pid, signal.SIGCONT)
        self._frozen.discard(node)

    def is_running(self, node: int) -> bool:
        """Whether a node has a process, frozen or not."""
        return self._processes[node].running

    def _ended(self, node: int) -> None:
        self._frozen.discard(node)
        for (_, destination, _), link in self._links.items():
            if destination == node:
                link.unlisten()

    # The network.

    def isolate(
        self,
        node: int,
        *others: int,
        outgoing: bool = True,
        incoming: bool = True,
        clients: bool = False,
        reset: bool = False,
    ) -> None:
        """Cut a node from other nodes (all of them, if none is named), until `heal`.

        ``outgoing`` is what the node sends, ``incoming`` what it receives, on connections of
        either side.  New connections between the two wait, whichever direction is cut.
        ``clients``: cut it from clients as well.  ``reset``: reset connections, open and new
        ones, instead of letting bytes wait.
        """
        peers = set(others) or set(self.all_nodes) - {node}
        if clients:
            peers.add(CLIENTS)
        for (source, destination, _), link in self._links.items():
            if source in peers and destination == node:
                link.cut(forward=incoming, backward=outgoing, reset=reset)
            if source == node and destination in peers:
                link.cut(forward=outgoing, backward=incoming, reset=reset)
        self._cut.add(node)

    def heal(self) -> None:
        """Let everything pass again between all nodes and clients."""
        for link in self._links.values():
            link.heal()
        self._cut.clear()

    def mend(self) -> None:
        """Undo every fault: heal, thaw, start what was ended; wait until the cluster is whole."""
        self.heal()
        for node in self.all_nodes:
            if node in self._frozen:
                self.thaw(node)
            if not self.is_running(node):
                self.start(node, wait=False)
        for process in self._processes.values():
            process.wait_until_open()
        self.wait_until_whole()

    # What the cluster says.

    def leader_of(self, topic: str, partition: int) -> int:
        """The node that leads a partition; waits until there is one."""

        def leader() -> int | None:
            found = self.view().topics.get(topic, {}).get(partition)
            return found.leader if found is not None and found.leader in self.nodes else None

        return self.wait_for(leader, f"a leader of {topic}-{partition}")

    def coordinator_of(self, group: str) -> int:
        """The node that coordinates a group; waits until there is one."""
        return self.wait_for(lambda: self._found(FIND_GROUP, group), f"a coordinator of {group}")

    def share_coordinator_of(self, group: str, topic_id: UUID, partition: int) -> int:
        """The node that keeps the share state of a partition; waits until there is one."""
        key = f"{group}:{uuid_text(topic_id)}:{partition}"
        return self.wait_for(lambda: self._found(FIND_SHARE, key), f"a share coordinator of {key}")

    def view(self, node: int | None = None) -> View:
        """What a broker knows: the cluster's brokers, topics, leaders and replicas in sync.

        None asks one that is neither frozen nor cut; clients' cuts do not concern this.
        """
        return self._ask(lambda view: view, node)

    def _found(self, kind: int, key: str) -> int | None:
        found = self._ask(lambda view: view, None, find=(kind, key)).coordinator
        return found if found in self.nodes else None

    def _ask(
        self, read: Callable[[View], T], node: int | None, find: tuple[int, str] | None = None
    ) -> T:
        """Ask brokers until one answers."""
        healthy = [
            broker
            for broker in self.nodes
            if self.is_running(broker) and broker not in self._frozen | self._cut
        ]
        failure: Exception = KafkaPeerError("no broker is running, thawed and connected")
        for asked in healthy if node is None else [node]:
            address = f"127.0.0.1:{self._ports[asked, 'CLIENT']}"
            options = self.security.client_options() if self.security else {}
            try:
                return read(view_of(address, options, find=find))
            except Exception as error:  # noqa: BLE001 - Every kind of error means: ask the next.
                failure = error
        raise KafkaPeerError(f"no broker answered: {failure!r}") from failure

    def wait_for(
        self, read: Callable[[], T | None], name: str, seconds: float = WHOLE_SECONDS_MAX
    ) -> T:
        """The first result of ``read`` that is not None; until then it is called again."""
        limit = time.monotonic() + seconds
        failure: object = None
        while time.monotonic() < limit:
            try:
                found = read()
            except KafkaPeerError as error:
                failure = error
            else:
                if found is not None:
                    return found
            time.sleep(LOOK_SECONDS)
        raise KafkaPeerError(f"{name}: not within {seconds} s; last: {failure}")

    def wait_until_whole(self, seconds: float = WHOLE_SECONDS_MAX) -> None:
        """Wait until all brokers know each other and every replica is in sync."""
        for node in self.nodes:
            self.wait_for(
                lambda node=node: True if self.view(node).is_whole(self.nodes) else None,
                f"a whole cluster, as node {node} sees it",
                seconds,
            )

    # How it is set up.

    def _all_listeners(self) -> list[tuple[int, str]]:
        brokers = [(node, listener) for node in self.nodes for listener in ("CLIENT", "BROKER")]
        return [*brokers, *((node, "CONTROLLER") for node in self.controllers)]

    def _properties(self, node: int, more: Mapping[str, str]) -> dict[str, str]:
        own = [listener for listener in LISTENERS if (node, listener) in self._ports]
        real = {name: f"127.0.0.1:{self._ports[node, name]}" for name in own}
        public = {name: f"node{node}:{self._ports[node, name]}" for name in own}
        if node in self.nodes:
            public["CLIENT"] = self.address_of(node)
        roles = [
            *(["broker"] if node in self.nodes else []),
            *(["controller"] if node in self.controllers else []),
        ]
        protocol = self.security.protocol if self.security else "PLAINTEXT"
        properties = {
            **DEFAULTS,
            "process.roles": ",".join(roles),
            "node.id": str(node),
            "listeners": ",".join(f"{name}://{at}" for name, at in real.items()),
            "advertised.listeners": ",".join(f"{name}://{at}" for name, at in public.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name in LISTENERS),
            "controller.quorum.voters": ",".join(
                f"{other}@node{other}:{self._ports[other, 'CONTROLLER']}"
                for other in self.controllers
            ),
        }
        if node not in self.nodes:
            del properties["inter.broker.listener.name"]
        return properties | (self.security.properties() if self.security else {}) | dict(more)

    def _format(self) -> None:
        """Format one node, as Kafka's tool does, and give the others a copy with their ids."""
        first, *others = (*self.controllers, *(set(self.nodes) - set(self.controllers)))
        options = self.security.format_options() if self.security else []
        if self._release_version is not None:
            options = [*options, "--release-version", self._release_version]
        if self.security is not None:
            self.security.make_certificates(
                self.folder / "certificates", [f"node{node}" for node in self.all_nodes]
            )
            for process in self._processes.values():
                process.properties |= self.security.files()
        # A controller: what its data say of features and passwords becomes the cluster's.
        self._processes[first].format(*options)
        for node in others:
            process = self._processes[node]
            process.write_settings()
            data = process.folder / "data"
            shutil.copytree(self._processes[first].folder / "data", data)
            lines = (data / "meta.properties").read_text().splitlines()
            kept = [line for line in lines if not line.startswith(("node.id", "directory.id"))]
            mine = [f"node.id={node}", f"directory.id={uuid_text(uuid4())}"]
            (data / "meta.properties").write_text("\n".join([*kept, *mine, ""]))

    def _open_links(self) -> None:
        """One link for each pair of nodes and listener, and one for the clients of each broker.

        First of all: from here on nobody else takes the ports.
        """
        for destination, listener in self._all_listeners():
            port = self._ports[destination, listener]
            self._reserved.append(_reserve(port))
            sources = self.nodes if listener == "BROKER" else self.all_nodes
            if listener == "CLIENT":
                sources = (CLIENTS,) if self._client_ports[destination] != port else ()
            for source in sources:
                at = (f"127.0.{source}.{destination}", port)
                if source == CLIENTS:
                    at = ("127.0.0.1", self._client_ports[destination])
                link = self._proxy.link(at, ("127.0.0.1", port))
                self._links[source, destination, listener] = link
        for source in self.all_nodes:
            names = {f"node{node}": f"127.0.{source}.{node}" for node in self.all_nodes}
            names |= {"localhost": "127.0.0.1", socket.gethostname(): "127.0.0.1"}
            text = "".join(f"{address} {name}\n" for name, address in names.items())
            (self.folder / f"node{source}").mkdir(parents=True)
            (self.folder / f"node{source}" / "hosts").write_text(text)

    def _make_internal_topics(self) -> None:
        """Brokers make their internal topics when they are first asked for a coordinator."""
        self.coordinator_of("any")
        self.share_coordinator_of("any", uuid4(), 0)

    def _end(self) -> None:
        for process in self._processes.values():
            process.kill()
        for reserved in self._reserved:
            reserved.close()
        self._proxy.__exit__(None, None, None)


class _Process(KafkaNode):
    """A node whose names are those of its hosts file, and that ends with this process."""

    def __init__(
        self, proxy: Proxy, folder: Path, properties: Mapping[str, str], *, jvm, **more
    ) -> None:
        super().__init__(folder, properties, **more)
        self.jvm = (*jvm, f"-Djdk.net.hosts.file={folder / 'hosts'}")
        self._proxy = proxy

    def _launch(self, command: list[str], log: BinaryIO) -> subprocess.Popen[bytes]:
        """Start it in the proxy's thread: the signal comes when the thread ends that started it.

        A process that asks for the signal after its parent has ended would never get it, so the
        shell checks first that the parent is still this process.
        """
        is_child = 'test "$PPID" = "$0" && exec "$@"'
        guarded = ["setpriv", "--pdeathsig", "KILL", "sh", "-c", is_child, str(os.getpid())]
        guarded += command
        launch = super()._launch
        return self._proxy.run(lambda: launch(guarded, log))

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
        super().stop()


def _reserve(port: int) -> socket.socket:
    """Keep a port from others while its node is down; the node itself can listen on it."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", port))
    return reserved
