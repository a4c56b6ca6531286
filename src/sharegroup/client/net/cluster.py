"""A client's metadata of the cluster: brokers, topics, leaders and coordinators.

A client asks any of the bootstrap servers for metadata.  Then it sends requests to nodes: the
leader of a partition, the coordinator of a group, or any node that answers.  All metadata may be
outdated.  A node says so (NOT_LEADER_OR_FOLLOWER, NOT_COORDINATOR) or cannot be reached, and the
caller invokes `forget_coordinator`, `outdate` or `outdate_leader`.  The next use asks again.

A topic stays usable while some of its partitions have no leader: only the records of those
partitions wait.  `connections` has the connections to the nodes.
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
from enum import IntEnum
from typing import Protocol, TypeVar

from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v6.response import FindCoordinatorResponse
from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v13.response import MetadataResponse, MetadataResponseTopic
from kio.schema.types import TopicName as KioTopicName
from kio.static.primitive import i8

from sharegroup.backoff import Backoff, Pause
from sharegroup.client.metrics.metric_types import Metrics
from sharegroup.client.net.connection import open_connection
from sharegroup.client.net.connections import (
    Address,
    Connect,
    ConnectionPurpose as ConnectionPurpose,
    Connections,
    Reachability as Reachability,
)
from sharegroup.client.net.refusals import refused, topic_refusal
from sharegroup.client.records import TopicPartition
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.client.settings.option_values import MetadataRecovery
from sharegroup.errors import (
    NONE,
    AdvertisedNote,
    CoordinatorNotAvailable,
    KafkaError,
    LeaderNotAvailable,
    NetworkException,
    RebootstrapRequired,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from sharegroup.ids import TopicId, TopicName

COORDINATORS_MAX = 10_000
"""Number of groups and transactional ids whose coordinators are remembered, the newest ones."""
NO_LEADER = NO_EPOCH = -1
TOPICS_MAX = 100_000
"""Number of topics whose metadata is remembered; of more, outdated ones are forgotten."""
FORMER_IDS_MAX = 1_000
"""Number of topic ids kept of topics that were deleted or have a new id, to find their names."""

log = logging.getLogger(__name__)

T = TypeVar("T")
_call_deadline: ContextVar[float | None] = ContextVar("call_deadline", default=None)
"""The end of the current call of an AdminClient, by the cluster's clock; None: no own timeout.

A context variable, because a call passes through many functions to the retries that need it.
"""


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
        # Looked up now, not when the module is imported: simulations replace it.
        self._monotonic = monotonic or time.monotonic
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.metrics = Metrics(config.client_id)
        """The metrics of the client, including those of its connections."""
        connections = self._connections = Connections(
            config, self.metrics, connect=connect, monotonic=self._monotonic
        )
        # For the owner of a cluster it makes no difference whose methods these are.
        self.connection = connections.connection
        self.any_connection = connections.any_connection
        self.doubt = connections.doubt
        self.is_doubtful = connections.is_doubtful
        self.is_connected_to = connections.is_connected_to
        self.reachability = connections.reachability
        self.finish = connections.finish
        self.close = connections.close
        self._topics: dict[str, Topic] = {}
        self._names: dict[TopicId, TopicName] = {}
        self._asked_at: dict[str, float] = {}
        self._leaderless: dict[str, Pause] = {}
        """The pause before the next metadata request, by topic with leaderless partitions."""
        self._coordinators: dict[tuple[CoordinatorType, str], int] = {}

    @property
    def principal(self) -> str | None:
        """The user as ACLs name it (``User:name``); None if only the broker knows the name."""
        return self.config.principal

    # Connections.

    @property
    def nodes(self) -> dict[int, Address]:
        """The brokers by node id, as of the last metadata."""
        return dict(self._connections.nodes)

    def answering_leaders(self, topic: Topic) -> tuple[int, ...]:
        """Return the leader of each partition, with NO_LEADER in place of doubtful brokers."""
        return tuple(NO_LEADER if self.is_doubtful(leader) else leader for leader in topic.leaders)

    # Retries.

    def _new_pause(self) -> Pause:
        return Pause(self.backoff(), self._monotonic)

    def backoff(self) -> Backoff:
        """Return a new Backoff with the client's settings."""
        return Backoff(
            self.config.retry_backoff_ms, self.config.retry_backoff_max_ms, chance=random.random
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
                        if not error.retriable or self._connections.is_closed:
                            raise
                        last = error
                    await asyncio.sleep(backoff.next_ms() / 1000)
        except TimeoutError as error:
            # `asyncio.timeout` raises from the CancelledError with the note of `Connections`.
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
        response: MetadataResponse = await self._connections.ask_in_turn(request)
        self._check_answer(response)
        # Replaced, not extended: a broker that has left the cluster must not be asked any more.
        self._connections.nodes = {
            described.node_id: (described.host, described.port) for described in response.brokers
        }
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        self._connections.forget_addresses()
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
        if may_rebootstrap and self._connections.nodes:
            log.info("event=metadata.rebootstrap nodes=%s", sorted(self._connections.nodes))
            self._connections.nodes = {}
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
        response: FindCoordinatorResponse = await self._connections.ask_in_turn(request)
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
            self._connections.nodes[answer.node_id] = (answer.host, answer.port)
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


class ClusterClient(Protocol):
    """A client that has a `Cluster`."""

    @property
    def _cluster(self) -> Cluster: ...


def reachability_of(client: ClusterClient) -> Reachability:
    """Return which brokers a client reached at its last attempts; nothing is sent."""
    return client._cluster.reachability()


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
