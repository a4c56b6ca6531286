"""A broker with a fault script, a clock that can be advanced, and a disk that can fail.

    faulty = FaultyBroker()
    running = await faulty.start(config)
    faulty.script.add(Fail.named("NOT_LEADER_OR_FOLLOWER"), "Produce", times=2)
    faulty.advance(30)

All but the methods of the script are called on the thread of the broker's event loop.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from sharegroup.broker.app import Running, start
from sharegroup.broker.clock import Clock
from sharegroup.broker.configuration.config import Config
from sharegroup.errors import UnknownTopicOrPartition
from sharegroup.faults.faulty_files import FaultyFiles
from sharegroup.faults.faulty_handlers import FaultyHandlers
from sharegroup.faults.running_clock import RunningClock
from sharegroup.faults.script import FaultScript
from sharegroup.ids import TopicIdPartition, TopicName
from sharegroup.storage.disk.files import Files


class AdvancingClock(Clock, Protocol):
    """A broker's clock that a test advances."""

    def advance(self, seconds: float) -> None:
        """Advance the clock and fire the timers that are due."""
        ...


class FaultyBroker:
    """One broker under test; it may be stopped and started again, with the same faults."""

    def __init__(self, *, clock: AdvancingClock | None = None, files: Files | None = None) -> None:
        """``clock`` is a `RunningClock` and ``files`` are `FaultyFiles` if they are None."""
        self.script = FaultScript()
        self.running: Running | None = None
        """The broker; None while it is stopped."""
        self._given_clock = clock
        self._clock: AdvancingClock | None = clock
        self._given_files = files
        self.files: Files | None = files
        """The disk; None before the first start if none was given."""

    async def start(self, config: Config) -> Running:
        """Start the broker on the running event loop."""
        assert self.running is None, "the broker is running"
        # At every start, because the broker may be started again on another event loop.
        self.script.bind(asyncio.get_running_loop())
        # A new one at each start, because its alarms belong to the event loop.
        self._clock = self._given_clock or RunningClock()
        self.files = self._given_files or FaultyFiles()
        self.running = await start(
            config, clock=self._clock, files=self.files, handler_of=FaultyHandlers(self.script)
        )
        return self.running

    async def stop(self) -> None:
        """Stop the broker cleanly; a frozen broker is thawed before."""
        await self._taken().stop()

    async def kill(self) -> None:
        """Stop the broker as `kill -9` would: nothing is written, no file is closed cleanly."""
        await self._taken().abandon()

    def advance(self, seconds: float) -> None:
        """Advance the broker's clock: locks, sessions, retention and delays go on at once."""
        assert self._clock is not None, "the broker has not been started"
        self._clock.advance(seconds)

    def bump_leader_epoch(self, topic: str, partition: int = 0) -> int:
        """Raise the leader epoch of a partition, as after a change of its leader; return it.

        Fetches with the old epoch fail with FENCED_LEADER_EPOCH.  Acquisition locks on the
        partition end, and their acknowledgements fail.  Raises UnknownTopicOrPartition.
        """
        assert self.running is not None, "the broker is stopped"
        parts = self.running.parts
        described = parts.topics.catalog.topic(TopicName(topic))
        if not 0 <= partition < described.partition_count:
            raise UnknownTopicOrPartition(
                f"topic {topic!r} has partitions 0 to {described.partition_count - 1}, "
                f"not {partition}"
            )
        key = TopicIdPartition(described.topic_id, partition)
        epoch = parts.topics.raise_leader_epoch(key)
        # A new leader does not have the locks of the old one; they are not durable.
        parts.share_partitions.drop_partition(key)
        return epoch

    def _taken(self) -> Running:
        assert self.running is not None, "the broker is stopped"
        # First, so a second call fails instead of stopping the same broker twice.
        running, self.running = self.running, None
        # Requests that wait for a thaw or a pause would hold up the stop.
        self.script.release()
        return running
