"""The tiers' topics in memory: one owner, who has all partitions from the start."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from sharegroup.worker.retrying.tier_log import (
    Committed,
    OwnershipLost,
    TierOwner,
    TierPartition,
    TierRecord,
)
from sharegroup.worker.transport.memory_log import MemoryLog


class MemoryTierLog:
    """A `TierLog` over a `MemoryLog`; what was committed stays there for the next one."""

    __slots__ = ("_appended", "_group_id", "_log", "_owner", "_paused", "_positions")

    def __init__(self, log: MemoryLog, group_id: str) -> None:
        self._log = log
        self._group_id = group_id
        self._owner: TierOwner | None = None
        self._positions: dict[TierPartition, int] = {}
        self._paused: set[TierPartition] = set()
        self._appended = asyncio.Event()

    async def start(self, topics: Sequence[str], owner: TierOwner) -> None:
        """Take all partitions of these topics."""
        await self.close()
        self._owner = owner
        committed = {
            partition: self._committed(partition)
            for topic in topics
            for partition in (
                TierPartition(topic, number) for number in range(len(self._log.partitions(topic)))
            )
        }
        self._positions = {partition: one.offset for partition, one in committed.items()}
        self._log.on_append(self._wake)
        self._appended.set()
        await owner.assigned(committed)

    async def read(self, wait_seconds: float) -> Mapping[TierPartition, Sequence[TierRecord]]:  # noqa: ARG002
        """What comes next; while there is nothing, no time passes here."""
        while not (found := self._read()):
            await self._appended.wait()
            self._appended.clear()
        return found

    def pause(self, partition: TierPartition) -> None:
        """Read nothing more of it for now."""
        self._paused.add(partition)

    def resume(self, partition: TierPartition) -> None:
        """Read it again."""
        self._paused.discard(partition)
        self._appended.set()

    def end_offset(self, partition: TierPartition) -> int | None:
        """Where it ends."""
        return len(self._log.partitions(partition.topic)[partition.partition])

    async def commit(self, partition: TierPartition, committed: Committed) -> None:
        """Leave this to the next owner."""
        if partition not in self._positions:
            raise OwnershipLost(f"{partition} is not owned")
        place = (self._group_id, partition.topic, partition.partition)
        self._log.committed[place] = committed

    async def close(self) -> None:
        """Own nothing more."""
        if self._owner is not None:
            self._log.forget(self._wake)
        self._owner = None
        self._positions.clear()
        self._paused.clear()

    def _wake(self, topic: str) -> None:
        if any(topic == partition.topic for partition in self._positions):
            self._appended.set()

    def _committed(self, partition: TierPartition) -> Committed:
        place = (self._group_id, partition.topic, partition.partition)
        return self._log.committed.get(place, Committed(0))

    def _read(self) -> dict[TierPartition, list[TierRecord]]:
        found = {}
        for partition, position in self._positions.items():
            lying = self._log.partitions(partition.topic)[partition.partition]
            if partition not in self._paused and position < len(lying):
                found[partition] = [
                    TierRecord(one.offset, one.timestamp_ms, one.key, one.value, one.headers)
                    for one in lying[position:]
                ]
                self._positions[partition] = len(lying)
        return found
