"""A client's connections to the brokers of its cluster.

A client asks any of the bootstrap servers first, and then sends requests to nodes.  A connection is
opened when it is first needed and again after a failure.  There is one attempt at a time for each
node, with growing pauses.  Each node has a connection for each purpose, because a broker answers
the requests of a connection in order: a heartbeat must not wait behind a parked fetch.

For each question that any broker can answer, the brokers are asked in turn, because one of them may
lag behind the cluster.  Brokers that did not answer at the last attempt come last for a while.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from sharegroup.backoff import Backoff, Pause
from sharegroup.client.metrics.client_metrics import ConnectionMetrics, RequestMetrics, node_group
from sharegroup.client.metrics.metric_types import Metrics
from sharegroup.client.net.connection import Connection
from sharegroup.client.net.sasl import warn_of_plaintext
from sharegroup.client.settings.client_config import ClientConfig, addresses_of
from sharegroup.client.settings.option_values import DnsLookup, MetadataRecovery
from sharegroup.client.together import together
from sharegroup.errors import (
    AdvertisedNote,
    InvalidConfig,
    KafkaError,
    LeaderNotAvailable,
    NetworkException,
    NoAnswer,
    RequestTimedOut,
    TlsHandshakeFailed,
)

log = logging.getLogger(__name__)

CONNECTION_ERRORS = (NetworkException, RequestTimedOut, TlsHandshakeFailed)
DOUBT_SECONDS = 60.0
"""How long a broker that did not answer is asked after all others."""

Address = tuple[str, int]
Connect = Callable[..., Awaitable[Connection]]
"""A function with the arguments of `open_connection`."""
GetAddresses = Callable[..., Awaitable[list[Any]]]
GetName = Callable[..., Awaitable[tuple[str, str]]]


class ConnectionPurpose(Enum):
    """The purpose of a connection; each node has one connection per purpose."""

    CONTROL = "control"
    """Metadata, heartbeats, administration: short requests."""
    RECORDS = "records"
    """Produce and fetch: large or parked requests."""
    GROUP = "group"
    """Joining a classic consumer group: parked until all members have joined."""
    SHARE_OFFSETS = "share offsets"
    """Offsets of share groups: Kafka's coordinator asks other brokers before it answers.

    If one of them has died, it tries for 15 s and longer."""


class Doubt(NamedTuple):
    """Why a broker may not answer, and since when."""

    since: float
    reason: str


class Reachability(NamedTuple):
    """Which brokers a client reaches, as of its last attempts."""

    is_connected: bool
    """Whether a connection is open to any broker."""
    lost: Mapping[str, str]
    """The error of each broker that could not be reached or did not answer, by its address."""


class Connections:
    """The connections of one client, by address and purpose, and what it knows of the addresses."""

    def __init__(
        self,
        config: ClientConfig,
        metrics: Metrics,
        *,
        connect: Connect,
        monotonic: Callable[[], float],
    ) -> None:
        self.nodes: dict[int, Address] = {}
        """The brokers by node id, as of the last metadata."""
        self.is_closed = False
        self._config = config
        self._connect_to = connect
        self._monotonic = monotonic
        self._metrics = metrics
        self._connection_metrics = ConnectionMetrics(metrics, config.metrics_group)
        self._node_metrics: dict[int, RequestMetrics] = {}
        """The metrics of each node of the last metadata; -1: of servers that are no nodes."""
        self._tls = tls_context(config)
        self._bootstrap = addresses_of(config.bootstrap_servers)
        self._by_purpose: dict[tuple[Address, ConnectionPurpose], Connection] = {}
        self._opening: dict[tuple[Address, ConnectionPurpose], asyncio.Lock] = {}
        self._pauses: dict[Address, Pause] = {}
        self._asks: dict[tuple[str, Address], int] = {}
        """When a broker was last asked a question that any broker can answer: its number in the
        order of such requests, by the name of the question."""
        self._doubtful: dict[Address, Doubt] = {}
        """Brokers that could not be reached, or did not answer in time, at the last attempt."""
        self._is_resolved = False
        """Whether the names of the bootstrap servers were replaced by canonical ones."""
        self._warned = False
        """Whether the warning about unencrypted credentials was logged."""

    async def connection(
        self, node_id: int, purpose: ConnectionPurpose = ConnectionPurpose.CONTROL
    ) -> Connection:
        """Return the open connection to this node; open it if necessary.

        Raises NetworkException if the node cannot be reached.
        """
        address = self.nodes.get(node_id)
        if address is None:
            raise LeaderNotAvailable(f"node {node_id} is not among the brokers {self.nodes}")
        return await self._connect(address, purpose)

    async def any_connection(self, *, in_turn: str | None = None) -> Connection:
        """Return a connection to a broker that answers, or raise NetworkException.

        ``in_turn`` names a question that any broker can answer.  For each question the brokers are
        asked in turn, because one may lag behind the cluster, or be cut off from it, and answer all
        the same.  One order for all questions would not do: two that alternate would each meet the
        same brokers again and again.
        """
        _, connection = await self._any_connection(in_turn)
        return connection

    async def _any_connection(self, in_turn: str | None) -> tuple[Address, Connection]:
        # Each once: a bootstrap server is usually a node of the metadata, too.
        addresses = [*dict.fromkeys((*self.nodes.values(), *await self._bootstrap_addresses()))]
        # Otherwise all new clients would begin with the first bootstrap server.  Kafka's
        # `NetworkClient.leastLoadedNode` begins at a random node, too.
        if not any(self._is_open(candidate, ConnectionPurpose.CONTROL) for candidate in addresses):
            random.shuffle(addresses)
        failures = []
        for address in sorted(
            addresses, key=lambda candidate: self._reluctance(candidate, in_turn)
        ):
            try:
                connection = await self._connect(address, ConnectionPurpose.CONTROL)
            # Not a refused login or certificate: these come from the settings, with which every
            # other broker would refuse this client, too.
            except (NetworkException, RequestTimedOut) as error:
                failures.append(str(error))
            else:
                if in_turn is not None:
                    self._asks[in_turn, address] = max(self._asks.values(), default=0) + 1
                return address, connection
        raise NetworkException("no broker can be reached: " + "; ".join(failures))

    async def _bootstrap_addresses(self) -> tuple[Address, ...]:
        """Return the bootstrap servers, unless the brokers of the metadata are to be used alone."""
        if self.nodes and self._config.metadata_recovery_strategy is MetadataRecovery.NONE:
            return ()
        canonical = DnsLookup.RESOLVE_CANONICAL_BOOTSTRAP_SERVERS_ONLY
        if self._config.client_dns_lookup is canonical and not self._is_resolved:
            self._bootstrap = await canonical_addresses(self._bootstrap)
            self._is_resolved = True
        return self._bootstrap

    async def ask_in_turn(self, request: Any) -> Any:
        """Send a request that any broker can answer to the broker whose turn it is."""
        address, connection = await self._any_connection(type(request).__name__)
        try:
            response = await connection.request(request)
        except NoAnswer as error:
            self._doubtful[address] = Doubt(self._monotonic(), str(error))
            raise
        self._doubtful.pop(address, None)
        return response

    def _is_open(self, address: Address, purpose: ConnectionPurpose) -> bool:
        connection = self._by_purpose.get((address, purpose))
        return connection is not None and connection.is_open

    def _reluctance(self, address: Address, in_turn: str | None) -> tuple[bool, int, bool]:
        """Return the rank of an address; the lowest is tried first.

        Brokers in doubt are last for `DOUBT_SECONDS`, because they can cost the whole connect
        timeout.  Then they are tried again: the others may be the ones that are cut off.
        """
        last_asked = self._asks.get((in_turn, address), 0) if in_turn is not None else 0
        is_open = self._is_open(address, ConnectionPurpose.CONTROL)
        doubt = self._doubtful.get(address)
        is_avoided = doubt is not None and self._monotonic() - doubt.since < DOUBT_SECONDS
        return is_avoided, last_asked, not is_open

    def doubt(self, node_id: int) -> None:
        """Mark a broker that did not answer in time as doubtful, until it answers or connects.

        The caller has closed the connection.
        """
        address = self.nodes.get(node_id)
        if address is not None:
            self._doubtful[address] = Doubt(self._monotonic(), "no answer in time")

    def is_doubtful(self, node_id: int) -> bool:
        """Whether a broker could not be reached, or did not answer, at the last attempt."""
        address = self.nodes.get(node_id)
        return address in self._doubtful and not self._is_open(address, ConnectionPurpose.RECORDS)

    def is_connected_to(self, node_id: int) -> bool:
        """Whether the connection for short requests to this node is open."""
        address = self.nodes.get(node_id)
        return address is not None and self._is_open(address, ConnectionPurpose.CONTROL)

    def reachability(self) -> Reachability:
        """Return which brokers this client reached at the last attempts; nothing is sent."""
        # A bootstrap server counts only while it is all that is known: it may be another name of a
        # node, and is not tried again while nodes answer.
        addresses = self.nodes.values() or self._bootstrap
        return Reachability(
            any(connection.is_open for connection in self._by_purpose.values()),
            {
                f"{address[0]}:{address[1]}": self._doubtful[address].reason
                for address in addresses
                if address in self._doubtful
            },
        )

    async def _connect(self, address: Address, purpose: ConnectionPurpose) -> Connection:
        key = (address, purpose)
        async with self._opening.setdefault(key, asyncio.Lock()):
            # Looked at under the lock: callers that waited here while `close` ran must not connect
            # again.
            if self.is_closed:
                raise NetworkException("this client is closed")
            open_already = self._by_purpose.get(key)
            if open_already is not None and open_already.is_open:
                return open_already
            # By address, not by purpose: a broker that is down refuses all of its connections
            # alike.
            pause = self._pauses.setdefault(address, self._reconnect_pause())
            # Under the lock, so that all callers that want this connection share one attempt.
            await asyncio.sleep(pause.remaining_seconds())
            if not self._warned:
                self._warned = warn_of_plaintext(self._config, address)
            connection = await self._opened(address, pause)
            if pause.failures:
                log.info("event=connection.restored broker=%s", connection.peer)
            pause.worked()
            self._doubtful.pop(address, None)
            # `close` ran during the attempt and could not see this connection.
            if self.is_closed:
                connection.close()
            self._by_purpose[key] = connection
            return connection

    async def _opened(self, address: Address, pause: Pause) -> Connection:
        """Open a connection; a failure lengthens the pause before the next attempt."""
        try:
            return await self._connect_to(
                address,
                self._config,
                metrics=self._connection_metrics,
                node_metrics=self._metrics_of(address),
                tls=self._tls,
            )
        except asyncio.CancelledError as error:
            # `retrying` tells it, if its time was too short for the first attempt.
            note = AdvertisedNote if (origin := self._origin_of(address)) else str
            error.add_note(note(f"broker {address[0]}:{address[1]}: no connection yet{origin}"))
            raise
        except KafkaError as error:
            origin = self._origin_of(address)
            if origin and not pause.failures:
                log.warning('event=node.unreachable error="%s%s"', error, origin)
            elif error.retriable and not pause.failures:
                # Logged once: later attempts fail for the same reason.
                log.info('event=connection.failed error="%s"', error)
            pause.failed()
            if error.retriable:
                self._doubtful[address] = Doubt(self._monotonic(), str(error))
            # Any other error, for example of a login, shows that this address was reached.
            if origin and type(error) in CONNECTION_ERRORS:
                unreached = type(error)(f"{error}{origin}")
                unreached.is_of_advertised = True
                raise unreached from error
            raise

    def _origin_of(self, address: Address) -> str:
        """Return where an address comes from that was never reached; "" for any other.

        Common with containers: the bootstrap server answers, and names what is not reachable.
        """
        node_id = self._node_at(address)
        was_reached = any(address == open_address for open_address, _ in self._by_purpose)
        if node_id < 0 or was_reached or address in self._bootstrap or self.is_closed:
            return ""
        servers = ", ".join(f"{host}:{port}" for host, port in self._bootstrap)
        return (
            f"; node {node_id} advertises this address, as the metadata of the bootstrap servers "
            f"({servers}) says, and no connection to it has succeeded: start that broker, or set "
            "its advertised.listeners to an address that clients can reach"
        )

    def _node_at(self, address: Address) -> int:
        """Return the id of the node with this address; -1 if it is not known as a node."""
        return next((node_id for node_id, other in self.nodes.items() if other == address), -1)

    def _metrics_of(self, address: Address) -> RequestMetrics:
        """Return the metrics of a node; a server that is not known as a node is ``node--1``."""
        node_id = self._node_at(address)
        known_metrics = self._node_metrics.get(node_id)
        if known_metrics is None:
            group = node_group(self._config.metrics_group, f"node-{node_id}")
            known_metrics = self._node_metrics[node_id] = RequestMetrics(self._metrics, group)
        return known_metrics

    async def finish(self) -> None:
        """Wait until the brokers have all that was sent to them and is not answered.

        No request may be sent any more.
        """
        open_ones = list(self._by_purpose.values())
        await together(connection.finish() for connection in open_ones)

    def close(self) -> None:
        """Close every connection; pending requests fail with NetworkException."""
        self.is_closed = True
        for connection in self._by_purpose.values():
            connection.close()
        self._by_purpose.clear()

    def _reconnect_pause(self) -> Pause:
        first_ms, longest_ms = (
            self._config.reconnect_backoff_ms,
            self._config.reconnect_backoff_max_ms,
        )
        return Pause(Backoff(first_ms, longest_ms, chance=random.random), self._monotonic)

    def forget_addresses(self) -> None:
        """Drop the state of addresses that are not in use, so that it cannot grow for ever."""
        in_use = {*self.nodes.values(), *self._bootstrap}
        for key, connection in list(self._by_purpose.items()):
            if key[0] not in in_use and not connection.is_open:
                del self._by_purpose[key]
        for node_id in self._node_metrics.keys() - self.nodes.keys() - {-1}:
            del self._node_metrics[node_id]
            self._metrics.remove_group(node_group(self._config.metrics_group, f"node-{node_id}"))
        alive = in_use | {address for address, _ in self._by_purpose}
        self._doubtful = {key: at for key, at in self._doubtful.items() if key in alive}
        self._asks = {ask: number for ask, number in self._asks.items() if ask[1] in alive}
        # A locked entry belongs to an attempt under way, whose waiters share that lock.
        for key, lock in list(self._opening.items()):
            if key[0] not in alive and not lock.locked():
                del self._opening[key]
                self._pauses.pop(key[0], None)


def tls_context(config: ClientConfig) -> ssl.SSLContext | None:
    """Return the TLS context for all connections of a client; None without encryption."""
    if not config.uses_tls:
        return None
    if config.ssl_context is not None:
        return config.ssl_context
    try:
        context = ssl.create_default_context(cafile=config.ssl_cafile)
    except OSError as error:
        raise InvalidConfig(f"ssl_cafile={config.ssl_cafile!r}: {error}") from error
    context.check_hostname = config.ssl_check_hostname
    if config.ssl_certfile is not None:
        # Always pass a password: otherwise OpenSSL would ask for one on the terminal, and block.
        password = config.ssl_password or ""
        try:
            context.load_cert_chain(config.ssl_certfile, config.ssl_keyfile, lambda: password)
        except (OSError, ValueError) as error:
            files = f"ssl_certfile={config.ssl_certfile!r}, ssl_keyfile={config.ssl_keyfile!r}"
            hint = "" if config.ssl_password else " (if the key is encrypted: ssl_password)"
            raise InvalidConfig(f"{files}: {error}{hint}") from error
    return context


async def canonical_addresses(
    servers: Iterable[Address],
    *,
    get_addresses: GetAddresses | None = None,
    get_name: GetName | None = None,
) -> tuple[Address, ...]:
    """Return each address of each server by its canonical name, as reverse DNS has it.

    A server whose name cannot be resolved now stays as it is, and connecting to it says why.
    """
    loop = asyncio.get_running_loop()
    get_addresses, get_name = get_addresses or loop.getaddrinfo, get_name or loop.getnameinfo
    addresses: dict[Address, None] = {}
    for host, port in servers:
        try:
            for *_, socket_address in await get_addresses(host, port, type=socket.SOCK_STREAM):
                name, _ = await get_name(socket_address)  # type: ignore[arg-type]  # TCP has these.
                addresses[name, port] = None
        except OSError as error:
            log.info('event=dns.failed host=%s error="%s"', host, error)
            addresses[host, port] = None
    return tuple(addresses)
