"""Owns partitions of the topic of schedules, as a member of the application's consumer group.

    group --assigned, revoked--> a `PartitionOwner` for each partition
    topic --declarations, commands--> `PartitionOwner.put`

The processes of an application share the partitions.  At its start each of them writes what it
declares; the owners adopt what is newer.  A partition is read only after it was taken over, because
the takeover itself reads all that is committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from sharegroup.backoff import Backoff, without_jitter
from sharegroup.errors import KafkaError
from sharegroup.schedules.schedule import partition_of, schedules_topic
from sharegroup.schedules.schedule_records import encoded, key_of
from sharegroup.worker.declarations.schedules import DeclaredSchedule
from sharegroup.worker.ports import Outbox
from sharegroup.worker.retrying.scheduler import (
    BACKOFF_MS_MAX,
    BACKOFF_MS_MIN,
    READ_SECONDS,
    REVOKE_SECONDS_MAX,
    ended,
)
from sharegroup.worker.retrying.tier_log import (
    Committed,
    OwnershipLost,
    TierPartition,
    TierRecord,
)
from sharegroup.worker.scheduling.partition_owner import (
    PartitionOwner,
    ScheduleFigures,
    SchedulingParts,
)
from sharegroup.worker.scheduling.schedule_store import ScheduleAccess

log = logging.getLogger(__name__)


class ScheduleOwner:
    """The schedules of an application in this process; a `TierOwner`."""

    __slots__ = (
        "_access",
        "_declared",
        "_ended",
        "_outbox",
        "_owners",
        "_parts",
        "_stopping",
        "_tasks",
        "_tasks_of",
        "_tier_log",
    )

    def __init__(
        self,
        parts: SchedulingParts,
        declared: Sequence[DeclaredSchedule],
        *,
        access: ScheduleAccess,
        outbox: Outbox,
    ) -> None:
        self._parts = parts
        self._declared = tuple(declared)
        self._access = access
        self._tier_log = access.tier_log
        self._outbox = outbox
        self._owners: dict[TierPartition, PartitionOwner] = {}
        self._tasks_of: dict[TierPartition, tuple[asyncio.Task[None], ...]] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()
        self._ended.set()

    async def run(self) -> None:
        """Declare the schedules, and make the runs of owned partitions until `stop`."""
        self._ended.clear()
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                declaring = tasks.create_task(self._declare())
                reading = tasks.create_task(self._read())
                await self._stopping.wait()
                declaring.cancel()
                reading.cancel()
                await self.revoked(tuple(self._owners))
        finally:
            self._tasks = None
            try:
                await self._tier_log.close()
            finally:
                await self._access.close()
                # `stop` waits for this, also if the close has failed.
                self._ended.set()

    async def stop(self) -> None:
        """Finish the transactions that are under way, and leave the group."""
        self._stopping.set()
        await self._ended.wait()

    def figures(self) -> tuple[ScheduleFigures, ...]:
        """What this process knows of its schedules."""
        overdue: dict[str, float] = {}
        for owner in self._owners.values():
            overdue |= owner.overdue_seconds()
        runs, missed = self._parts.runs, self._parts.missed
        names = sorted({*overdue, *runs, *missed})
        return tuple(
            ScheduleFigures(name, runs[name], missed[name], overdue.get(name)) for name in names
        )

    async def assigned(self, partitions: Mapping[TierPartition, Committed]) -> None:
        """Start an owner for each partition."""
        if self._tasks is None or self._stopping.is_set():
            return
        for partition in partitions:
            self._tier_log.pause(partition)
            owner = self._owners[partition] = PartitionOwner(self._parts, partition)
            self._tasks_of[partition] = (
                self._tasks.create_task(owner.run()),
                self._tasks.create_task(self._read_on(owner)),
            )

    async def revoked(self, partitions: Iterable[TierPartition]) -> None:
        """Stop the owners of these partitions after their transactions."""
        ending: list[asyncio.Task[None]] = []
        for partition in partitions:
            owner = self._owners.pop(partition, None)
            if owner is None:
                continue
            owner.stop()
            running, reading = self._tasks_of.pop(partition)
            reading.cancel()
            ending += (running, asyncio.ensure_future(self._commit(owner)))
        if ending:
            # The next owner fences one that is cut off here.
            await ended(ending, REVOKE_SECONDS_MAX)

    async def _read_on(self, owner: PartitionOwner) -> None:
        """Read a partition from its takeover on."""
        await owner.taken.wait()
        self._tier_log.resume(owner.partition)

    async def _commit(self, owner: PartitionOwner) -> None:
        """Spare the next owner what was read; it passes over records below its takeover anyway."""
        if not owner.next_offset:
            return
        try:
            await self._tier_log.commit(owner.partition, Committed(owner.next_offset))
        except (KafkaError, OwnershipLost) as error:
            log.debug("event=schedules.not_committed at=%s reason=%r", owner.partition, error)

    async def _read(self) -> None:
        """Pass the records that are read to the owners; start again after each failure."""
        await self._retried("schedules.unreadable", self._read_until_it_fails)

    async def _read_until_it_fails(self) -> None:
        try:
            await self._tier_log.start([schedules_topic(self._parts.app_name)], self)
            while True:
                for partition, records in (await self._tier_log.read(READ_SECONDS)).items():
                    await self._put(partition, records)
        finally:
            # The group may give the partitions to others during the pause.
            await self.revoked(tuple(self._owners))

    async def _put(self, partition: TierPartition, records: Sequence[TierRecord]) -> None:
        owner = self._owners.get(partition)
        if owner is None:
            return
        if records[0].offset >= owner.next_offset:
            owner.put(records)
            return
        log.error(
            "event=schedules.begun_again app=%s partition=%d position=%d first=%d action='records "
            "were lost, or the topic was made anew: the schedules are declared again'",
            self._parts.app_name, partition.partition, owner.next_offset, records[0].offset,
        )  # fmt: skip
        await self.revoked([partition])
        await self.assigned({partition: Committed(0)})
        if self._tasks is not None:
            self._tasks.create_task(self._declare())

    async def _declare(self) -> None:
        """Write a declaration of each schedule; the owners adopt those that are newer."""
        topic = schedules_topic(self._parts.app_name)
        for declared in self._declared:

            async def write(declared: DeclaredSchedule = declared) -> None:
                make = declared.definition
                definition = await asyncio.to_thread(make) if declared.may_block else make()
                await self._outbox.send(
                    topic,
                    encoded(definition),
                    key=key_of(definition),
                    partition=partition_of(definition.name),
                )

            await self._retried("schedules.undeclared", write)

    async def _retried(self, event: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do ``work``; after a failure, tell it and do it again."""
        clock = self._parts.clock
        backoff = Backoff(BACKOFF_MS_MIN, BACKOFF_MS_MAX, chance=without_jitter)
        while True:
            try:
                await work()
            # An OSError is one of a schema registry.
            except (KafkaError, OSError) as error:
                log.warning(
                    'event=%s app=%s error="%s: %s" action="it is tried again"',
                    event,
                    self._parts.app_name,
                    type(error).__name__,
                    error,
                )
                await clock.sleep_until(clock.now() + backoff.next_ms() / 1000)
            else:
                return
