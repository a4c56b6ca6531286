"""The scheduler of retries over tiers that lie in memory."""

from __future__ import annotations

import asyncio

from sharegroup.dead_letters.story import RecordOrigin
from sharegroup.worker.ports import WrittenRecord
from sharegroup.worker.retrying.postponer import Postponer
from sharegroup.worker.retrying.scheduler import Scheduler
from sharegroup.worker.retrying.tier_mover import Moving
from sharegroup.worker.testing.app_test import drained
from sharegroup.worker.transport.memory import MemoryOutbox
from sharegroup.worker.transport.memory_clock import START_WALL_MS, MemoryClock
from sharegroup.worker.transport.memory_log import MemoryLog, MemoryTierLog

OWN = "billing.retry"


class World:
    def __init__(self) -> None:
        self.clock = MemoryClock()
        self.log = MemoryLog(self.clock)
        self.outbox = MemoryOutbox(self.log)

    def scheduler(self) -> tuple[Scheduler, MemoryTierLog]:
        tier_log = MemoryTierLog("schedulers", self.log)
        return Scheduler(Moving("billing", self.clock, self.outbox, tier_log)), tier_log

    async def postpone(self, seconds: float) -> WrittenRecord:
        postponer = Postponer(self.outbox, self.clock, "billing")
        due_ms = self.clock.wall_ms() + round(seconds * 1000)
        return await postponer.send_later("orders", b"v", key=b"k", due_ms=due_ms)

    async def pass_seconds(self, seconds: float) -> None:
        until = self.clock.now() + seconds
        await drained()
        while (due := self.clock.next_due()) is not None and due <= until:
            self.clock.move_to(due)
            await drained()
        self.clock.move_to(until)
        await drained()

    def arrived(self) -> list[int]:
        """When each record came to the group's own topic, in ms since the beginning."""
        return [record.timestamp_ms - START_WALL_MS for record in self.log.records(OWN)]


def test_due_records_are_moved_to_the_retry_topic() -> None:
    async def run() -> None:
        world = World()
        scheduler, _ = world.scheduler()
        running = asyncio.create_task(scheduler.run())
        await world.postpone(5)
        await world.postpone(0.2)
        await world.postpone(3 * 3600)
        await world.pass_seconds(4 * 3600)
        assert world.arrived() == [200, 5_000, 10_800_000]
        stopping = asyncio.create_task(scheduler.stop())
        await world.pass_seconds(5)
        await stopping
        await running

    asyncio.run(run())


def test_next_process_continues_at_the_committed_offset() -> None:
    async def run() -> None:
        world = World()
        scheduler, tier_log = world.scheduler()
        running = asyncio.create_task(scheduler.run())
        await world.postpone(1)
        await world.postpone(2)
        await world.pass_seconds(1.5)
        tier_log.cut()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        second, _ = world.scheduler()
        running = asyncio.create_task(second.run())
        await world.pass_seconds(5)
        assert world.arrived() == [1_000, 2_000]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())


def test_origin_of_a_postponed_record_names_its_first_topic() -> None:
    async def run() -> None:
        world = World()
        written = await world.postpone(1)
        assert written.topic == "billing.retry.due"
        (lying,) = world.log.records(written.topic)
        headers = dict(lying.headers)
        origin = RecordOrigin("orders", -1, -1, START_WALL_MS)
        assert headers["__sharegroup.origin.topic"] == origin.topic.encode()
        assert headers["__sharegroup.origin.offset"] == b"-1"

    asyncio.run(run())
