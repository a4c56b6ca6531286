"""The tiers' topics on a real cluster, read by aiokafka's consumer (ADR 0016).

    aiokafka: group, heartbeats, fetches  -->  `read`: records of partitions that were announced
      its callbacks, in its own task      -->  generations here

Its callbacks come at any moment, and records of an assignment that is over must not be taken for
records of the next one.  So every assignment has a generation here.  What `read` got is handed
out if its generation still holds; the first time, the partitions are announced to the owner, with
what the owner before had committed.  That is done by `read` and not by the callback, because
aiokafka sends no heartbeats while that callback runs.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.abc import AbstractTokenProvider, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import CommitFailedError, ConsumerStoppedError, IllegalStateError
from aiokafka.errors import KafkaError as AiokafkaError

from sharegroup.client import AdminClient
from sharegroup.client.config import ClientConfig, TokenProvider
from sharegroup.client.records import TopicPartition
from sharegroup.client.tls import tls_context
from sharegroup.errors import KafkaError, NetworkException, error_for
from sharegroup.worker.retrying.tier_log import (
    Committed,
    OwnershipLost,
    TierOwner,
    TierPartition,
    TierRecord,
)

log = logging.getLogger(__name__)

SESSION_MS = 10_000
"""What a dead process owned is somebody else's after so long."""
HEARTBEAT_MS = 500
"""Also how soon a member hears that the group shares out its partitions anew."""
FETCH_WAIT_MS = 100
"""A partition that is read again waits until the request before has its answer."""
PARTITION_FETCH_BYTES = 256 * 1024
FETCH_BYTES = 8 * 1024 * 1024
METADATA_MS = 10_000
"""How soon a topic is seen that was made after the start."""
REQUEST_MS_MAX = 15_000
"""Longer than members have to agree; a broker that hangs must not hold up the end for longer."""
RETRY_BACKOFF_MS = 200
"""Each try that fails while a broker is away is some lines in aiokafka's log."""
POLL_MS_MAX = 24 * 60 * 60 * 1000
"""aiokafka takes a member that reads nothing for so long for hung; here nothing may be due."""


class KafkaTierLog:
    """A `TierLog`; see the module's text."""

    __slots__ = (
        "_admin",
        "_announced",
        "_config",
        "_consumer",
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
    ) -> None:
        self._config = config
        self._session_ms = session_ms
        self._admin = admin
        self._group_id = group_id
        self._consumer: Any = None
        self._owner: TierOwner | None = None
        self._partitions: tuple[TierPartition, ...] = ()
        self._is_assigned = asyncio.Event()
        self._generation = 0  # Counts what was taken away.
        self._announced = -1  # The generation that the owner knows of.
        self._kept: Mapping[TierPartition, Sequence[TierRecord]] = {}

    async def start(self, topics: Sequence[str], owner: TierOwner) -> None:
        """Join with a consumer of its own; one from before is closed."""
        await self.close()
        self._owner = owner
        consumer = self._consumer = AIOKafkaConsumer(
            **connection_options(self._config),
            group_id=self._group_id,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            # Each tier's partitions go to different members; a sticky assignor would keep
            # nothing, because every partition is given up while they are shared out.
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
            # A start that is cancelled half way would leave its connection open.
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait({starting})
            await self.close()
            raise
        except AiokafkaError as error:
            await self.close()
            raise _ours(error) from error

    async def read(self, wait_seconds: float) -> Mapping[TierPartition, Sequence[TierRecord]]:
        """What comes next; a new assignment is announced first."""
        generation = self._generation
        found = self._kept
        if not found:
            try:
                fetched = await self._consumer.getmany(timeout_ms=round(wait_seconds * 1000))
            except ConsumerStoppedError as error:
                raise NetworkException("the consumer of the tiers was closed") from error
            except AiokafkaError as error:
                raise _ours(error) from error
            self._check_fetching()
            # What it returns belongs to what is assigned now, announced or not.
            generation = self._generation
            found = {TierPartition(*where): _records(some) for where, some in fetched.items()}
        self._kept = found
        if not await self._assigned_within(wait_seconds):
            return {}
        if self._announced != generation == self._generation:
            await self._announce(generation)
        if generation != self._generation:
            found = {}
        self._kept = {}
        return found

    def pause(self, partition: TierPartition) -> None:
        """Read nothing more of it for now."""
        if where := self._owned(partition):
            self._consumer.pause(where)

    def resume(self, partition: TierPartition) -> None:
        """Read it again."""
        if where := self._owned(partition):
            self._consumer.resume(where)

    def end_offset(self, partition: TierPartition) -> int | None:
        """Where it ended when it was last read."""
        where = self._owned(partition)
        end: int | None = self._consumer.highwater(where) if where else None
        return end

    async def commit(self, partition: TierPartition, committed: Committed) -> None:
        """Leave this to the next owner."""
        try:
            await self._consumer.commit({KafkaPartition(*partition): tuple(committed)})
        except (CommitFailedError, IllegalStateError) as error:
            raise OwnershipLost(str(error)) from error
        except AiokafkaError as error:
            raise _ours(error) from error

    async def close(self) -> None:
        """Leave the group."""
        consumer, self._consumer = self._consumer, None
        self._forget()
        if consumer is None:
            return
        try:
            await consumer.stop()
        except AiokafkaError as error:
            # Its fetching had died, and it stops no further than there: left are its connections.
            log.info("event=consumer_half_stopped group=%s error=%r", self._group_id, str(error))
            await consumer._client.close()

    def assigned(self, partitions: Iterable[TierPartition]) -> None:
        """aiokafka says so; `read` announces it."""
        self._partitions = tuple(partitions)
        self._is_assigned.set()

    async def revoked(self, partitions: Iterable[TierPartition]) -> None:
        """aiokafka says so, and joins again when this returns."""
        all_of_them = {*self._partitions, *partitions}
        self._forget()
        if self._owner is not None:
            await self._owner.revoked(all_of_them)

    def _check_fetching(self) -> None:
        """aiokafka fetches in a task; when that has died it waits for records that never come.

        It dies of what a connection raises that is closed just now, a RuntimeError of uvloop's.
        """
        if self._consumer._fetcher.error_future.done():
            raise NetworkException(
                f"the consumer of group {self._group_id!r} has stopped fetching; aiokafka's log "
                "says why"
            )

    async def _assigned_within(self, seconds: float) -> bool:
        """Whether partitions are assigned now; a failure to agree on them is told by `getmany`."""
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
        """What was committed for each; 0 where nothing was: reading begins with what is there."""
        asked = {self._group_id: [TopicPartition(*partition) for partition in partitions]}
        answer = (await self._admin.list_consumer_group_offsets(asked))[self._group_id]
        if isinstance(answer, KafkaError):
            raise answer
        committed = {}
        for where, found in answer.items():
            if isinstance(found, KafkaError):
                raise found
            committed[TierPartition(*where)] = Committed(found.offset or 0, found.metadata)
        return committed

    def _owned(self, partition: TierPartition) -> KafkaPartition | None:
        where = KafkaPartition(*partition)
        owns = self._consumer is not None and where in self._consumer.assignment()
        return where if owns else None

    def _forget(self) -> None:
        self._generation += 1
        self._is_assigned.clear()
        self._partitions = ()
        self._kept = {}


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types here.
    """aiokafka's callbacks, as calls of a `KafkaTierLog`."""

    def __init__(self, tier_log: KafkaTierLog) -> None:
        self._tier_log = tier_log

    def on_partitions_assigned(self, assigned: Iterable[KafkaPartition]) -> None:
        self._tier_log.assigned(TierPartition(*one) for one in assigned)

    async def on_partitions_revoked(self, revoked: Iterable[KafkaPartition]) -> None:
        await self._tier_log.revoked([TierPartition(*one) for one in revoked])


class _Tokens(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types here.
    """An application's token provider, as aiokafka wants it."""

    def __init__(self, provider: TokenProvider) -> None:
        self._provider = provider

    async def token(self) -> str:
        if inspect.iscoroutinefunction(self._provider):
            return str(await self._provider())
        # It may well ask a server, and must not hold up the event loop for that.
        token = await asyncio.to_thread(self._provider)
        return str(await token if inspect.isawaitable(token) else token)


def connection_options(config: ClientConfig) -> dict[str, Any]:
    """How our clients reach their brokers, in aiokafka's words."""
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
        TierRecord(one.offset, one.timestamp, one.key, one.value, one.headers) for one in fetched
    ]


def _ours(error: AiokafkaError) -> KafkaError:
    """The same error in our words; what has no code of the protocol is the network's."""
    code = getattr(error, "errno", None)
    text = f"{type(error).__name__}: {error}"
    return NetworkException(text) if code is None else error_for(code, text)
