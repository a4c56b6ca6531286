"""Keeps ``__share_group_state`` small: what a snapshot has made superfluous goes.

A share partition needs its last snapshot and what came after, so a partition of the topic needs
nothing before the oldest of the last snapshots in it.

    a snapshot | b snapshot | a a a a | a snapshot | a a          needed from b's snapshot on
                 ^ cold                                            b again, and the rest can go

Two jobs see to it, as in Kafka, where the beginning is deleted and where share partitions that
hold it back because nobody writes them are snapshotted again.  Kafka stops the second for good
once every share partition has lain cold; here it asks each time whether half of the records would
go.

Deleting frees whole segments.  A partition of the topic of which more than half is superfluous
is therefore *moved*: a new segment begins, all that live in it are snapshotted into it, and
when that is durable the older segments go (ADR 0012).  Every move is paid for by the bytes that
were written since the last.  After a `prune` a partition of the topic has at most twice its live
snapshots and `SPARE_BYTES`.

Nothing is deleted before what replaces it is on disk; whatever fails is done the next time.
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
from sharegroup.storage.partition_log import PartitionLog
from sharegroup.storage.tickets import Ticket

log = logging.getLogger(__name__)

SPARE_BYTES = 32 * 1024
"""A partition of the topic may be so much larger than twice its snapshots: about 300 updates."""

SNAPSHOT_BATCH_BYTES = 256 * 1024
"""Snapshots of about so many bytes are written in one turn of the event loop."""


class _Prunable(NamedTuple):
    """A partition of the topic that may begin at ``offset`` when all up to ``end`` is durable."""

    partition: int
    log: PartitionLog
    offset: int
    end: int
    last: Ticket | None


class StatePruning:
    """See the module's text."""

    __slots__ = (
        "_checkpoint",
        "_clock",
        "_config",
        "_coordinator",
        "_is_on",
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
    ) -> None:
        """``checkpoint`` brings to disk what was written, where nothing else does; or None."""
        self._coordinator = coordinator
        self._topics = topics
        self._clock = clock
        self._config = config
        self._is_on = is_on
        self._checkpoint = checkpoint
        self.last_pruned: dict[int, int] = {}
        """By partition, the offset that it was last pruned to."""

    async def run(self) -> None:
        """Do both jobs at their intervals, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._every(self._config.prune_interval_ms, self.prune))
            tasks.create_task(self._every(self._config.cold_snapshot_ms, self.snapshot_cold))

    async def snapshot_cold(self) -> None:
        """Snapshot what lies cold wherever that lets half of the records go."""
        for partition, keys in self._coordinator.by_partition().items():
            log_ = self._log(partition)
            needed_from = self._coordinator.needless_before(keys, log_end=log_.end_offset)
            if log_.end_offset - needed_from <= 2 * len(keys):
                continue
            cold = [key for key in keys if self._coordinator.is_cold(key)]
            try:
                await self._snapshot(cold)
            except KafkaError as error:
                _log_failed("cold_snapshots", partition, error)

    async def prune(self) -> None:
        """Delete what nobody needs any more, in every partition of the topic."""
        for partition, keys in self._coordinator.by_partition().items():
            try:
                await self._move(partition, keys)
            except KafkaError as error:
                _log_failed("move", partition, error)
        found = self._prunable()
        if self._checkpoint is not None and found:
            await self._checkpoint()
        for one in found:
            try:
                await self._delete(one)
            except KafkaError as error:
                _log_failed("prune", one.partition, error)

    async def _every(self, interval_ms: int, job: Callable[[], Awaitable[None]]) -> None:
        while True:
            await sleep_ms(self._clock, interval_ms)
            if self._is_on():
                await job()

    async def _move(self, partition: int, keys: Sequence[SharePartitionKey]) -> None:
        """Write all that lives to a new segment, where more than half is superfluous."""
        log_ = self._log(partition)
        live_bytes = sum(map(self._coordinator.snapshot_bytes, keys))
        if log_.size > 2 * live_bytes + SPARE_BYTES:
            log_.roll()
            await self._snapshot(keys)

    def _prunable(self) -> list[_Prunable]:
        """What can go, in one plain call: whoever comes later, comes behind the end."""
        topic = self._topics.catalog.topic(SHARE_GROUP_STATE)
        living = self._coordinator.by_partition()
        found = []
        for partition in range(topic.partition_count):
            if not self._topics.is_touched(topic, partition):
                continue
            log_ = self._log(partition)
            end = log_.end_offset
            offset = self._coordinator.needless_before(living.get(partition, ()), log_end=end)
            if offset > log_.start_offset:
                last = self._coordinator.last_of(partition)
                found.append(_Prunable(partition, log_, offset, end, last))
        return found

    async def _snapshot(self, keys: Sequence[SharePartitionKey]) -> None:
        """In slices, so that nobody waits long."""
        for some in self._slices(keys):
            self._coordinator.snapshot(some)
            await asyncio.sleep(0)

    def _slices(self, keys: Sequence[SharePartitionKey]) -> Iterator[list[SharePartitionKey]]:
        some: list[SharePartitionKey] = []
        size = 0
        for key in keys:
            some.append(key)
            size += self._coordinator.snapshot_bytes(key)
            if size >= SNAPSHOT_BATCH_BYTES:
                yield some
                some, size = [], 0
        if some:
            yield some

    async def _delete(self, one: _Prunable) -> None:
        if self._checkpoint is None:
            if one.last is not None:
                await one.last
        elif one.log.recovery_point < one.end:
            return  # The checkpoint failed, and has said so.
        size = one.log.size
        await one.log.delete_before(one.offset)
        self.last_pruned[one.partition] = one.offset
        log.info(
            "event=state_pruned partition=%d to=%d bytes_before=%d bytes=%d",
            one.partition,
            one.offset,
            size,
            one.log.size,
        )

    def _log(self, partition: int) -> PartitionLog:
        return self._topics.named(SHARE_GROUP_STATE, partition)[1]


def _log_failed(job: str, partition: int, error: KafkaError) -> None:
    """The disk; the next run tries again, and until then there is only more to read at start."""
    log.warning("event=%s_failed partition=%d error=%r", job, partition, str(error))
