"""Faults without an election: clients cannot reach a broker, or the whole cluster starts anew."""

from __future__ import annotations

import asyncio

from sharegroup.client import Producer
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.client.share.ranges.share_ranges import ShareRanges
from tests.cluster.clients import (
    ACQUIRE_MS,
    LIMIT_SECONDS,
    Reading,
    begin_at_the_start,
    broken,
    create_topic,
    produce_to_each,
)
from tests.cluster.conftest import all_of_it
from tests.support.kafka_cluster import CLIENTS, KafkaCluster

PARTITIONS = 6
REQUEST_MS = 3_000
KEYLESS = 50

pytestmark = all_of_it


def test_leader_unreachable_for_clients_stops_no_other_partition(
    cluster: KafkaCluster, topic: str
) -> None:
    """The other brokers reach it, so it stays the leader, and metadata still name it."""

    async def run() -> None:
        await create_topic(cluster, topic, partitions=PARTITIONS)
        await begin_at_the_start(cluster, [topic, f"{topic}.ranges"])
        coordinators = {
            await broken(cluster.coordinator_of, group) for group in (topic, f"{topic}.ranges")
        }
        leaders = {part: view.leader for part, view in cluster.view().topics[topic].items()}
        unreachable = min(set(cluster.nodes) - coordinators)
        healthy = [part for part, leader in leaders.items() if leader != unreachable]
        cut = [part for part, leader in leaders.items() if leader == unreachable]
        short = {"request_timeout_ms": REQUEST_MS, "connect_timeout_ms": REQUEST_MS}
        config = ClientConfig(bootstrap_servers=cluster.bootstrap_servers, **short)
        holder = ShareRanges(config, group_id=f"{topic}.ranges", topics=[topic])
        held: set[int] = set()

        async def hold(wanted: list[int]) -> None:
            while not held >= set(wanted):
                acquisition = await holder.acquire(wait_ms=ACQUIRE_MS)
                held.update(where.partition for where in acquisition.ranges)

        async with (
            Reading(cluster, topic, topic, **short) as reading,
            Producer(bootstrap_servers=cluster.bootstrap_servers, **short) as producer,
            asyncio.timeout(LIMIT_SECONDS),
        ):
            await produce_to_each(cluster, topic, range(PARTITIONS), "before")
            await reading.until_seen(f"before {part}" for part in range(PARTITIONS))
            await hold(list(range(PARTITIONS)))
            held.clear()
            await broken(cluster.isolate, unreachable, CLIENTS)
            waiting = [
                await producer.send(topic, f"after {part}".encode(), partition=part) for part in cut
            ]
            for part in healthy:
                await producer.send_and_wait(topic, f"after {part}".encode(), partition=part)
            await reading.until_seen(f"after {part}" for part in healthy)
            await hold(healthy)
            sent = [await producer.send_and_wait(topic, b"keyless") for _ in range(KEYLESS)]
            assert {delivery.partition for delivery in sent} <= set(healthy)
            assert not any(delivery.done() for delivery in waiting)
            await broken(cluster.heal)
            await asyncio.gather(*waiting)
            await reading.until_seen(f"after {part}" for part in cut)
            await hold(cut)
        await holder.close()

    asyncio.run(run())


def test_members_and_producers_outlast_the_death_of_all_brokers(
    cluster: KafkaCluster, topic: str
) -> None:
    """Records confirmed before are read once; records sent meanwhile are written once."""

    async def run() -> None:
        await create_topic(cluster, topic, partitions=PARTITIONS)
        await begin_at_the_start(cluster, [topic])
        async with (
            Reading(cluster, topic, topic) as reading,
            Producer(bootstrap_servers=cluster.bootstrap_servers) as producer,
            asyncio.timeout(2 * LIMIT_SECONDS),
        ):
            await producer.send_and_wait(topic, b"before")
            await reading.until_seen(["before"])
            await reading.consumer.commit(timeout=LIMIT_SECONDS)
            for node in cluster.nodes:
                await broken(cluster.kill, node)
            sent = [
                await producer.send(topic, f"meanwhile {part}".encode(), partition=part)
                for part in range(PARTITIONS)
            ]
            await broken(cluster.mend)
            await asyncio.gather(*sent)
            values = {f"meanwhile {part}" for part in range(PARTITIONS)}
            await reading.until_seen(values)
        assert all(reading.seen[value] == 1 for value in {"before", *values})

    asyncio.run(run())


def test_positions_of_a_group_with_a_dead_leader_stop_no_acquisition(
    cluster: KafkaCluster, topic: str
) -> None:
    """The coordinator asks the dead leader for the end of its log, and tries for 15 s and longer.

    It answers the requests of a connection in order.  The member knows no leader yet, so it has to
    ask for metadata, and the coordinator is the first broker that it asks.
    """

    async def run() -> None:
        await create_topic(cluster, topic, partitions=PARTITIONS)
        await begin_at_the_start(cluster, [topic])
        await produce_to_each(cluster, topic, range(PARTITIONS), "value")
        config = ClientConfig(bootstrap_servers=cluster.bootstrap_servers)
        holder = ShareRanges(config, group_id=topic, topics=[topic])
        async with asyncio.timeout(LIMIT_SECONDS):
            while len(await _held(holder)) < PARTITIONS:
                pass
        await holder.close()  # It releases the records, and the group has positions now.
        coordinator = await broken(cluster.coordinator_of, topic)
        dead = min(set(cluster.nodes) - {coordinator})
        member = ShareRanges(config, group_id=topic, topics=[topic])
        member.start()
        async with asyncio.timeout(LIMIT_SECONDS):
            while not member.assigned:
                await asyncio.sleep(0.01)
        await broken(cluster.kill, dead)
        positions = asyncio.create_task(member.positions())
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(REQUEST_MS / 1000):
                while not await _held(member):
                    pass
            assert not positions.done()
        finally:
            positions.cancel()
            await member.close()

    asyncio.run(run())


async def _held(holder: ShareRanges) -> set[int]:
    await holder.acquire(wait_ms=ACQUIRE_MS)
    return {where.partition for where in holder.held}
