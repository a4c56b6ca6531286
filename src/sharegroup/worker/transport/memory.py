"""The in-memory environment of `App.test`: topics and share groups for successive processes.

A `MemoryWorld` outlives its processes.  `MemoryProcess.parts` makes the parts of a worker, and
`MemoryProcess.cut` ends the process as ``kill -9`` would.  Then the log keeps the records that
were written, the groups release the records that the process had locked, and later calls by the
tasks of the process have no effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from itertools import count
from typing import Unpack

from sharegroup.client import TopicPartition
from sharegroup.client.net.cluster import Reachability
from sharegroup.core.delivery.delivery import SharePartitionLimits
from sharegroup.errors import KafkaError
from sharegroup.schedules.schedule import owners_group, schedules_topic
from sharegroup.schedules.schedule_log import NewestRecords, ReadPartition
from sharegroup.worker.consuming.group_log import GroupReading
from sharegroup.worker.parts import ShareGroupLimits, WorkerParts
from sharegroup.worker.ports import SendOptions, WrittenRecord
from sharegroup.worker.retrying.tier_log import TierLog
from sharegroup.worker.retrying.tier_moves import MovedRecord
from sharegroup.worker.scheduling.schedule_store import RunRefused, ScheduleAccess
from sharegroup.worker.transport.group_log_memory import MemoryConsumerGroup, MemoryGroupLog
from sharegroup.worker.transport.memory_clock import MemoryClock
from sharegroup.worker.transport.memory_log import MemoryLog, MemoryTierLog, MemoryTierMoves
from sharegroup.worker.transport.memory_replies import MemoryReplyLog
from sharegroup.worker.transport.memory_source import MemoryGroup, MemorySource, Place, Standing


class MemoryProcess:
    """One worker process in a `MemoryWorld`."""

    def __init__(self, world: MemoryWorld, app_name: str) -> None:
        self._world = world
        self._app_name = app_name
        self._sources: list[MemorySource] = []
        self._group_logs: list[MemoryGroupLog] = []
        self._tier_logs: list[MemoryTierLog] = []
        self._reply_logs: list[MemoryReplyLog] = []
        self.outbox = MemoryOutbox(world.log)

    def parts(self) -> WorkerParts:
        """Return the parts for the `Worker` of this process."""
        return WorkerParts(
            open_source=self._open_source,
            open_group_log=self._open_group_log,
            outbox=self.outbox,
            clock=self._world.clock,
            open_tier_log=self._open_tier_log,
            open_schedules=self._open_schedules,
            open_tier_moves=self._open_tier_moves,
            open_replies=self._open_replies,
            admin=None,
            group_limits=self._group_limits,
            reachability=lambda: Reachability(is_connected=True, lost={}),
            close=self._close,
        )

    def cut(self) -> None:
        """End the process as ``kill -9`` would."""
        self.outbox.cut()
        for tier_log in self._tier_logs:
            tier_log.cut()
        for source in self._sources:
            source.cut()
        for group_log in self._group_logs:
            group_log.cut()
        for reply_log in self._reply_logs:
            reply_log.cut()

    def lose(self, place: Place) -> None:
        """End the lock of this record now, if this process has it."""
        for source in self._sources:
            if source.holds(place):
                source.lose(place)

    def _open_source(
        self,
        group: str,
        topic: str,
        in_flight_bytes: int,  # noqa: ARG002  Nothing is fetched ahead here.
    ) -> MemorySource:
        member_id = f"{group}-{next(self._world.members)}"
        source = MemorySource(member_id, self._world.group(group), topic, self._world.log)
        self._sources.append(source)
        return source

    def _open_group_log(self, reading: GroupReading) -> MemoryGroupLog:
        member_id = f"{reading.group}-{next(self._world.members)}"
        group = self._world.consumer_group(reading.group)
        self._group_logs.append(MemoryGroupLog(member_id, group, reading.topic, self._world.log))
        return self._group_logs[-1]

    async def lose_partitions(self, group: str) -> None:
        """End the membership of this process in a consumer group, without a revocation."""
        for group_log in self._group_logs:
            if group_log.group == group:
                await group_log.lose()

    def _open_tier_log(self, group: str) -> MemoryTierLog:
        tier_log = MemoryTierLog(group, self._world.log)
        self._tier_logs.append(tier_log)
        return tier_log

    def _open_schedules(self) -> ScheduleAccess:
        def open_store(partition: int) -> MemoryScheduleStore:
            return MemoryScheduleStore(self._world.log, self.outbox, self._app_name, partition)

        tier_log = self._open_tier_log(owners_group(self._app_name))
        return ScheduleAccess(tier_log, open_store, self._close)

    def _open_tier_moves(self, group: str, tier_log: TierLog) -> MemoryTierMoves:
        assert isinstance(tier_log, MemoryTierLog), "as `_open_tier_log` opens it"
        return MemoryTierMoves(group, self._world.log, tier_log)

    def _open_replies(self, topic: str) -> MemoryReplyLog:
        self._reply_logs.append(MemoryReplyLog(topic, self._world.log))
        return self._reply_logs[-1]

    async def _group_limits(self, group: str) -> ShareGroupLimits:
        limits = self._world.group(group).limits
        return ShareGroupLimits(
            deliveries=limits.delivery_count_max,
            locks=limits.in_flight_max,
            renewal=limits.renewal,
        )

    async def _close(self) -> None:
        """Do nothing."""


class MemoryWorld:
    """The topics, share groups and clock of a test, shared by its processes."""

    __slots__ = ("_limits", "clock", "consumer_groups", "groups", "log", "members")

    def __init__(self, limits: SharePartitionLimits) -> None:
        self.clock = MemoryClock()
        self.log = MemoryLog(self.clock)
        self.groups: dict[str, MemoryGroup] = {}
        self.consumer_groups: dict[str, MemoryConsumerGroup] = {}
        self.members = count(1)
        self._limits = limits

    def group(self, name: str) -> MemoryGroup:
        """Return the share group of this name; it is created when it is first used."""
        if name not in self.groups:
            self.groups[name] = MemoryGroup(name, self.log, self._limits)
        return self.groups[name]

    def consumer_group(self, name: str) -> MemoryConsumerGroup:
        """Return the consumer group of this name; it is created when it is first used."""
        if name not in self.consumer_groups:
            self.consumer_groups[name] = MemoryConsumerGroup(name, self.log)
        return self.consumer_groups[name]

    def standing(self, group: str, place: Place) -> Standing:
        """The state of a record in a group of either kind."""
        if group in self.consumer_groups:
            return self.consumer_groups[group].standing(place)
        return self.groups[group].standing(place)


class MemoryOutbox:
    """Writes records of one process to in-memory topics immediately; a `ports.Outbox`."""

    __slots__ = ("_is_cut", "_log")

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._is_cut = False

    def send(
        self, topic: str, value: bytes | None, **options: Unpack[SendOptions]
    ) -> Awaitable[WrittenRecord]:
        """Write one record; awaiting the result returns where it was written."""
        answer: asyncio.Future[WrittenRecord] = asyncio.get_running_loop().create_future()
        if self._is_cut:
            return answer  # Never completed, because the process is dead.
        try:
            written = self._log.append(topic, value, **options)
        except KafkaError as error:
            answer.set_exception(error)
        else:
            answer.set_result(written)
        return answer

    @property
    def is_cut(self) -> bool:
        """Whether the process is dead."""
        return self._is_cut

    def cut(self) -> None:
        """Simulate the death of the process: ignore all later records."""
        self._is_cut = True


class MemoryScheduleStore:
    """A partition of the topic of schedules in memory; a `ScheduleStore`."""

    __slots__ = ("_log", "_outbox", "_where")

    def __init__(self, log: MemoryLog, outbox: MemoryOutbox, app_name: str, partition: int) -> None:
        self._log = log
        self._outbox = outbox
        self._where = TopicPartition(schedules_topic(app_name), partition)

    async def take_over(self) -> ReadPartition:
        """Return all that was written; there is no other owner."""
        records = self._log.partitions(self._where.topic)[self._where.partition]
        newest = NewestRecords(self._where)
        for record in records:
            newest.put(record.key, record.value)
        return newest.read(len(records))

    async def write(self, records: Sequence[MovedRecord]) -> int:
        """Write all records, or none if one of the topics fails."""
        if self._outbox.is_cut:
            await asyncio.Event().wait()  # The process is dead.
        topics = dict.fromkeys(record.topic for record in records)
        errors = {topic: error for topic in topics if (error := self._log.failure(topic))}
        if own := errors.pop(self._where.topic, None):
            raise own
        if errors:
            raise RunRefused(errors)
        for topic, key, value, headers, partition in records:
            written = self._log.append(topic, value, key=key, headers=headers, partition=partition)
        return written.timestamp_ms

    async def close(self) -> None:
        """Do nothing."""
