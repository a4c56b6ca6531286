"""The retry tiers in memory, for a group whose only scheduler this is; a `TierLog`."""

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
"""Of each partition at a time, as a broker gives a portion."""


class MemoryTierLog:
    """See the module's text."""

    __slots__ = ("_arrived", "_group", "_is_cut", "_log", "_paused", "_positions")

    def __init__(self, scheduler_group: str, log: MemoryLog) -> None:
        self._group = scheduler_group
        self._log = log
        self._positions: dict[TierPartition, int] = {}
        self._paused: set[TierPartition] = set()
        self._arrived = asyncio.Event()
        self._is_cut = False

    async def start(self, topics: Sequence[str], owner: TierOwner) -> None:
        """Own every partition of these topics at once."""
        owned = {
            TierPartition(topic, number): self._log.committed.get(
                (self._group, topic, number), NOTHING
            )
            for topic in topics
            for number in range(len(self._log.partitions(topic)))
        }
        self._positions = {partition: left.offset for partition, left in owned.items()}
        self._log.on_append(self._appended)
        await owner.assigned(owned)

    async def read(self, wait_seconds: float) -> Mapping[TierPartition, Sequence[TierRecord]]:
        """What comes next in each partition that is not paused."""
        clock = self._log.clock
        over = clock.now() + wait_seconds
        alarm = clock.call_at(over, self._arrived.set, is_idle=True)
        try:
            while True:
                self._arrived.clear()
                if found := self._read():
                    return found
                if clock.now() >= over:
                    return {}
                await self._arrived.wait()
        finally:
            alarm.cancel()

    def pause(self, partition: TierPartition) -> None:
        """Read nothing more of it for now."""
        self._paused.add(partition)

    def resume(self, partition: TierPartition) -> None:
        """Read it again."""
        self._paused.discard(partition)
        self._arrived.set()

    def end_offset(self, partition: TierPartition) -> int | None:
        """Where it ends."""
        return len(self._log.partitions(partition.topic)[partition.partition])

    async def commit(self, partition: TierPartition, committed: Committed) -> None:
        """Leave this to the next owner."""
        if not self._is_cut:
            self._log.committed[self._group, *partition] = committed

    async def close(self) -> None:
        """Own nothing any more."""
        if self._positions:
            self._log.forget(self._appended)
        self._positions = {}

    def cut(self) -> None:
        """The process is dead: nothing that it still commits counts."""
        self._is_cut = True

    def _read(self) -> dict[TierPartition, list[TierRecord]]:
        found = {}
        for partition, position in self._positions.items():
            if partition in self._paused or self._is_cut:
                continue
            lying = self._log.partitions(partition.topic)[partition.partition]
            some = lying[position : position + READ_RECORDS_MAX]
            if some:
                self._positions[partition] = position + len(some)
                found[partition] = [
                    TierRecord(one.offset, one.timestamp_ms, one.key, one.value, one.headers)
                    for one in some
                ]
        return found

    def _appended(self, topic: str) -> None:
        if any(one.topic == topic for one in self._positions):
            self._arrived.set()
