"""What a client knows of the cluster, and its connections to it.

A client starts with addresses, asks any of them for metadata, and then talks to nodes: to
the leader of a partition, the coordinator of a group, or any node that answers.  Everything
it knows may be outdated; then a node says so (NOT_LEADER_OR_FOLLOWER, NOT_COORDINATOR) or
can't be reached, the owner calls `forget…` or `outdate`, and the next look asks again.

A connection is opened when first needed and again after it failed, one attempt at a time for
each node, with growing pauses.  There are two lanes to a node, because a broker answers the
requests of a connection in order: a heartbeat must not wait behind a parked fetch.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v6.response import FindCoordinatorResponse
from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v13.response import MetadataResponse, MetadataResponseTopic
from kio.schema.types import TopicName as KioTopicName
from kio.static.primitive import i8

from sharegroup.client.backoff import Backoff
from sharegroup.client.client_metrics import ConnectionMetrics
from sharegroup.client.config import ClientConfig, addresses_of
from sharegroup.client.connection import Connection, open_connection
from sharegroup.client.metrics import Metrics
from sharegroup.client.refusals import refused
from sharegroup.client.tls import tls_context
from sharegroup.errors import (
    NONE,
    CoordinatorNotAvailable,
    KafkaError,
    LeaderNotAvailable,
    NetworkException,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from sharegroup.ids import TopicId, TopicName

GROUP_KEY_TYPE = 0
NO_LEADER = -1
FORMER_IDS_MAX = 1_000
"""Topics that are gone, or have got another id, and whose names somebody may still ask for."""

log = logging.getLogger(__name__)

T = TypeVar("T")
Address = tuple[str, int]


class Lane(Enum):
    """What a connection is for."""

    CONTROL = "control"
    """Metadata, heartbeats, administration: short requests."""
    RECORDS = "records"
    """Produce and fetch: large or parked ones."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic as the cluster described it; ``leaders`` has a node id, or -1, by partition."""

    name: TopicName
    topic_id: TopicId | None
    """None from a broker that is too old to have topic ids."""
    leaders: tuple[int, ...]
    is_internal: bool = False

    def leader_of(self, partition: int) -> int:
        """The node id; NO_LEADER when there is none now, or no such partition."""
        return self.leaders[partition] if 0 <= partition < len(self.leaders) else NO_LEADER


class Cluster:
    """See the module's text."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.metrics = Metrics(config.client_id)
        """The client's instruments; those of its connections are among them."""
        self._connection_metrics = ConnectionMetrics(self.metrics, config.metrics_group)
        self._tls = tls_context(config)
        self._bootstrap = addresses_of(config.bootstrap_servers)
        self._nodes: dict[int, Address] = {}
        self._connections: dict[tuple[Address, Lane], Connection] = {}
        self._opening: dict[tuple[Address, Lane], asyncio.Lock] = {}
        self._pauses: dict[Address, _Pause] = {}
        self._topics: dict[str, Topic] = {}
        self._names: dict[TopicId, TopicName] = {}
        self._asked_at: dict[str, float] = {}
        self._coordinators: dict[str, int] = {}
        self._closed = False

    # Connections.

    @property
    def nodes(self) -> dict[int, Address]:
        """The brokers by node id, as of the last metadata."""
        return dict(self._nodes)

    async def connection(self, node_id: int, lane: Lane = Lane.CONTROL) -> Connection:
        """The open connection to this node, opened if need be; NetworkException if it can't."""
        address = self._nodes.get(node_id)
        if address is None:
            raise LeaderNotAvailable(f"node {node_id} is not among the brokers {self._nodes}")
        return await self._connect(address, lane)

    async def any_connection(self) -> Connection:
        """A connection to whichever broker answers; NetworkException when none does."""
        addresses = [*dict.fromkeys((*self._nodes.values(), *self._bootstrap))]
        for address in addresses:
            known = self._connections.get((address, Lane.CONTROL))
            if known is not None and known.is_open:
                return known
        random.shuffle(addresses)
        failures = []
        for address in addresses:
            try:
                return await self._connect(address, Lane.CONTROL)
            except (NetworkException, RequestTimedOut) as error:
                failures.append(str(error))
        raise NetworkException("no broker can be reached: " + "; ".join(failures))

    async def _connect(self, address: Address, lane: Lane) -> Connection:
        key = (address, lane)
        async with self._opening.setdefault(key, asyncio.Lock()):
            if self._closed:
                raise NetworkException("this client is closed")
            known = self._connections.get(key)
            if known is not None and known.is_open:
                return known
            pause = self._pauses.setdefault(address, _Pause(self.backoff()))
            await asyncio.sleep(pause.remaining_seconds())
            try:
                connection = await open_connection(
                    address, self.config, metrics=self._connection_metrics, tls=self._tls
                )
            except KafkaError as error:
                if error.retriable and not pause.failures:
                    # Who waits for the cluster is told why, once: the next attempts say the same.
                    log.info('event=connection.failed error="%s"', error)
                pause.failed()
                raise
            if pause.failures:
                log.info("event=connection.restored broker=%s", connection.peer)
            pause.worked()
            if self._closed:
                connection.close()
            self._connections[key] = connection
            return connection

    def close(self) -> None:
        """End every connection; whatever waits on one gets NetworkException."""
        self._closed = True
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # Retries.

    def backoff(self) -> Backoff:
        """Fresh delays as this client is configured."""
        return Backoff(
            self.config.retry_backoff_ms,
            self.config.retry_backoff_max_ms,
            chance=random.random,
        )

    async def retrying(
        self, attempt: Callable[[], Awaitable[T]], *, what: str, timeout_ms: int | None = None
    ) -> T:
        """Try until it works, fails for good, or the time is up (RequestTimedOut).

        After `close` everything fails for good.
        """
        limit_ms = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
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
        except TimeoutError:
            why = last or "the first attempt had not ended"
            raise RequestTimedOut(f"{what}: gave up after {limit_ms} ms; last: {why}") from last

    # Topics.

    def known_topic(self, name: str) -> Topic | None:
        """What is known of a topic without asking; None when unknown or too old."""
        asked_at = self._asked_at.get(name)
        if asked_at is None:
            return None
        if (time.monotonic() - asked_at) * 1000 > self.config.metadata_max_age_ms:
            return None
        return self._topics.get(name)

    def last_known_topic(self, name: str) -> Topic | None:
        """What was last heard of a topic, however old: its partitions, not its leaders."""
        return self._topics.get(name)

    def name_of(self, topic_id: TopicId) -> TopicName | None:
        """The name of a topic that was described before."""
        return self._names.get(topic_id)

    def outdate(self, name: str) -> None:
        """What is known of this topic turned out wrong: the next look asks again."""
        self._asked_at.pop(name, None)

    async def topic(
        self, name: str, *, create: bool = False, timeout_ms: int | None = None
    ) -> Topic:
        """The topic, asked for when unknown, until it exists and has leaders or time is up."""
        if (known := self.known_topic(name)) is not None:
            return known

        async def ask() -> Topic:
            found = (await self.refresh([name], create=create)).get(name)
            if isinstance(found, Topic):
                return found
            raise found or UnknownTopicOrPartition(f"topic {name!r}: the broker is silent on it")

        return await self.retrying(ask, what=f"metadata of topic {name!r}", timeout_ms=timeout_ms)

    async def refresh(
        self, names: Iterable[str] | None, *, create: bool = False
    ) -> dict[str, Topic | KafkaError]:
        """Ask for these topics, or for all with None; by name what came of it."""
        response = await self.ask_metadata(names, create=create)
        return {
            str(one.name): _topic(one) if _exists(one) else topic_refusal(one)
            for one in response.topics
            if one.name is not None  # A topic id that the broker does not know; nobody asks so.
        }

    async def ask_metadata(
        self, names: Iterable[str] | None, *, create: bool = False
    ) -> MetadataResponse:
        """The whole answer about these topics, or all; what was asked by name is remembered."""
        wanted = None if names is None else tuple(dict.fromkeys(names))
        request = MetadataRequest(
            topics=None
            if wanted is None
            else tuple(
                MetadataRequestTopic(topic_id=None, name=KioTopicName(name)) for name in wanted
            ),
            allow_auto_topic_creation=create,
            include_topic_authorized_operations=False,
        )
        connection = await self.any_connection()
        response: MetadataResponse = await connection.request(request)
        self._nodes = {one.node_id: (one.host, one.port) for one in response.brokers}
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        self._forget_addresses()
        # Of all the topics of a cluster a client remembers those it has to do with.
        asked = frozenset(wanted or ())
        self._learn((one for one in response.topics if one.name in asked), time.monotonic())
        return response

    def _learn(self, described: Iterable[MetadataResponseTopic], now: float) -> None:
        for one in described:
            name = str(one.name)
            if not _exists(one):
                self._topics.pop(name, None)
                self._asked_at.pop(name, None)
                continue
            topic = self._topics[name] = _topic(one)
            if topic.topic_id is not None:
                self._names.pop(topic.topic_id, None)  # To the end: those in use are youngest.
                self._names[topic.topic_id] = topic.name
            if topic.leaders and NO_LEADER not in topic.leaders:
                self._asked_at[name] = now
        while len(self._names) > len(self._topics) + FORMER_IDS_MAX:
            del self._names[next(iter(self._names))]

    def _forget_addresses(self) -> None:
        """Brokers come and go, and may name new addresses for ever."""
        in_use = {*self._nodes.values(), *self._bootstrap}
        for key, connection in list(self._connections.items()):
            if key[0] not in in_use and not connection.is_open:
                del self._connections[key]
        alive = in_use | {address for address, _ in self._connections}
        for key, lock in list(self._opening.items()):
            if key[0] not in alive and not lock.locked():
                del self._opening[key]
                self._pauses.pop(key[0], None)

    # Coordinators.

    async def coordinator(self, group_id: str) -> int:
        """The node that coordinates this group; known until `forget_coordinator`."""
        known = self._coordinators.get(group_id)
        if known is not None:
            return known
        request = FindCoordinatorRequest(key_type=i8(GROUP_KEY_TYPE), coordinator_keys=(group_id,))
        connection = await self.any_connection()
        response: FindCoordinatorResponse = await connection.request(request)
        for one in response.coordinators:
            if one.error_code != NONE:
                raise refused(one.error_code, one.error_message, group=group_id)
            self._nodes[one.node_id] = (one.host, one.port)
            self._coordinators[group_id] = one.node_id
            return int(one.node_id)
        raise CoordinatorNotAvailable(f"group {group_id!r}: FindCoordinator answered nothing")

    def forget_coordinator(self, group_id: str) -> None:
        """The group moved, or its coordinator can't be reached: look again."""
        self._coordinators.pop(group_id, None)


def _exists(described: MetadataResponseTopic) -> bool:
    return described.error_code in (NONE, LeaderNotAvailable.code)


def _topic(described: MetadataResponseTopic) -> Topic:
    leaders = [NO_LEADER] * len(described.partitions)
    for partition in described.partitions:
        if 0 <= partition.partition_index < len(leaders):
            leaders[partition.partition_index] = int(partition.leader_id)
    topic_id = None if described.topic_id is None else TopicId(described.topic_id)
    name = TopicName(str(described.name))
    return Topic(name, topic_id, tuple(leaders), described.is_internal)


def topic_refusal(described: MetadataResponseTopic) -> KafkaError:
    """Why a topic is not described."""
    if described.error_code == UnknownTopicOrPartition.code:
        return UnknownTopicOrPartition(f"topic {described.name!r} does not exist")
    return refused(described.error_code, None, topic=str(described.name))


class _Pause:
    """When the next attempt to connect to one address may start."""

    __slots__ = ("_backoff", "_until", "failures")

    def __init__(self, backoff: Backoff) -> None:
        self.failures = 0
        """In a row, since it last worked."""
        self._backoff = backoff
        self._until = 0.0

    def remaining_seconds(self) -> float:
        return max(0.0, self._until - time.monotonic())

    def failed(self) -> None:
        self.failures += 1
        self._until = time.monotonic() + self._backoff.next_ms() / 1000

    def worked(self) -> None:
        self.failures = 0
        self._backoff.reset()
        self._until = 0.0
