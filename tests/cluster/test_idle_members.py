"""``member.idle``: said when a member cannot get at records, not when it waits for a reason."""

from __future__ import annotations

import asyncio

import pytest

from sharegroup.client import Producer, ShareConsumer
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.client.share.consumer.flow_control import FlowControl
from sharegroup.client.share.ranges.share_ranges import ShareRanges
from tests.cluster.clients import (
    ACQUIRE_MS,
    LIMIT_SECONDS,
    Reading,
    begin_at_the_start,
    broken,
    create_topic,
    produce_to_each,
    set_idle_seconds,
)
from tests.cluster.conftest import all_of_it
from tests.support.kafka_cluster import KafkaCluster

SOON_SECONDS = 2.0
LONG_SECONDS = 5.0
"""Idle seconds of members that do get answers: a busy machine must not look like silence."""
WATCHED = 3


async def _until_logged(caplog: pytest.LogCaptureFixture, text: str) -> str:
    async with asyncio.timeout(LIMIT_SECONDS):
        while not (lines := [line for line in caplog.messages if text in line]):
            await asyncio.sleep(0.05)
    return lines[0]


@all_of_it
def test_member_without_a_live_leader_is_logged_as_idle(
    cluster: KafkaCluster,
    topic: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The reason is logged once, and so is the end."""
    caplog.set_level("INFO", "sharegroup.client")

    async def run() -> None:
        await create_topic(cluster, topic, partitions=1, replicas=1)
        await begin_at_the_start(cluster, [topic])
        await produce_to_each(cluster, topic, [0], "early")
        reading = Reading(cluster, topic, topic)
        set_idle_seconds(reading.consumer, SOON_SECONDS)
        async with reading:
            await reading.until_seen(["early 0"])
            leader = await broken(cluster.leader_of, topic, 0)
            caplog.clear()
            await broken(cluster.kill, leader)
            said = await _until_logged(caplog, "member.idle")
            assert f"group={topic}" in said
            assert "assigned=1" in said
            # Until the session of the dead broker has expired, metadata names it as the leader.
            assert "without_leader=1" in said or "connection refused" in said
            await broken(cluster.start, leader)
            await _until_logged(caplog, "member.resumed")
            await produce_to_each(cluster, topic, [0], "late")
            await reading.until_seen(["late 0"])

    asyncio.run(run())


@all_of_it
def test_members_that_wait_for_a_reason_are_not_logged_as_idle(
    cluster: KafkaCluster,
    topic: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """More members than partitions; one is quiet, one has a full window, two do not poll.

    All wait for several times the seconds after which an idle member is logged.
    """
    caplog.set_level("INFO", "sharegroup.client")
    options = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": topic,
        "share_acknowledgement_mode": "explicit",
        "in_flight_max": 1,
    }

    async def run() -> None:
        await create_topic(cluster, topic, partitions=1)
        await begin_at_the_start(cluster, [topic])
        waiting, quiet, full, working = (ShareConsumer(topic, **options) for _ in range(4))
        holder = ShareRanges(
            ClientConfig(bootstrap_servers=cluster.bootstrap_servers),
            group_id=topic,
            topics=[topic],
        )
        consumers = (waiting, quiet, full, working)
        for member in (*consumers, holder):
            set_idle_seconds(member, LONG_SECONDS)
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                for consumer in consumers:
                    while not consumer.assignment:
                        await consumer.poll(timeout=0.1)
                while not holder.assigned:
                    await holder.acquire(wait_ms=ACQUIRE_MS)
            FlowControl(quiet).quiet(release_below=0)
            await produce_to_each(cluster, topic, [0], "work")
            async with asyncio.timeout(LIMIT_SECONDS):
                while not await full.poll(timeout=0.1):
                    pass
            watched = WATCHED * LONG_SECONDS
            await asyncio.gather(
                *(_polls(consumer, watched) for consumer in (waiting, quiet, full)),
                asyncio.sleep(watched),  # `working` and `holder` do not ask for anything.
            )
            FlowControl(quiet).resume()
            async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                await producer.send_and_wait(topic, b"more")
                async with asyncio.timeout(LIMIT_SECONDS):
                    while not (await waiting.poll(timeout=0.1) or await quiet.poll(timeout=0.1)):
                        pass
        finally:
            for consumer in consumers:
                await consumer.close(timeout=10.0)
            await holder.close()
        assert [line for line in caplog.messages if "member." in line] == []

    asyncio.run(run())


async def _polls(consumer: ShareConsumer, seconds: float) -> None:
    """Poll, and keep what comes, for so long."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while (left := until - loop.time()) > 0:
        await consumer.poll(timeout=left)
