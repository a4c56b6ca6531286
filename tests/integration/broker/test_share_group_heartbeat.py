"""ShareGroupHeartbeat as raw requests: what a member is told while the disk takes nothing."""

from __future__ import annotations

import asyncio

from sharegroup.testing.power_loss import PowerLossDisk
from tests.faults.in_process import Broker, ShareMember
from tests.support.limits import HANGING_SECONDS

NOT_COORDINATOR = 16


def test_join_is_retriable_on_a_full_disk_and_succeeds_with_room() -> None:
    async def run() -> None:
        disk = PowerLossDisk(1)
        broker = await Broker.start(disk)
        await broker.create_topic("orders", 1)
        member = ShareMember("g", "member-1", "orders", 1, connection_id=1)
        disk.fill_up()
        assert await member.heartbeat(broker) == NOT_COORDINATOR
        disk.make_room()
        async with asyncio.timeout(HANGING_SECONDS):
            while await member.heartbeat(broker) != 0:
                await asyncio.sleep(0.05)
        assert member.member_epoch == 2
        await broker.stop()

    asyncio.run(run())
