"""The commits of a member of a consumer group on a real cluster, as far as they need no broker."""

from __future__ import annotations

import asyncio

import pytest

from sharegroup.worker.consuming.group_log import GroupReading
from sharegroup.worker.declarations.route import StartFrom
from sharegroup.worker.retrying.tier_log import Committed, OwnershipLost
from sharegroup.worker.transport.group_log_kafka import KafkaGroupLog


@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_commit_of_partitions_that_are_not_assigned_asks_no_broker(*, exactly_once: bool) -> None:
    async def scenario() -> None:
        reading = GroupReading(
            *("audit", "orders", 1_000_000, "consumer", StartFrom.EARLIEST),
            exactly_once=exactly_once,
        )
        # Nobody listens there.
        group_log = KafkaGroupLog(reading, {"bootstrap_servers": "127.0.0.1:1"})
        async with asyncio.timeout(5):
            with pytest.raises(OwnershipLost, match=r"orders.* not assigned to this member"):
                await group_log.commit({3: Committed(7)})
            await group_log.close(1)

    asyncio.run(scenario())
