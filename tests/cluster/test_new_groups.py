"""Groups that are new while a broker dies: every member gets its partitions, and records.

A coordinator that waits in vain for the dead follower answers COORDINATOR_NOT_AVAILABLE, applies
the assignment nevertheless, and repeats it only when it is asked to.
"""

from __future__ import annotations

import asyncio

from tests.cluster.clients import (
    LIMIT_SECONDS,
    begin_at_the_start,
    broken,
    create_topic,
    first_range,
    first_record,
    produce_to_each,
)
from tests.cluster.conftest import all_of_it
from tests.support.kafka_cluster import KafkaCluster

GROUPS = 14
BETWEEN_SECONDS = 0.15
KILLED_AFTER = 5
"""How many groups have begun to join when the broker dies."""


@all_of_it
def test_members_that_join_while_a_broker_dies_get_their_partitions(
    cluster: KafkaCluster, topic: str
) -> None:
    async def run() -> None:
        groups = [f"{topic}.group{index}" for index in range(GROUPS)]
        await create_topic(cluster, topic)
        await produce_to_each(cluster, topic, range(6), "early")
        await begin_at_the_start(cluster, groups)
        victim = await broken(cluster.coordinator_of, groups[0])
        members: dict[str, asyncio.Task[float]] = {}
        for index, group in enumerate(groups):
            joins = first_record if index % 2 else first_range
            # The second safety net is off: it would hide an assignment that was lost.
            joining = joins(cluster, topic, group, idle_seconds=float("inf"))
            members[group] = asyncio.create_task(joining)
            if index == KILLED_AFTER:
                await broken(cluster.kill, victim)
            await asyncio.sleep(BETWEEN_SECONDS)
        _, waiting = await asyncio.wait(members.values(), timeout=LIMIT_SECONDS)
        stuck = [group for group, member in members.items() if member in waiting]
        for member in waiting:
            member.cancel()
        ends = await asyncio.gather(*members.values(), return_exceptions=True)
        failed = [end for end in ends if isinstance(end, Exception)]
        assert not failed
        assert not stuck

    asyncio.run(run())
