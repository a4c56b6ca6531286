"""Keeps ``__share_group_state`` small: deletes the records that snapshots have made superfluous.

A share partition needs its last snapshot and the records after it, so a partition of the topic
needs nothing before the oldest of its last snapshots.

    a snapshot | b snapshot | a a a a | a snapshot | a a          needed from b's snapshot on
                 ^ cold                                            b again, and the rest can go

There are two jobs, as in Kafka.  One deletes the beginning of each partition.  The other snapshots
share partitions again that hold the deletion back because they are not written.  Kafka stops the
second for good once every share partition has been cold; here it checks each time whether half of
the records could be deleted.

Only whole segments can be deleted.  So a partition of the topic of which more than half is
superfluous is *moved*: a new segment begins, all live share partitions are snapshotted into it,
and when that is durable the older segments are deleted (ADR 0012).  The bytes written since the
last move pay for each move.  After a `prune` a partition of the topic has at most twice the size of
its live snapshots plus `SPARE_BYTES`.

Nothing is deleted before its replacement is on disk; failed work is done the next time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple

from sharegroup.broker.clock import Clock, sleep_ms
from sharegroup.broker.cluster.catalog import SHARE_GROUP_STATE
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.configuration.config import CoordinatorConfig
from sharegroup.broker.share.share_coordinator import ShareCoordinator
from sharegroup.errors import KafkaError
from sharegroup.ids import SharePartitionKey
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.storage.sync.tickets import Ticket

log = logging.getLogger(__name__)

SPARE_BYTES = 32 * 1024
"""The size that a partition may have beyond twice its snapshots: about 300 updates."""

SNAPSHOT_BATCH_BYTES = 256 * 1024
"""The approximate bytes of snapshots that are written in one turn of the event loop."""

SNAPSHOT_BATCH_KEYS = 128
"""The most share partitions that are snapshotted in one turn; it takes about 3 ms."""


class _Prunable(NamedTuple):
    """A partition of the topic that may begin at ``offset`` when all up to ``end`` is durable."""

    partition: int
    log: PartitionLog
    offset: int
    end: int
    last: Ticket | None


class StatePruning:
    """Deletes superfluous records of the share-state topic, and writes snapshots to allow it."""

    __slots__ = (
        "_checkpoint",
        "_clock",
        "_config",
        "_coordinator",
        "_is_on",
        "_snapshot_batch_bytes",
        "_spare_bytes",
        "_topics",
        "last_pruned",
    )

    def __init__(
        self,
        coordinator: ShareCoordinator,
        topics: Topics,
        clock: Clock,
        config: CoordinatorConfig,
        *,
        is_on: Callable[[], bool],
        checkpoint: Callable[[], Awaitable[None]] | None,
        spare_bytes: int = SPARE_BYTES,
        snapshot_batch_bytes: int = SNAPSHOT_BATCH_BYTES,
    ) -> None:
        """``checkpoint`` brings written records to disk if nothing else does; otherwise None."""
        self._coordinator = coordinator
        self._topics = topics
        self._clock = clock
        self._config = config
        self._is_on = is_on
        self._checkpoint = checkpoint
        self._spare_bytes = spare_bytes
        self._snapshot_batch_bytes = snapshot_batch_bytes
        self.last_pruned: dict[int, int] = {}
        """The offset that each partition was last pruned to."""

    async def run(self) -> None:
        """Run both jobs at their intervals, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._every(self._config.prune_interval_ms, self.prune))
            tasks.create_task(self._every(self._config.cold_snapshot_ms, self.snapshot_cold))

    async def snapshot_cold(self) -> None:
        """Snapshot cold share partitions wherever that lets half of the records be deleted."""
        for partition, keys in (await self._listed()).items():
            await asyncio.sleep(0)
            log_ = self._log(partition)
            needed_from = self._coordinator.needless_before(keys, log_end=log_.end_offset)
            # Snapshots of all would leave one record of each share partition instead of these.
            if log_.end_offset - needed_from <= 2 * len(keys):
                continue
            cold = [key for key in keys if self._coordinator.is_cold(key)]
            try:
                await self._snapshot(cold)
            except KafkaError as error:
                _log_failed("cold_snapshots", partition, error)

    async def prune(self) -> None:
        """Delete the superfluous records of every partition of the topic."""
        for partition, keys in (await self._listed()).items():
            await asyncio.sleep(0)
            try:
                await self._move(partition, keys)
            except KafkaError as error:
                _log_failed("move", partition, error)
        # After the moves, whose snapshots make older records superfluous.
        prunables = await self._prunable()
        if self._checkpoint is not None and prunables:
            await self._checkpoint()
        for prunable in prunables:
            try:
                await self._delete(prunable)
            except KafkaError as error:
                _log_failed("prune", prunable.partition, error)

    async def _every(self, interval_ms: int, job: Callable[[], Awaitable[None]]) -> None:
        while True:
            await sleep_ms(self._clock, interval_ms)
            if self._is_on():
                await job()

    async def _move(self, partition: int, keys: Sequence[SharePartitionKey]) -> None:
        """Write all live share partitions to a new segment if more than half is superfluous."""
        log_ = self._log(partition)
        live_bytes = sum(map(self._coordinator.snapshot_bytes, keys))
        if log_.size > 2 * live_bytes + self._spare_bytes:
            # Only whole segments can be deleted, so the snapshots must begin a new one (ADR 0012).
            log_.roll()
            await self._snapshot(keys)

    async def _listed(self) -> dict[int, list[SharePartitionKey]]:
        """List the share partitions of each partition of the topic; there may be 20,000."""
        listing = self._coordinator.by_partition()
        while True:
            try:
                next(listing)
            except StopIteration as end:
                listed: dict[int, list[SharePartitionKey]] = end.value
                return listed
            await asyncio.sleep(0)

    async def _prunable(self) -> list[_Prunable]:
        """Find what can be deleted, one partition of the topic after the other.

        The end offsets are noted before the listing, so new share partitions have their records
        above them.  If a write failed meanwhile, the states were reloaded and may be older, so
        nothing is returned until the next time.
        """
        topic = self._topics.catalog.topic(SHARE_GROUP_STATE)
        # Of existing logs only, because asking for the others would create their files (ADR 0007).
        ends = {
            partition: self._log(partition).end_offset
            for partition in range(topic.partition_count)
            if self._topics.is_touched(topic, partition)
        }
        reload_count = self._coordinator.reload_count
        living = await self._listed()
        prunables = []
        for partition, end in ends.items():
            await asyncio.sleep(0)
            if self._coordinator.reload_count != reload_count:
                return []
            needless = self._coordinator.needless_before(living.get(partition, ()), log_end=end)
            log_, offset = self._log(partition), min(needless, end)
            if offset > log_.start_offset:
                last = self._coordinator.last_of(partition)
                prunables.append(_Prunable(partition, log_, offset, log_.end_offset, last))
        return prunables

    async def _snapshot(self, keys: Sequence[SharePartitionKey]) -> None:
        """Snapshot share partitions in slices, so that no request waits long."""
        for slice_keys in self._slices(keys):
            self._coordinator.snapshot(slice_keys)
            await asyncio.sleep(0)

    def _slices(self, keys: Sequence[SharePartitionKey]) -> Iterator[list[SharePartitionKey]]:
        """Divide share partitions into slices by the size of their snapshots."""
        slice_keys: list[SharePartitionKey] = []
        size = 0
        for key in keys:
            slice_keys.append(key)
            size += self._coordinator.snapshot_bytes(key)
            if size >= self._snapshot_batch_bytes or len(slice_keys) == SNAPSHOT_BATCH_KEYS:
                yield slice_keys
                slice_keys, size = [], 0
        if slice_keys:
            yield slice_keys

    async def _delete(self, prunable: _Prunable) -> None:
        """Delete the superfluous segments of one partition if their replacement is durable."""
        if self._checkpoint is None:
            if prunable.last is not None:
                await prunable.last
        # With durability=os a ticket says nothing about the disk.  Only a recovery point behind the
        # snapshots shows that they are on it.
        elif prunable.log.recovery_point < prunable.end:
            return  # The checkpoint failed, and has logged that.
        size = prunable.log.size
        await prunable.log.delete_before(prunable.offset)
        self.last_pruned[prunable.partition] = prunable.offset
        log.info(
            "event=state_pruned partition=%d to=%d bytes_before=%d bytes=%d",
            prunable.partition,
            prunable.offset,
            size,
            prunable.log.size,
        )

    def _log(self, partition: int) -> PartitionLog:
        return self._topics.named(SHARE_GROUP_STATE, partition)[1]


def _log_failed(job: str, partition: int, error: KafkaError) -> None:
    """Log a disk error; the next run tries again, and until then a start has more to read."""
    log.warning("event=%s_failed partition=%d error=%r", job, partition, str(error))
