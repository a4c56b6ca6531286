"""The retry topics on a real cluster, read by aiokafka's consumer (ADR 0016).

    aiokafka: group, heartbeats, fetches  -->  `read`: records of partitions that were announced
      its callbacks, in its own task      -->  generations here

aiokafka calls its callbacks at any time, and records of an old assignment must not be taken for
records of the next one.  So each assignment has a generation here.  `read` returns records only
if their generation is still current.  The first `read` of a generation announces the partitions
to the owner, with the offsets that the previous owner committed.  The callback does not announce
them, because aiokafka sends no heartbeats while it runs.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.abc import AbstractTokenProvider, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import (
    CommitFailedError,
    ConsumerStoppedError,
    IllegalStateError,
    TopicAuthorizationFailedError,
)
from aiokafka.errors import KafkaError as AiokafkaError

from sharegroup.client import AdminClient
from sharegroup.client.net.refusals import RESOURCES, refused
from sharegroup.client.net.tls import tls_context
from sharegroup.client.records import TopicPartition
from sharegroup.client.settings.client_config import ClientConfig, TokenProvider
from sharegroup.errors import KafkaError, NetworkException, error_for
from sharegroup.worker.retrying.tier_log import (
    Committed,
    OwnershipLost,
    TierOwner,
    TierPartition,
    TierRecord,
)
from sharegroup.worker.transport.aiokafka_internals import control_of

log = logging.getLogger(__name__)

SESSION_MS = 10_000
"""The session timeout: after this time the partitions of a dead process are reassigned."""
HEARTBEAT_MS = 500
"""The heartbeat interval, which is also how soon a member learns of a rebalance."""
FETCH_WAIT_MS = 100
"""The wait of a fetch at the broker; a resumed partition is fetched only after a pending fetch."""
PARTITION_FETCH_BYTES = 256 * 1024
FETCH_BYTES = 8 * 1024 * 1024
METADATA_MS = 10_000
"""The age at which metadata is refreshed, and so how soon a new topic is noticed."""
REQUEST_MS_MAX = 15_000
"""The maximum request timeout.

It is longer than a rebalance may take.  A broker that hangs delays the stop by no more than this.
"""
RETRY_BACKOFF_MS = 200
"""The backoff of retries; each failed attempt is several lines in aiokafka's log."""
POLL_MS_MAX = 24 * 60 * 60 * 1000
"""aiokafka treats a member that reads no records for this time as hung; here they may be rare."""


class KafkaTierLog:
    """Reads the retry topics of one group with aiokafka's consumer; a `TierLog`.

    Tests replace ``consumer_class``.
    """

    __slots__ = (
        "_admin",
        "_announced",
        "_config",
        "_consumer",
        "_consumer_class",
        "_generation",
        "_group_id",
        "_is_assigned",
        "_kept",
        "_owner",
        "_partitions",
        "_session_ms",
    )

    def __init__(
        self,
        config: ClientConfig,
        admin: AdminClient,
        group_id: str,
        *,
        session_ms: int = SESSION_MS,
        consumer_class: Callable[..., Any] = AIOKafkaConsumer,
    ) -> None:
        self._config = config
        self._consumer_class = consumer_class
        self._session_ms = session_ms
        self._admin = admin
        self._group_id = group_id
        self._consumer: Any = None
        self._owner: TierOwner | None = None
        self._partitions: tuple[TierPartition, ...] = ()
        self._is_assigned = asyncio.Event()
        self._generation = 0  # Incremented when the partitions are revoked.
        self._announced = -1  # The generation that was announced to the owner.
        self._kept: Mapping[TierPartition, Sequence[TierRecord]] = {}

    async def start(self, topics: Sequence[str], owner: TierOwner) -> None:
        """Join the group with a new consumer; a previous consumer is closed."""
        await self.close()
        self._owner = owner
        consumer = self._consumer = self._consumer_class(
            **connection_options(self._config),
            group_id=self._group_id,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            # Round robin spreads the partitions of each tier over the members.  A sticky assignor
            # has no advantage, because every rebalance revokes all partitions.
            partition_assignment_strategy=(RoundRobinPartitionAssignor,),
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=self._session_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_interval_ms=POLL_MS_MAX,
            fetch_max_wait_ms=FETCH_WAIT_MS,
            fetch_max_bytes=FETCH_BYTES,
            max_partition_fetch_bytes=PARTITION_FETCH_BYTES,
            metadata_max_age_ms=METADATA_MS,
        )
        consumer.subscribe(topics, listener=_Listener(self))
        starting = asyncio.ensure_future(consumer.start())
        try:
            # A start that is cancelled half-way would leave its connection open.
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait({starting})
            if not starting.cancelled():
                starting.exception()  # Retrieved, because asyncio would otherwise log it.
            await self.close()
            raise
        except AiokafkaError as error:
            await self.close()
            raise self._ours(error) from error

    async def read(self, wait_seconds: float) -> Mapping[TierPartition, Sequence[TierRecord]]:
        """Return the next records; a new assignment is announced to the owner first."""
        generation = self._generation
        records = self._kept
        if not records:
            try:
                fetched = await self._consumer.getmany(timeout_ms=round(wait_seconds * 1000))
            except ConsumerStoppedError as error:
                raise NetworkException("the consumer of the tiers was closed") from error
            except AiokafkaError as error:
                raise self._ours(error) from error
            self._check_fetching()
            # The records belong to the current assignment, whether or not it was announced.
            generation = self._generation
            records = {
                TierPartition(*topic_partition): _records(fetched_records)
                for topic_partition, fetched_records in fetched.items()
            }
        self._kept = records
        if not await self._assigned_within(wait_seconds):
            return {}
        if self._announced != generation == self._generation:
            await self._announce(generation)
        if generation != self._generation:
            records = {}
        self._kept = {}
        return records

    def pause(self, partition: TierPartition) -> None:
        """Stop reading a partition until `resume`; no effect on one that is not owned."""
        if kafka_partition := self._owned(partition):
            self._consumer.pause(kafka_partition)

    def resume(self, partition: TierPartition) -> None:
        """Read a paused partition again."""
        if kafka_partition := self._owned(partition):
            self._consumer.resume(kafka_partition)

    def end_offset(self, partition: TierPartition) -> int | None:
        """The high watermark as of the last fetch; None if unknown or not owned."""
        kafka_partition = self._owned(partition)
        end: int | None = self._consumer.highwater(kafka_partition) if kafka_partition else None
        return end

    async def commit(self, partition: TierPartition, committed: Committed) -> None:
        """Commit an offset for the next owner; raises OwnershipLost if another member owns it."""
        try:
            await self._consumer.commit({KafkaPartition(*partition): tuple(committed)})
        except (CommitFailedError, IllegalStateError) as error:
            raise OwnershipLost(str(error)) from error
        except AiokafkaError as error:
            raise self._ours(error) from error

    async def close(self) -> None:
        """Leave the group and close the consumer."""
        consumer, self._consumer = self._consumer, None
        self._forget()
        if consumer is None:
            return
        try:
            await consumer.stop()
        except AiokafkaError as error:
            # The fetch task had failed, so `stop` ended early and left the connections open.
            log.info("event=consumer_half_stopped group=%s error=%r", self._group_id, str(error))
            await control_of(consumer).close_connections()

    def assigned(self, partitions: Iterable[TierPartition]) -> None:
        """Note an assignment; called by aiokafka.  `read` announces it to the owner."""
        self._partitions = tuple(partitions)
        self._is_assigned.set()

    async def revoked(self, partitions: Iterable[TierPartition]) -> None:
        """Revoke all partitions; called by aiokafka, which rejoins when this returns."""
        revoked_partitions = {*self._partitions, *partitions}
        self._forget()
        if self._owner is not None:
            await self._owner.revoked(revoked_partitions)

    def _check_fetching(self) -> None:
        """Raise NetworkException if the consumer has stopped fetching.

        Otherwise `read` would wait for records that never arrive.
        """
        if control_of(self._consumer).has_stopped_fetching():
            raise NetworkException(
                f"the consumer of group {self._group_id!r} has stopped fetching; see the log of "
                "aiokafka"
            )

    async def _assigned_within(self, seconds: float) -> bool:
        """Whether partitions are assigned in time; `getmany` raises the error of a failed join."""
        try:
            async with asyncio.timeout(seconds):
                await self._is_assigned.wait()
        except TimeoutError:
            return False
        return True

    async def _announce(self, generation: int) -> None:
        assert self._owner is not None
        partitions = self._partitions
        committed = await self._committed(partitions) if partitions else {}
        if generation == self._generation:
            self._announced = generation
            await self._owner.assigned(committed)

    async def _committed(
        self, partitions: Iterable[TierPartition]
    ) -> dict[TierPartition, Committed]:
        """Return the committed offset of each partition; 0 without one, to read from the start."""
        wanted = {self._group_id: [TopicPartition(*partition) for partition in partitions]}
        answer = (await self._admin.list_consumer_group_offsets(wanted))[self._group_id]
        if isinstance(answer, KafkaError):
            raise answer
        committed = {}
        for topic_partition, result in answer.items():
            if isinstance(result, KafkaError):
                raise result
            committed[TierPartition(*topic_partition)] = Committed(
                result.offset or 0, result.metadata
            )
        return committed

    def _owned(self, partition: TierPartition) -> KafkaPartition | None:
        kafka_partition = KafkaPartition(*partition)
        owns = self._consumer is not None and kafka_partition in self._consumer.assignment()
        return kafka_partition if owns else None

    def _ours(self, error: AiokafkaError) -> KafkaError:
        """Convert aiokafka's error to ours; one without an error code becomes NetworkException."""
        code = getattr(error, "errno", None)
        text = f"{type(error).__name__}: {error}"
        if code is None:
            return NetworkException(text)
        if code not in RESOURCES:
            return error_for(code, text)
        resource: dict[str, str] = {"group": self._group_id}
        if isinstance(error, TopicAuthorizationFailedError):
            (topics,) = error.args
            resource["topic"] = topics if isinstance(topics, str) else ", ".join(sorted(topics))
        principal = self._config.principal
        return refused(code, None, operation="READ", principal=principal, **resource)

    def _forget(self) -> None:
        self._generation += 1
        self._is_assigned.clear()
        self._partitions = ()
        self._kept = {}


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types here.
    """Passes aiokafka's rebalance callbacks to a `KafkaTierLog`."""

    def __init__(self, tier_log: KafkaTierLog) -> None:
        self._tier_log = tier_log

    def on_partitions_assigned(self, assigned: Iterable[KafkaPartition]) -> None:
        self._tier_log.assigned(TierPartition(*partition) for partition in assigned)

    async def on_partitions_revoked(self, revoked: Iterable[KafkaPartition]) -> None:
        await self._tier_log.revoked([TierPartition(*partition) for partition in revoked])


class _Tokens(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types here.
    """Adapts an application's token provider to aiokafka's interface."""

    def __init__(self, provider: TokenProvider) -> None:
        self._provider = provider

    async def token(self) -> str:
        if inspect.iscoroutinefunction(self._provider):
            return str(await self._provider())
        # In a thread, because it may query a server and must not block the event loop.
        token = await asyncio.to_thread(self._provider)
        return str(await token if inspect.isawaitable(token) else token)


def connection_options(config: ClientConfig) -> dict[str, Any]:
    """Return the connection options of our clients as options of aiokafka."""
    provider = config.sasl_oauth_token_provider
    return {
        "bootstrap_servers": config.bootstrap_servers,
        "client_id": config.client_id,
        "request_timeout_ms": min(config.request_timeout_ms, REQUEST_MS_MAX),
        "retry_backoff_ms": RETRY_BACKOFF_MS,
        "security_protocol": config.security_protocol,
        "ssl_context": tls_context(config),
        "sasl_mechanism": config.sasl_mechanism or "PLAIN",
        "sasl_plain_username": config.sasl_plain_username,
        "sasl_plain_password": config.sasl_plain_password,
        "sasl_oauth_token_provider": None if provider is None else _Tokens(provider),
    }


def _records(fetched: Iterable[Any]) -> list[TierRecord]:
    return [
        TierRecord(record.offset, record.timestamp, record.key, record.value, record.headers)
        for record in fetched
    ]
