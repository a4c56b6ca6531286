"""Moves what waits down the tiers, and to the group's own topic when it is due.

    tiers, `due`   --read--> a shelf for each partition --ready, written--> next tier, own topic
     consumer group              bounded                                     then: commit

Each worker process runs one for each of its groups; together they are the members of an ordinary
consumer group, so each partition has one owner.  A partition that is given up is committed first.
When a process dies, its partitions move after the session timeout, and no record waits longer
than that.  Nothing here holds a lock or spends a delivery: to the share group, a record that
waits is a record that was accepted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sharegroup.errors import KafkaError
from sharegroup.worker.decisions.tiers import TIERS, Tiers
from sharegroup.worker.declared.names import due_topic
from sharegroup.worker.events import Events
from sharegroup.worker.ports import Clock, Outbox
from sharegroup.worker.retrying.shelf import Shelf
from sharegroup.worker.retrying.tier_log import Committed, TierLog, TierPartition
from sharegroup.worker.retrying.tier_mover import Moving, TierMover

log = logging.getLogger(__name__)

AHEAD_RECORDS = 1_000
AHEAD_BYTES = 1024 * 1024
"""Read ahead in each partition of a tier: enough that moving never waits for reading."""
DUE_RECORDS = 50_000
DUE_BYTES = 64 * 1024 * 1024
"""Of all partitions of ``due`` together, where any record may be the next."""

READ_SECONDS = 1.0
BACKOFF_SECONDS = 1.0
BACKOFF_SECONDS_MAX = 30.0
BACKOFF_DOUBLINGS = 5
REVOKE_SECONDS_MAX = 3.0
"""A write that takes longer is not waited for when a partition moves; it may come twice."""


class TierState(NamedTuple):
    """What a tier's partition looks like to its owner."""

    partition: TierPartition
    committed: Committed
    held: int
    """Records in memory."""
    waiting: int | None
    """Records that wait, read or not; None before anything is known of the partition."""
    ready_ms: int | None
    """When the first of those in memory is ready."""


class Scheduler:
    """One group's, in this process; a `TierOwner`."""

    __slots__ = ("_ended", "_movers", "_moving", "_stopping", "_tasks", "_tasks_of")

    def __init__(
        self,
        group: str,
        clock: Clock,
        outbox: Outbox,
        tier_log: TierLog,
        *,
        tiers: Tiers = TIERS,
        events: Events | None = None,
    ) -> None:
        self._moving = Moving(group, tiers, outbox, clock, tier_log, events or Events())
        self._movers: dict[TierPartition, TierMover] = {}
        self._tasks_of: dict[TierPartition, asyncio.Task[None]] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Own partitions and move their records until `stop`."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                reading = tasks.create_task(self._read())
                await self._stopping.wait()
                reading.cancel()
                await self.revoked(tuple(self._movers))
        finally:
            self._tasks = None
            self._ended.set()
            await self._moving.tier_log.close()

    async def stop(self) -> None:
        """Finish what is being written, commit it, and leave the group to the others."""
        self._stopping.set()
        if self._tasks is not None:
            await self._ended.wait()

    def snapshot(self) -> tuple[TierState, ...]:
        """What this process owns."""
        return tuple(self._state(mover) for mover in self._movers.values())

    async def assigned(self, partitions: Mapping[TierPartition, Committed]) -> None:
        """Begin where the owner before left off."""
        if self._tasks is None or self._stopping.is_set():
            return
        due = due_topic(self._moving.group)
        due_count = sum(one.topic == due for one in partitions) or 1
        for partition, committed in partitions.items():
            assert partition not in self._movers, f"{partition} is assigned, and was not revoked"
            if partition.topic == due:
                records_max, bytes_max = DUE_RECORDS // due_count, DUE_BYTES // due_count
            else:
                records_max, bytes_max = AHEAD_RECORDS, AHEAD_BYTES
            shelf = Shelf(committed, records_max=records_max, bytes_max=bytes_max)
            mover = self._movers[partition] = TierMover(self._moving, partition, shelf)
            self._tasks_of[partition] = self._tasks.create_task(mover.run())
        log.info("event=tiers_owned group=%s partitions=%d", self._moving.group, len(partitions))

    async def revoked(self, partitions: Iterable[TierPartition]) -> None:
        """Let what is being written now end, and forget the rest; it is read by the next owner."""
        ending = []
        for partition in partitions:
            if partition in self._movers:
                self._movers.pop(partition).stop()
                ending.append(self._tasks_of.pop(partition))
        if not ending:
            return
        _, late = await asyncio.wait(ending, timeout=REVOKE_SECONDS_MAX)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
            log.warning(
                "event=tiers_cut_off group=%s partitions=%d: the next owner may move some "
                "records twice",
                self._moving.group,
                len(late),
            )

    async def _read(self) -> None:
        """Hand each mover what comes next in its partition; begin anew after a failure."""
        tier_log, clock = self._moving.tier_log, self._moving.clock
        topics = self._moving.tiers.topics(self._moving.group)
        failures = 0
        while True:
            try:
                await tier_log.start(topics, self)
                while True:
                    found = await tier_log.read(READ_SECONDS)
                    failures = 0
                    for partition, records in found.items():
                        if partition in self._movers:
                            self._movers[partition].put(records)
            except KafkaError as error:
                log.warning(
                    "event=tiers_unreadable group=%s error=%s: %s",
                    self._moving.group,
                    type(error).__name__,
                    error,
                )
            await self.revoked(tuple(self._movers))
            pause_seconds = min(BACKOFF_SECONDS * 2**failures, BACKOFF_SECONDS_MAX)
            failures = min(failures + 1, BACKOFF_DOUBLINGS)
            await clock.sleep_until(clock.now() + pause_seconds)

    def _state(self, mover: TierMover) -> TierState:
        shelf = mover.shelf
        end = self._moving.tier_log.end_offset(mover.partition)
        waiting = None if end is None else max(end - shelf.next_offset, 0) + len(shelf)
        return TierState(mover.partition, shelf.committed, len(shelf), waiting, shelf.ready_ms)
