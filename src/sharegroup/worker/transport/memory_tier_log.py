"""In-memory retry tiers for `App.test`, for a group with a single scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from sharegroup.worker.retrying.tier_log import (
    Committed,
    TierOwner,
    TierPartition,
    TierRecord,
)
from sharegroup.worker.transport.memory_log import MemoryLog

NOTHING = Committed(0)
READ_RECORDS_MAX = 500
"""The maximum number of records of each partition per read, as a broker limits a response."""


class MemoryTierLog:
    """Reads the retry topics of one group from memory; a `TierLog` that owns all partitions."""

    __slots__ = ("_arrived", "_group", "_is_cut", "_log", "_paused", "_positions")

    def __init__(self, scheduler_group: str, log: MemoryLog) -> None:
        self._group = scheduler_group
        self._log = log
        self._positions: dict[TierPartition, int] = {}
        self._paused: set[TierPartition] = set()
        self._arrived = asyncio.Event()
        self._is_cut = False

    async def start(self, topics: Sequence[str], owner: TierOwner) -> None:
        """Assign all partitions of these topics to ``owner`` immediately."""
        owned = {
            TierPartition(topic, number): self._log.committed.get(
                (self._group, topic, number), NOTHING
            )
            for topic in topics
            for number in range(len(self._log.partitions(topic)))
        }
        self._positions = {partition: committed.offset for partition, committed in owned.items()}
        self._log.on_append(self._appended)
        await owner.assigned(owned)

    async def read(self, wait_seconds: float) -> Mapping[TierPartition, Sequence[TierRecord]]:
        """Return the next records of all partitions that are not paused."""
        clock = self._log.clock
        deadline = clock.now() + wait_seconds
        alarm = clock.call_at(deadline, self._arrived.set, is_idle=True)
        try:
            while True:
                self._arrived.clear()
                if records := self._read():
                    return records
                if clock.now() >= deadline:
                    return {}
                await self._arrived.wait()
        finally:
            alarm.cancel()

    def pause(self, partition: TierPartition) -> None:
        """Stop reading a partition until `resume`."""
        self._paused.add(partition)

    def resume(self, partition: TierPartition) -> None:
        """Read a paused partition again."""
        self._paused.discard(partition)
        self._arrived.set()

    def end_offset(self, partition: TierPartition) -> int | None:
        """The end offset of the partition."""
        return len(self._log.partitions(partition.topic)[partition.partition])

    async def commit(self, partition: TierPartition, committed: Committed) -> None:
        """Commit an offset for the next owner."""
        if not self._is_cut:
            self._log.committed[self._group, *partition] = committed

    async def close(self) -> None:
        """Give up all partitions."""
        if self._positions:
            self._log.forget(self._appended)
        self._positions = {}

    def cut(self) -> None:
        """Simulate the death of the process: ignore its later commits and reads."""
        self._is_cut = True

    def _read(self) -> dict[TierPartition, list[TierRecord]]:
        records_by_partition = {}
        for partition, position in self._positions.items():
            if partition in self._paused or self._is_cut:
                continue
            records = self._log.partitions(partition.topic)[partition.partition]
            batch = records[position : position + READ_RECORDS_MAX]
            if batch:
                self._positions[partition] = position + len(batch)
                records_by_partition[partition] = [
                    TierRecord(
                        record.offset, record.timestamp_ms, record.key, record.value, record.headers
                    )
                    for record in batch
                ]
        return records_by_partition

    def _appended(self, topic: str) -> None:
        if any(partition.topic == topic for partition in self._positions):
            self._arrived.set()
