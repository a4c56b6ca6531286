"""A client's metadata of the cluster, and its connections to the brokers.

A client asks any of the bootstrap servers for metadata.  Then it sends requests to nodes: the
leader of a partition, the coordinator of a group, or any node that answers.  All metadata may be
outdated.  A node says so (NOT_LEADER_OR_FOLLOWER, NOT_COORDINATOR) or cannot be reached, and the
caller invokes `forget_coordinator`, `outdate` or `outdate_leader`.  The next use asks again.  For
each question the brokers are asked in turn, because one of them may lag behind the cluster.

A topic stays usable while some of its partitions have no leader: only the records of those
partitions wait.

A connection is opened when it is first needed and again after a failure.  There is one attempt at
a time for each node, with growing pauses.  Each node has a connection for each purpose, because a
broker answers the requests of a connection in order: a heartbeat must not wait behind a parked
fetch.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import Any, TypeVar

from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v6.response import FindCoordinatorResponse
from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v13.response import MetadataResponse, MetadataResponseTopic
from kio.schema.types import TopicName as KioTopicName
from kio.static.primitive import i8

from sharegroup.backoff import Backoff, Pause
from sharegroup.client.metrics.client_metrics import ConnectionMetrics, RequestMetrics, node_group
from sharegroup.client.metrics.metric_types import Metrics
from sharegroup.client.net.connection import Connection, open_connection
from sharegroup.client.net.dns import canonical_addresses
from sharegroup.client.net.refusals import refused, topic_refusal
from sharegroup.client.net.sasl import warn_of_plaintext
from sharegroup.client.net.tls import tls_context
from sharegroup.client.records import TopicPartition
from sharegroup.client.settings.client_config import ClientConfig, addresses_of
from sharegroup.client.settings.option_values import DnsLookup, MetadataRecovery
from sharegroup.client.together import together
from sharegroup.errors import (
    NONE,
    AdvertisedNote,
    CoordinatorNotAvailable,
    KafkaError,
    LeaderNotAvailable,
    NetworkException,
    NoAnswer,
    RebootstrapRequired,
    RequestTimedOut,
    TlsHandshakeFailed,
    UnknownTopicOrPartition,
)
from sharegroup.ids import TopicId, TopicName

CONNECTION_ERRORS = (NetworkException, RequestTimedOut, TlsHandshakeFailed)
COORDINATORS_MAX = 10_000
"""Number of groups and transactional ids whose coordinators are remembered, the newest ones."""
NO_LEADER = NO_EPOCH = -1
TOPICS_MAX = 100_000
"""Number of topics whose metadata is remembered; of more, outdated ones are forgotten."""
FORMER_IDS_MAX = 1_000
"""Number of topic ids kept of topics that were deleted or have a new id, to find their names."""

log = logging.getLogger(__name__)

T = TypeVar("T")
Address = tuple[str, int]
DOUBT_SECONDS = 60.0
"""How long a broker that did not answer is asked after all others."""

Connect = Callable[..., Awaitable[Connection]]
"""A function with the arguments of `open_connection`."""


_call_deadline: ContextVar[float | None] = ContextVar("call_deadline", default=None)
"""The end of the current call of an AdminClient, by the cluster's clock; None: no own timeout.

A context variable, because a call passes through many functions to the retries that need it.
"""


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


class CoordinatorType(IntEnum):
    """What a coordinator coordinates; values as in FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1

    @property
    def resource(self) -> str:
        """The kind of resource that has such a coordinator, as errors name it."""
        return "group" if self is CoordinatorType.GROUP else "transactional_id"


@dataclass(frozen=True, slots=True)
class Topic:
    """The metadata of one topic; ``leaders`` has a node id, or -1, for each partition."""

    name: TopicName
    topic_id: TopicId | None
    """None from a broker that is too old to have topic ids."""
    leaders: tuple[int, ...]
    is_internal: bool = False
    leader_epochs: tuple[int, ...] = ()
    """The leader epoch of each partition; NO_EPOCH from a broker that is too old to send it."""

    def leader_of(self, partition: int) -> int:
        """Return the leader's node id, or NO_LEADER if there is no leader or no such partition."""
        return self.leaders[partition] if 0 <= partition < len(self.leaders) else NO_LEADER

    def leader_epoch_of(self, partition: int) -> int:
        """Return the leader epoch, or NO_EPOCH if it is unknown or there is no such partition."""
        epochs = self.leader_epochs
        return epochs[partition] if 0 <= partition < len(epochs) else NO_EPOCH


class Cluster:
    """The brokers, topics, leaders and coordinators that a client knows, and its connections.

    ``connect`` opens a connection, and ``monotonic`` is a clock in seconds; tests replace them.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        connect: Connect = open_connection,
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        self.config = config
        self._connect_to = connect
        # Looked up now, not when the module is imported: simulations replace it.
        self._monotonic = monotonic or time.monotonic
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.metrics = Metrics(config.client_id)
        """The metrics of the client, including those of its connections."""
        self._connection_metrics = ConnectionMetrics(self.metrics, config.metrics_group)
        self._node_metrics: dict[int, RequestMetrics] = {}
        """The metrics of each node of the last metadata; -1: of servers that are no nodes."""
        self._tls = tls_context(config)
        self._bootstrap = addresses_of(config.bootstrap_servers)
        self._nodes: dict[int, Address] = {}
        self._connections: dict[tuple[Address, ConnectionPurpose], Connection] = {}
        self._opening: dict[tuple[Address, ConnectionPurpose], asyncio.Lock] = {}
        self._pauses: dict[Address, Pause] = {}
        self._topics: dict[str, Topic] = {}
        self._names: dict[TopicId, TopicName] = {}
        self._asked_at: dict[str, float] = {}
        self._leaderless: dict[str, Pause] = {}
        """The pause before the next metadata request, by topic with leaderless partitions."""
        self._asks: dict[tuple[str, Address], int] = {}
        """When a broker was last asked a question that any broker can answer: its number in the
        order of such requests, by the name of the question."""
        self._doubtful: dict[Address, float] = {}
        """Brokers that could not be reached, or did not answer in time, at the last attempt, and
        when that was."""
        self._coordinators: dict[tuple[CoordinatorType, str], int] = {}
        self._is_resolved = False
        """Whether the names of the bootstrap servers were replaced by canonical ones."""
        self._closed = False
        self._warned = False
        """Whether the warning about unencrypted credentials was logged."""

    @property
    def principal(self) -> str | None:
        """The user as ACLs name it (``User:name``); None if only the broker knows the name."""
        return self.config.principal

    # Connections.

    @property
    def nodes(self) -> dict[int, Address]:
        """The brokers by node id, as of the last metadata."""
        return dict(self._nodes)

    async def connection(
        self, node_id: int, purpose: ConnectionPurpose = ConnectionPurpose.CONTROL
    ) -> Connection:
        """Return the open connection to this node; open it if necessary.

        Raises NetworkException if the node cannot be reached.
        """
        address = self._nodes.get(node_id)
        if address is None:
            raise LeaderNotAvailable(f"node {node_id} is not among the brokers {self._nodes}")
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
        addresses = [*dict.fromkeys((*self._nodes.values(), *await self._bootstrap_addresses()))]
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
        if self._nodes and self.config.metadata_recovery_strategy is MetadataRecovery.NONE:
            return ()
        canonical = DnsLookup.RESOLVE_CANONICAL_BOOTSTRAP_SERVERS_ONLY
        if self.config.client_dns_lookup is canonical and not self._is_resolved:
            self._bootstrap = await canonical_addresses(self._bootstrap)
            self._is_resolved = True
        return self._bootstrap

    async def _ask_in_turn(self, request: Any) -> Any:
        """Send a request that any broker can answer to the broker whose turn it is."""
        address, connection = await self._any_connection(type(request).__name__)
        try:
            response = await connection.request(request)
        except NoAnswer:
            self._doubtful[address] = self._monotonic()
            raise
        self._doubtful.pop(address, None)
        return response

    def _is_open(self, address: Address, purpose: ConnectionPurpose) -> bool:
        connection = self._connections.get((address, purpose))
        return connection is not None and connection.is_open

    def _reluctance(self, address: Address, in_turn: str | None) -> tuple[bool, int, bool]:
        """Return the rank of an address; the lowest is tried first.

        Brokers in doubt are last for `DOUBT_SECONDS`, because they can cost the whole connect
        timeout.  Then they are tried again: the others may be the ones that are cut off.
        """
        last_asked = self._asks.get((in_turn, address), 0) if in_turn is not None else 0
        is_open = self._is_open(address, ConnectionPurpose.CONTROL)
        doubted_at = self._doubtful.get(address)
        is_avoided = doubted_at is not None and self._monotonic() - doubted_at < DOUBT_SECONDS
        return is_avoided, last_asked, not is_open

    def doubt(self, node_id: int) -> None:
        """Mark a broker that did not answer in time as doubtful, until it answers or connects.

        The caller has closed the connection.
        """
        address = self._nodes.get(node_id)
        if address is not None:
            self._doubtful[address] = self._monotonic()

    def is_doubtful(self, node_id: int) -> bool:
        """Whether a broker could not be reached, or did not answer, at the last attempt."""
        address = self._nodes.get(node_id)
        return address in self._doubtful and not self._is_open(address, ConnectionPurpose.RECORDS)

    def answering_leaders(self, topic: Topic) -> tuple[int, ...]:
        """Return the leader of each partition, with NO_LEADER in place of doubtful brokers."""
        return tuple(NO_LEADER if self.is_doubtful(leader) else leader for leader in topic.leaders)

    async def _connect(self, address: Address, purpose: ConnectionPurpose) -> Connection:
        key = (address, purpose)
        async with self._opening.setdefault(key, asyncio.Lock()):
            # Looked at under the lock: callers that waited here while `close` ran must not connect
            # again.
            if self._closed:
                raise NetworkException("this client is closed")
            open_already = self._connections.get(key)
            if open_already is not None and open_already.is_open:
                return open_already
            # By address, not by purpose: a broker that is down refuses all of its connections
            # alike.
            pause = self._pauses.setdefault(address, self._reconnect_pause())
            # Under the lock, so that all callers that want this connection share one attempt.
            await asyncio.sleep(pause.remaining_seconds())
            if not self._warned:
                self._warned = warn_of_plaintext(self.config, address)
            try:
                connection = await self._connect_to(
                    address,
                    self.config,
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
                    self._doubtful[address] = self._monotonic()
                # Any other error, for example of a login, shows that this address was reached.
                if origin and type(error) in CONNECTION_ERRORS:
                    unreached = type(error)(f"{error}{origin}")
                    unreached.is_of_advertised = True
                    raise unreached from error
                raise
            if pause.failures:
                log.info("event=connection.restored broker=%s", connection.peer)
            pause.worked()
            self._doubtful.pop(address, None)
            # `close` ran during the attempt and could not see this connection.
            if self._closed:
                connection.close()
            self._connections[key] = connection
            return connection

    def _origin_of(self, address: Address) -> str:
        """Return where an address comes from that was never reached; "" for any other.

        Common with containers: the bootstrap server answers, and names what is not reachable.
        """
        node_id = self._node_at(address)
        was_reached = any(address == open_address for open_address, _ in self._connections)
        if node_id < 0 or was_reached or address in self._bootstrap or self._closed:
            return ""
        servers = ", ".join(f"{host}:{port}" for host, port in self._bootstrap)
        return (
            f"; node {node_id} advertises this address, as the metadata of the bootstrap servers "
            f"({servers}) says, and no connection to it has succeeded: start that broker, or set "
            "its advertised.listeners to an address that clients can reach"
        )

    def _node_at(self, address: Address) -> int:
        """Return the id of the node with this address; -1 if it is not known as a node."""
        return next(
            (node_id for node_id, other in self._nodes.items() if other == address),
            -1,
        )

    def _metrics_of(self, address: Address) -> RequestMetrics:
        """Return the metrics of a node; a server that is not known as a node is ``node--1``."""
        node_id = self._node_at(address)
        known_metrics = self._node_metrics.get(node_id)
        if known_metrics is None:
            group = node_group(self.config.metrics_group, f"node-{node_id}")
            known_metrics = self._node_metrics[node_id] = RequestMetrics(self.metrics, group)
        return known_metrics

    async def finish(self) -> None:
        """Wait until the brokers have all that was sent to them and is not answered.

        No request may be sent any more.
        """
        open_ones = list(self._connections.values())
        await together(connection.finish() for connection in open_ones)

    def close(self) -> None:
        """Close every connection; pending requests fail with NetworkException."""
        self._closed = True
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # Retries.

    def _new_pause(self) -> Pause:
        return Pause(self.backoff(), self._monotonic)

    def _reconnect_pause(self) -> Pause:
        first_ms, longest_ms = (
            self.config.reconnect_backoff_ms,
            self.config.reconnect_backoff_max_ms,
        )
        return Pause(Backoff(first_ms, longest_ms, chance=random.random), self._monotonic)

    def backoff(self) -> Backoff:
        """Return a new Backoff with the client's settings."""
        return Backoff(
            self.config.retry_backoff_ms,
            self.config.retry_backoff_max_ms,
            chance=random.random,
        )

    @contextmanager
    def call(self, timeout_seconds: float | None) -> Iterator[None]:
        """Limit the whole of a call to this time; None means ``default_api_timeout_ms``.

        A call may consist of many requests.  Those left at its end fail with RequestTimedOut, and
        the call returns the results of the others.
        """
        if timeout_seconds is not None and timeout_seconds <= 0:
            raise ValueError(f"timeout={timeout_seconds}; expected more than 0 seconds, or None")
        # A call within another one, without a limit of its own, keeps the deadline of the outer
        # one.
        if timeout_seconds is None:
            yield
            return
        deadline = self._monotonic() + timeout_seconds
        token = _call_deadline.set(deadline)
        try:
            yield
        finally:
            _call_deadline.reset(token)

    def call_timeout_ms(self) -> int:
        """Return the time that the current call has left, in milliseconds; 1 or more."""
        deadline = _call_deadline.get()
        if deadline is None:
            return self.config.default_api_timeout_ms
        return max(1, int((deadline - self._monotonic()) * 1000))

    async def retrying(
        self, attempt: Callable[[], Awaitable[T]], *, subject: str, timeout_ms: int | None = None
    ) -> T:
        """Retry ``attempt`` until it succeeds, raises a fatal error, or the time is up.

        At the end of the time it raises RequestTimedOut, whose text begins with ``subject``.
        After `close` no error is retried.
        """
        limit_ms = self.call_timeout_ms() if timeout_ms is None else timeout_ms
        backoff = self.backoff()
        last: KafkaError | None = None
        try:
            async with asyncio.timeout(limit_ms / 1000):
                while True:
                    try:
                        return await attempt()
                    except KafkaError as error:
                        if not error.retriable or self._closed:
                            raise
                        last = error
                    await asyncio.sleep(backoff.next_ms() / 1000)
        except TimeoutError as error:
            # `asyncio.timeout` raises from the CancelledError, to which `_connect` added its note.
            notes = getattr(error.__cause__, "__notes__", ())
            why = last or "; ".join(notes) or "the first attempt has not ended"
            late = RequestTimedOut(f"{subject}: gave up after {limit_ms} ms; last error: {why}")
            if last is not None:
                late.is_of_advertised = last.is_of_advertised
            else:
                late.is_of_advertised = any(isinstance(note, AdvertisedNote) for note in notes)
            raise late from last

    # Topics.

    def known_topic(self, name: str) -> Topic | None:
        """Return the metadata of a topic without a request; None if unknown or outdated.

        Some partitions may have no leader.
        """
        asked_at = self._asked_at.get(name)
        if asked_at is None:
            return None
        if (self._monotonic() - asked_at) * 1000 > self.config.metadata_max_age_ms:
            return None
        return self._topics.get(name)

    def last_known_topic(self, name: str) -> Topic | None:
        """Return the last metadata of a topic, of any age; use its partitions, not its leaders."""
        return self._topics.get(name)

    def name_of(self, topic_id: TopicId) -> TopicName | None:
        """Return the name of a topic whose metadata was received before, or None."""
        return self._names.get(topic_id)

    def outdate(self, name: str) -> None:
        """Mark the metadata of a topic as outdated, so that its next use asks again."""
        self._asked_at.pop(name, None)

    def outdate_leader(self, where: TopicPartition, node_id: int) -> None:
        """Note that this broker does not lead a partition, which then has no known leader.

        This has no effect if metadata has named another leader since.
        """
        name, partition = where
        topic = self._topics.get(name)
        if topic is not None and topic.leader_of(partition) == node_id != NO_LEADER:
            leaders = list(topic.leaders)
            leaders[partition] = NO_LEADER
            self._topics[name] = replace(topic, leaders=tuple(leaders))
            # A pause without a failure is over at once: another broker may lead the partition
            # already.
            self._leaderless.setdefault(name, self._new_pause())

    def to_ask_again(self) -> set[str]:
        """Return the topics with leaderless partitions whose pause is over."""
        return {name for name, pause in self._leaderless.items() if not pause.remaining_seconds()}

    async def topic(
        self, name: str, *, create: bool = False, timeout_ms: int | None = None
    ) -> Topic:
        """Return the metadata of a topic; wait until the topic exists or the time is up.

        If leaders are missing, it asks once more and returns the topic as it is.
        """
        cached_topic = self.known_topic(name)
        if cached_topic is not None and NO_LEADER not in cached_topic.leaders:
            return cached_topic

        async def ask() -> Topic:
            described = (await self.refresh([name], create=create)).get(name)
            if isinstance(described, Topic):
                return described
            raise described or UnknownTopicOrPartition(
                f"topic {name!r}: the broker's response does not contain it"
            )

        return await self.retrying(
            ask, subject=f"metadata of topic {name!r}", timeout_ms=timeout_ms
        )

    async def refresh(
        self, names: Iterable[str] | None, *, create: bool = False
    ) -> dict[str, Topic | KafkaError]:
        """Request the metadata of these topics, or of all with None; return it by name.

        The value is a KafkaError for a topic that cannot be used.
        """
        response = await self.ask_metadata(names, create=create)
        return {
            str(described.name): _topic(described, known=self._topics.get(str(described.name)))
            if _exists(described)
            else self._topic_error(described)
            for described in response.topics
            if described.name is not None  # It is None if the broker does not know a topic id.
        }

    def _topic_error(self, described: MetadataResponseTopic) -> KafkaError:
        if described.error_code == NONE:
            return LeaderNotAvailable(f"topic {described.name!r} has no partitions yet")
        return topic_refusal(described, self.config.topic_operation, self.principal)

    async def ask_metadata(
        self,
        names: Iterable[str] | None,
        *,
        create: bool = False,
        authorized_operations: bool = False,
    ) -> MetadataResponse:
        """Request metadata of these topics, or of all with None, and return the response.

        Only topics that were requested by name are remembered.
        """
        distinct_names = None if names is None else tuple(dict.fromkeys(names))
        request = MetadataRequest(
            topics=None
            if distinct_names is None
            else tuple(
                MetadataRequestTopic(topic_id=None, name=KioTopicName(name))
                for name in distinct_names
            ),
            allow_auto_topic_creation=create,
            include_topic_authorized_operations=authorized_operations,
        )
        requested = frozenset(distinct_names or ())
        # Before the request, so that a request without an answer also delays the next one.
        for name in requested & self._leaderless.keys():
            self._leaderless[name].failed()
        response: MetadataResponse = await self._ask_in_turn(request)
        self._check_answer(response)
        # Replaced, not extended: a broker that has left the cluster must not be asked any more.
        self._nodes = {
            described.node_id: (described.host, described.port) for described in response.brokers
        }
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        self._forget_addresses()
        # A cluster may have very many topics, so the client remembers only those it uses.
        self._learn(
            (described for described in response.topics if described.name in requested),
            self._monotonic(),
        )
        return response

    def _check_answer(self, response: MetadataResponse) -> None:
        """Raise an error if the broker requires a new start (KIP-1102).

        The error of a whole answer has no other meaning; topics have errors of their own.
        """
        if response.error_code != RebootstrapRequired.code:
            return
        may_rebootstrap = self.config.metadata_recovery_strategy is MetadataRecovery.REBOOTSTRAP
        if may_rebootstrap and self._nodes:
            log.info("event=metadata.rebootstrap nodes=%s", sorted(self._nodes))
            self._nodes = {}
            # The retry asks the bootstrap servers.
            raise NetworkException("the broker requires a new start from the bootstrap servers")
        raise refused(response.error_code, None, request="Metadata")

    def _learn(self, described: Iterable[MetadataResponseTopic], now: float) -> None:
        for topic_metadata in described:
            name = str(topic_metadata.name)
            if not _exists(topic_metadata):
                self._topics.pop(name, None)
                self._asked_at.pop(name, None)
                self._leaderless.pop(name, None)
                continue
            # Moved to the end, as the id below: the topics in use are dropped last.
            topic = _topic(topic_metadata, known=self._topics.pop(name, None))
            self._topics[name] = topic
            if topic.topic_id is not None:
                self._names.pop(topic.topic_id, None)
                self._names[topic.topic_id] = topic.name
            self._asked_at[name] = now
            if NO_LEADER not in topic.leaders:
                self._leaderless.pop(name, None)
            elif name not in self._leaderless:
                # A broker has just described the partition without a leader, so the next request
                # waits.
                pause = self._leaderless[name] = self._new_pause()
                pause.failed()
        while len(self._topics) > TOPICS_MAX:
            if self.known_topic(oldest := next(iter(self._topics))) is not None:
                break  # All of them were in use lately.
            for of_topic in (self._topics, self._asked_at, self._leaderless):
                of_topic.pop(oldest, None)
        while len(self._names) > len(self._topics) + FORMER_IDS_MAX:
            del self._names[next(iter(self._names))]

    def _forget_addresses(self) -> None:
        """Drop the state of addresses that are not in use, so that it cannot grow for ever."""
        in_use = {*self._nodes.values(), *self._bootstrap}
        for key, connection in list(self._connections.items()):
            if key[0] not in in_use and not connection.is_open:
                del self._connections[key]
        for node_id in self._node_metrics.keys() - self._nodes.keys() - {-1}:
            del self._node_metrics[node_id]
            self.metrics.remove_group(node_group(self.config.metrics_group, f"node-{node_id}"))
        alive = in_use | {address for address, _ in self._connections}
        self._doubtful = {key: at for key, at in self._doubtful.items() if key in alive}
        self._asks = {ask: number for ask, number in self._asks.items() if ask[1] in alive}
        # A locked entry belongs to an attempt under way, whose waiters share that lock.
        for key, lock in list(self._opening.items()):
            if key[0] not in alive and not lock.locked():
                del self._opening[key]
                self._pauses.pop(key[0], None)

    # Coordinators.

    async def coordinator(
        self,
        key: str,
        *,
        kind: CoordinatorType = CoordinatorType.GROUP,
        operation: str | None = None,
    ) -> int:
        """Return the coordinator's node id, which is remembered until `forget_coordinator`.

        ``key`` is the id of a group, or a transactional id.  ``operation`` is the ACL operation on
        it that the caller needs; None means the one of the client's config.
        """
        known_node_id = self._coordinators.get((kind, key))
        if known_node_id is not None:
            return known_node_id
        request = FindCoordinatorRequest(key_type=i8(kind), coordinator_keys=(key,))
        response: FindCoordinatorResponse = await self._ask_in_turn(request)
        for answer in response.coordinators:
            # One key was asked for, so the first answer decides.
            if answer.error_code != NONE:
                raise refused(
                    answer.error_code,
                    answer.error_message,
                    operation=operation or self.config.group_operation,
                    principal=self.principal,
                    **{kind.resource: key},
                )
            # There may be no metadata yet, or the coordinator is a node that joined after it.
            self._nodes[answer.node_id] = (answer.host, answer.port)
            self._coordinators[kind, key] = answer.node_id
            if len(self._coordinators) > COORDINATORS_MAX:
                del self._coordinators[next(iter(self._coordinators))]
            return int(answer.node_id)
        raise CoordinatorNotAvailable(
            f"{kind.resource} {key!r}: the FindCoordinator response is empty"
        )

    def known_coordinator(self, group_id: str) -> int | None:
        """Return the node id of a group's coordinator without a request; None if it is unknown."""
        return self._coordinators.get((CoordinatorType.GROUP, group_id))

    def forget_coordinator(
        self, key: str, *, kind: CoordinatorType = CoordinatorType.GROUP
    ) -> None:
        """Forget a coordinator that moved or is unreachable."""
        self._coordinators.pop((kind, key), None)


def _exists(described: MetadataResponseTopic) -> bool:
    """Whether the topic can be used; one that is being created has no partitions yet.

    LEADER_NOT_AVAILABLE: some of its partitions have no leader.
    """
    return bool(described.partitions) and described.error_code in (NONE, LeaderNotAvailable.code)


def _topic(described: MetadataResponseTopic, *, known: Topic | None = None) -> Topic:
    """Convert metadata to a Topic; keep leaders from ``known`` that have a higher leader epoch.

    A broker that is cut off from the controllers still describes the former leaders.
    """
    topic_id = None if described.topic_id is None else TopicId(described.topic_id)
    leaders = [NO_LEADER] * len(described.partitions)
    epochs = [NO_EPOCH] * len(described.partitions)
    later = known.leader_epochs if known is not None and known.topic_id == topic_id else ()
    for partition in described.partitions:
        index = int(partition.partition_index)
        # Kafka numbers partitions from 0 without gaps; a broker that claims otherwise is not
        # believed.
        if not 0 <= index < len(leaders):
            continue
        leaders[index], epochs[index] = int(partition.leader_id), int(partition.leader_epoch)
        if known is not None and index < len(later) and NO_EPOCH < epochs[index] < later[index]:
            leaders[index], epochs[index] = known.leaders[index], later[index]
    name = TopicName(str(described.name))
    return Topic(name, topic_id, tuple(leaders), described.is_internal, tuple(epochs))
