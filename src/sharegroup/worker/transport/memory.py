"""A world in memory for one worker process after the other: what `App.test` runs in.

The world outlives its processes.  `parts` makes what one process needs to run a worker, and `cut`
ends that process as ``kill -9`` would: the log keeps what was written, the groups take back
what it held, and nothing that its tasks still do reaches either.
"""

from __future__ import annotations

from itertools import count

from sharegroup.core.delivery import Limits
from sharegroup.worker.parts import GroupLimits, WorkerParts
from sharegroup.worker.transport.memory_clock import MemoryClock
from sharegroup.worker.transport.memory_group import MemoryGroup, Place
from sharegroup.worker.transport.memory_log import MemoryLog
from sharegroup.worker.transport.memory_outbox import MemoryOutbox
from sharegroup.worker.transport.memory_source import MemorySource
from sharegroup.worker.transport.memory_tier_log import MemoryTierLog


class MemoryProcess:
    """What one process has of the world."""

    def __init__(self, world: MemoryWorld) -> None:
        self._world = world
        self._sources: list[MemorySource] = []
        self._tier_logs: list[MemoryTierLog] = []
        self.outbox = MemoryOutbox(world.log)

    def parts(self) -> WorkerParts:
        """For the `Worker` of this process."""
        return WorkerParts(
            open_source=self._open_source,
            outbox=self.outbox,
            clock=self._world.clock,
            open_tier_log=self._open_tier_log,
            admin=None,
            group_limits=self._group_limits,
            close=self._close,
        )

    def cut(self) -> None:
        """The process is dead."""
        self.outbox.cut()
        for tier_log in self._tier_logs:
            tier_log.cut()
        for source in self._sources:
            source.cut()

    def lose(self, place: Place) -> None:
        """The lock of this record, if the process holds it, is gone."""
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

    def _open_tier_log(self, group: str) -> MemoryTierLog:
        tier_log = MemoryTierLog(group, self._world.log)
        self._tier_logs.append(tier_log)
        return tier_log

    async def _group_limits(self, group: str) -> GroupLimits:
        limits = self._world.group(group).limits
        return GroupLimits(
            deliveries=limits.delivery_count_max,
            locks=limits.in_flight_max,
            renewal=limits.renewal,
        )

    async def _close(self) -> None:
        """There is nothing to be closed."""


class MemoryWorld:
    """See the module's text."""

    __slots__ = ("_limits", "clock", "groups", "log", "members")

    def __init__(self, limits: Limits) -> None:
        self.clock = MemoryClock()
        self.log = MemoryLog(self.clock)
        self.groups: dict[str, MemoryGroup] = {}
        self.members = count(1)
        self._limits = limits

    def group(self, name: str) -> MemoryGroup:
        """The share group of this name."""
        if name not in self.groups:
            self.groups[name] = MemoryGroup(name, self.log, self._limits)
        return self.groups[name]
