"""A topic on a real cluster, read by our own consumer as a member of a group; a `GroupLog`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from sharegroup.client import (
    CommitFailedError,
    Consumer,
    ConsumerRecord,
    IllegalStateError,
    OffsetAndMetadata,
    RebalanceListener,
    TopicPartition,
    WakeupError,
)
from sharegroup.client.net.cluster import Reachability
from sharegroup.worker.consuming.group_log import GroupReading, PartitionOwner
from sharegroup.worker.consuming.group_source import REVOKE_SECONDS
from sharegroup.worker.declarations.route import StartFrom
from sharegroup.worker.ports import BufferedRecord
from sharegroup.worker.retrying.tier_log import Committed, OwnershipLost
from sharegroup.worker.transport.assigned_offsets import member_of, offsets_of_assigned
from sharegroup.worker.transport.offset_transactions import Commit, OffsetTransactions

log = logging.getLogger(__name__)

COMMIT_SECONDS_MAX = 10.0
"""Maximum time for which a commit is retried; it is repeated with newer progress."""
REBALANCE_MS = round((REVOKE_SECONDS + 3 * COMMIT_SECONDS_MAX) * 1000)
"""The time that a rebalance waits for this member: for its handlers, and for its commit."""


class KafkaGroupLog:
    """Reads one topic with a Consumer."""

    def __init__(
        self,
        reading: GroupReading,
        options: Mapping[str, Any],
        *,
        open_consumer: Callable[..., Consumer] = Consumer,
    ) -> None:
        """``options`` are those of all clients of the application."""
        self._group = reading.group
        self._topic = reading.topic
        self._starts_latest = reading.start_from is StartFrom.LATEST
        self._transactions = (
            OffsetTransactions(f"{reading.group}.{reading.topic}", options)
            if reading.exactly_once
            else None
        )
        classic: dict[str, Any] = {}
        if reading.protocol == "classic":
            # A rebalance takes away only those partitions that move.
            classic["partition_assignment_strategy"] = "cooperative-sticky"
        self._consumer = open_consumer(
            **options,
            **classic,
            group_id=reading.group,
            group_protocol=reading.protocol,
            enable_auto_commit=False,
            auto_offset_reset=str(reading.start_from),
            fetch_max_bytes=reading.in_flight_bytes,
            max_poll_interval_ms=REBALANCE_MS,
            # Dead letters are sent back in transactions.
            isolation_level="read_committed",
            allow_auto_create_topics=False,
        )

    @property
    def member_id(self) -> str:
        """The member id of the consumer."""
        return self._consumer.member_id

    @property
    def is_joined(self) -> bool:
        """Whether the consumer has joined the group."""
        return self._consumer.health().is_joined

    @property
    def reachability(self) -> Reachability:
        """Which brokers the consumer reaches."""
        health = self._consumer.health()
        return Reachability(health.is_connected, health.lost_brokers)

    async def start(self, owner: PartitionOwner) -> None:
        """Join the group."""
        self._consumer.subscribe(self._topic, listener=_Listener(self, owner))
        await self._consumer.start()

    async def read(self, room: int, wait_seconds: float) -> Sequence[ConsumerRecord]:
        """Return up to ``room`` records, and make changes of the assignment."""
        try:
            return await self._consumer.poll(wait_seconds, room)
        except WakeupError:
            return ()

    def wake(self) -> None:
        """Let the pending `read` return."""
        self._consumer.wakeup()

    def pause(self, partition: int) -> None:
        """Stop reading a partition."""
        self._consumer.pause(TopicPartition(self._topic, partition))

    def resume(self, partition: int) -> None:
        """Read a paused partition again."""
        self._consumer.resume(TopicPartition(self._topic, partition))

    def seek(self, partition: int, offset: int) -> None:
        """Read a partition from this offset on."""
        self._consumer.seek(TopicPartition(self._topic, partition), offset)

    async def commit(
        self, offsets: Mapping[int, Committed], records: Sequence[BufferedRecord] = ()
    ) -> None:
        """Commit offsets; raises OwnershipLost if other members own the partitions."""
        named = {
            TopicPartition(self._topic, partition): OffsetAndMetadata(*committed)
            for partition, committed in offsets.items()
        }
        # A coordinator checks the member, and not whether it owns the partitions.
        if foreign := named.keys() - self._consumer.assignment:
            raise OwnershipLost(f"{sorted(foreign)} are not assigned to this member")
        if self._transactions is not None:
            await self._transactions.write(records, Commit(named, member_of(self._consumer)))
            return
        assert not records, "only a group with exactly_once writes records with its offsets"
        try:
            await self._consumer.commit(named, timeout=COMMIT_SECONDS_MAX)
        except (CommitFailedError, IllegalStateError) as error:
            raise OwnershipLost(str(error)) from error

    async def close(self, within_seconds: float) -> None:
        """Give the partitions up, and leave the group."""
        try:
            await self._consumer.close(within_seconds)
        finally:
            if self._transactions is not None:
                await self._transactions.close()

    async def offsets_of_assigned(
        self, partitions: frozenset[TopicPartition]
    ) -> dict[int, Committed | None] | None:
        """Return the `first_offsets` when they are known; None if the membership ends before."""
        return await offsets_of_assigned(
            self._consumer,
            lambda: self.first_offsets(partitions),
            self._group,
            f"topic={self._topic} partitions={_numbers(partitions)}",
        )

    async def first_offsets(
        self, partitions: frozenset[TopicPartition]
    ) -> dict[int, Committed | None]:
        """Return the committed offsets, after committing the end for partitions without one.

        With ``start_from="latest"``, records that are written while no member reads would be
        passed over otherwise.
        """
        committed = await self._consumer.committed(partitions)
        missing = frozenset(where for where, offset in committed.items() if offset is None)
        ends: dict[int, Committed | None] = {}
        if missing and self._starts_latest:
            for where, offset in (await self._consumer.end_offsets(missing)).items():
                self._consumer.seek(where, offset)
                ends[where.partition] = Committed(offset)
            await self.commit({number: end for number, end in ends.items() if end is not None})
        return {
            where.partition: None if offset is None else Committed(offset.offset, offset.metadata)
            for where, offset in committed.items()
        } | ends


class _Listener(RebalanceListener):
    """Tells the owner what the group gives and takes."""

    def __init__(self, group_log: KafkaGroupLog, owner: PartitionOwner) -> None:
        self._log = group_log
        self._owner = owner

    async def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        offsets = await self._log.offsets_of_assigned(partitions)
        if offsets is not None:
            await self._owner.assigned(offsets)

    async def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        await self._owner.revoked(_numbers(partitions))

    async def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        await self._owner.lost(_numbers(partitions))


def _numbers(partitions: Collection[TopicPartition]) -> list[int]:
    return sorted(where.partition for where in partitions)
