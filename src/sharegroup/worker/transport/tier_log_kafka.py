"""The retry topics on a real cluster, read by our own plain consumer (ADR 0016).

    Consumer: group, heartbeats, fetches  -->  `read`: records of partitions that were announced
      its listener, inside `read`         -->  the owner: assigned, revoked

The consumer gives and takes partitions only while `read` waits in its poll.  So the owner is told
of an assignment before its first record, with the offsets that the previous owner committed, and
of a revocation before the partitions belong to another member.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Any

from sharegroup.client import (
    CommitFailedError,
    Consumer,
    IllegalStateError,
    OffsetAndMetadata,
    RebalanceListener,
    TopicPartition,
)
from sharegroup.client.records import ConsumerGroupMetadata
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.errors import (
    InvalidSessionTimeout,
    KafkaError,
    NetworkException,
    UnreadableBatch,
)
from sharegroup.worker.retrying.tier_log import (
    Committed,
    OwnershipLost,
    TierOwner,
    TierPartition,
    TierRecord,
)
from sharegroup.worker.transport.assigned_offsets import member_of, offsets_of_assigned

log = logging.getLogger(__name__)

SESSION_MS = 2_000
"""The session timeout: after this time the partitions of a dead process are reassigned."""
SESSION_MS_KAFKA = 6_000
"""The shortest that Apache Kafka allows by default (``group.min.session.timeout.ms``)."""
SESSION_MS_PATIENT = 10_000
"""For a broker that allows nothing shorter, and for a process that was lost although it lives.

Its event loop was blocked, or its machine is busy, and that will happen again.
"""
HEARTBEAT_MS = 400
"""The heartbeat interval, which is also how soon a member learns of a rebalance."""
POLL_MS_MAX = 10_000
"""Maximum time between two reads, and for which a rebalance waits for a member that lives."""
FETCH_WAIT_MS = 100
"""The wait of a fetch at the broker; a resumed partition is fetched only after a pending fetch."""
PARTITION_FETCH_BYTES = 256 * 1024
FETCH_BYTES = 8 * 1024 * 1024
METADATA_MS = 10_000
"""The age at which metadata is refreshed, and so how soon a new topic is noticed."""
REQUEST_MS_MAX = 15_000
"""The maximum request timeout.

A broker that hangs delays the stop by no more than this.
"""
READ_RECORDS = 10_000
SILENCE_SECONDS = 5.0
"""Time without an answer of the group coordinator after which `read` raises the error."""
CLOSE_SECONDS = 15.0

OpenConsumer = Callable[..., Consumer]
"""Makes a consumer from options; tests replace it."""


class KafkaTierLog:
    """Reads the retry topics of one group with a plain consumer; a `TierLog`."""

    __slots__ = (
        "_config", "_consumer", "_group_id", "_listener", "_open_consumer", "_owners",
        "_session_ms", "_silent_at", "_start",
    )  # fmt: skip

    def __init__(
        self,
        config: ClientConfig,
        group_id: str,
        *,
        session_ms: int = SESSION_MS,
        open_consumer: OpenConsumer = Consumer,
    ) -> None:
        self._config = config
        self._group_id = group_id
        self._session_ms = session_ms
        self._open_consumer = open_consumer
        self._consumer: Consumer | None = None
        self._listener: _Listener | None = None
        self._silent_at: float | None = None
        self._owners: dict[TierPartition, ConsumerGroupMetadata] = {}
        self._start: tuple[Sequence[str], TierOwner] | None = None
        """What `start` was called with."""

    async def start(self, topics: Sequence[str], owner: TierOwner) -> None:
        """Join the group with a new consumer; a previous consumer is closed."""
        await self.close()
        self._start = topics, owner
        consumer = self._consumer = self._open_consumer(
            **connection_options(self._config),
            group_id=self._group_id,
            enable_auto_commit=False,
            # Before the first commit, too, records wait in a tier, and none may be passed over.
            auto_offset_reset="earliest",
            # Steered groups move records in transactions.
            isolation_level="read_committed",
            # Round robin spreads the partitions of each tier over the members.
            partition_assignment_strategy="roundrobin",
            session_timeout_ms=self._session_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_interval_ms=POLL_MS_MAX,
            max_poll_records=READ_RECORDS,
            fetch_max_wait_ms=FETCH_WAIT_MS,
            fetch_max_bytes=FETCH_BYTES,
            max_partition_fetch_bytes=PARTITION_FETCH_BYTES,
            # The worker creates its topics with its own settings.
            allow_auto_create_topics=False,
        )
        self._silent_at = None
        self._owners.clear()
        self._listener = _Listener(consumer, owner, self._owners, self._group_id)
        consumer.subscribe(topics, listener=self._listener)
        await consumer.start()

    async def read(self, wait_seconds: float) -> Mapping[TierPartition, Sequence[TierRecord]]:
        """Return the next records; changes of the assignment are announced to the owner first."""
        consumer = self._consumer
        if consumer is None:
            raise NetworkException("the consumer of the tiers was closed")
        try:
            fetched = await consumer.poll(wait_seconds)
        except IllegalStateError as error:
            raise NetworkException("the consumer of the tiers was closed") from error
        except UnreadableBatch as error:
            self._set_aside(consumer, error)
            return {}
        except InvalidSessionTimeout as error:
            await self._join_with_longer_session(error)
            return {}
        if self._was_lost:
            await self._join_with_longer_session(None)
            return {}
        if not fetched:
            self._check_coordinator(consumer)
        records: dict[TierPartition, list[TierRecord]] = defaultdict(list)
        for record in fetched:
            records[TierPartition(*record.topic_partition)].append(
                TierRecord(
                    record.offset, record.timestamp_ms, record.key, record.value, record.headers
                )
            )
        return records

    def pause(self, partition: TierPartition) -> None:
        """Stop reading a partition until `resume`; no effect on one that is not owned."""
        if (consumer := self._owning(partition)) is not None:
            consumer.pause(TopicPartition(*partition))

    def resume(self, partition: TierPartition) -> None:
        """Read a paused partition again."""
        if (consumer := self._owning(partition)) is not None:
            consumer.resume(TopicPartition(*partition))

    def end_offset(self, partition: TierPartition) -> int | None:
        """The high watermark as of the last fetch; None if unknown or not owned."""
        consumer = self._owning(partition)
        return None if consumer is None else consumer.end_offset(TopicPartition(*partition))

    async def commit(self, partition: TierPartition, committed: Committed) -> None:
        """Commit an offset for the next owner; raises OwnershipLost if another member owns it."""
        consumer = self._owning(partition)
        if consumer is None:
            raise OwnershipLost(f"{partition!r} is not assigned to this member")
        try:
            await consumer.commit({TopicPartition(*partition): OffsetAndMetadata(*committed)})
        except (CommitFailedError, IllegalStateError) as error:
            raise OwnershipLost(str(error)) from error

    def member_of(self, partition: TierPartition) -> ConsumerGroupMetadata:
        """Return this member as the owner of a partition; raises OwnershipLost if it is none."""
        # As of the assignment.  A member that was lost meanwhile has another generation, or none,
        # and a coordinator checks no offset that comes without one.
        member = self._owners.get(partition)
        if member is None:
            raise OwnershipLost(f"{partition!r} is not assigned to this member")
        return member

    async def close(self) -> None:
        """Leave the group and close the consumer."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.close(CLOSE_SECONDS)

    @property
    def _was_lost(self) -> bool:
        """Whether the group went on without this member although it lives."""
        if self._session_ms >= SESSION_MS_PATIENT:
            return False
        return self._listener is not None and self._listener.was_lost

    async def _join_with_longer_session(self, refusal: InvalidSessionTimeout | None) -> None:
        """Join anew, because the session was refused, or ended too early if that is None."""
        if refusal is not None and self._session_ms >= SESSION_MS_PATIENT:
            raise refusal
        is_short = refusal is not None and self._session_ms < SESSION_MS_KAFKA
        session_ms = SESSION_MS_KAFKA if is_short else SESSION_MS_PATIENT
        log.info(
            "event=tiers_session group=%s session_ms=%d before=%d reason='%s'",
            self._group_id,
            session_ms,
            self._session_ms,
            refusal or "this process was taken for dead: was its event loop blocked?",
        )
        self._session_ms = session_ms
        assert self._start is not None, "a consumer that reads was started"
        await self.start(*self._start)

    def _owning(self, partition: TierPartition) -> Consumer | None:
        """Return the consumer if it owns the partition."""
        consumer = self._consumer
        owns = consumer is not None and TopicPartition(*partition) in consumer.assignment
        return consumer if owns else None

    def _set_aside(self, consumer: Consumer, error: UnreadableBatch) -> None:
        """Pause a partition whose next batch cannot be read; the others are read further.

        Its retries may not be lost, and nothing tells what they are, so an operator decides.
        """
        consumer.pause(TopicPartition(error.topic, error.partition))
        log.warning(
            "event=tier_unreadable group=%s topic=%s partition=%d first=%d end=%d error=%r "
            "action='this partition waits; commit offset %d for this group, while no worker runs, "
            "to go on behind the batch'",
            self._group_id,
            *(error.topic, error.partition, error.first, error.end, str(error), error.end),
        )

    def _check_coordinator(self, consumer: Consumer) -> None:
        """Raise the error of a coordinator that has not answered for `SILENCE_SECONDS`.

        The consumer would retry for ever; the scheduler tells the operator.
        """
        error: KafkaError | None = consumer.coordinator_error
        if error is None:
            self._silent_at = None
            return
        now = time.monotonic()
        if self._silent_at is None:
            self._silent_at = now
        elif now - self._silent_at >= SILENCE_SECONDS:
            raise error


class _Listener(RebalanceListener):
    """Tells the owner of the tiers what the group gives and takes."""

    def __init__(
        self,
        consumer: Consumer,
        owner: TierOwner,
        owners: dict[TierPartition, ConsumerGroupMetadata],
        group: str,
    ) -> None:
        self._consumer = consumer
        self._group = group
        self._owner = owner
        self._owners = owners
        """This member as the owner of each partition."""
        self.was_lost = False

    async def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        with suppress(OwnershipLost):  # The membership was lost just now.
            member = member_of(self._consumer)
            self._owners.update((TierPartition(*where), member) for where in partitions)
        offsets = await offsets_of_assigned(
            self._consumer,
            lambda: self._consumer.committed(partitions),
            self._group,
            f"partitions={sorted(map(str, partitions))}",
        )
        if offsets is None:
            return
        await self._owner.assigned(
            {
                # Without a commit: all records of the log wait (`auto_offset_reset`).
                TierPartition(*partition): Committed(0)
                if committed is None
                else Committed(committed.offset, committed.metadata)
                for partition, committed in offsets.items()
            }
        )

    async def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        await self._give_up(partitions)

    async def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        # A mover that still commits gets OwnershipLost, which ends it.
        self.was_lost = True
        await self._give_up(partitions)

    async def _give_up(self, partitions: frozenset[TopicPartition]) -> None:
        revoked = [TierPartition(*where) for where in partitions]
        try:
            await self._owner.revoked(revoked)
        finally:
            for partition in revoked:
                self._owners.pop(partition, None)


def connection_options(config: ClientConfig) -> dict[str, Any]:
    """Return the options of a client as those of the tiers' consumer, with shorter times."""
    options = {field.name: getattr(config, field.name) for field in fields(ClientConfig)}
    options["request_timeout_ms"] = min(config.request_timeout_ms, REQUEST_MS_MAX)
    options["metadata_max_age_ms"] = min(config.metadata_max_age_ms, METADATA_MS)
    return options
