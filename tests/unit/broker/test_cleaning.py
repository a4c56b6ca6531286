"""The broker's retention: by the settings that hold now, on the broker's clock."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sharegroup.broker.catalog import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from sharegroup.client import AdminClient, AlterConfig, ConfigResource, Producer, ResourceType
from sharegroup.ids import TopicName
from sharegroup.storage.partition_log import PartitionLog
from sharegroup.testing import ManualClock, TestBroker, broker

TOPIC = TopicName("events")
THIS_BROKER = ConfigResource(ResourceType.BROKER, "1")
SETTINGS = {"log.segment.bytes": "1024", "log.retention.check.interval.ms": "60000"}


async def filled(running: TestBroker, **settings: str) -> PartitionLog:
    """Ten records of half a segment each."""
    topics = running.running.parts.topics
    named = {name.replace("_", "."): value for name, value in settings.items()}
    await topics.create(TOPIC, partitions=1, settings=named)
    async with Producer(bootstrap_servers=running.bootstrap) as producer:
        for _ in range(10):
            await producer.send_and_wait(TOPIC, bytes(600))
    return topics.named(TOPIC, 0)[1]


async def passed(running: TestBroker, clock: ManualClock, seconds: float) -> None:
    """Let time pass until the next look at the logs is over."""
    clock.advance(seconds)
    directory = running.running.directory
    for _ in range(20):
        await asyncio.sleep(0)
        await directory.drain()


def test_old_records_go_at_the_next_look(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with broker(SETTINGS, data=str(tmp_path), clock=clock) as running:
            log = await filled(running, retention_ms="3600000")
            await passed(running, clock, 3_500)
            assert log.start_offset == 0
            await passed(running, clock, 200)
            assert (log.start_offset, log.end_offset, log.size) == (10, 10, 0)

    asyncio.run(main())


def test_what_is_too_much_goes_at_the_next_look(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with broker(SETTINGS, data=str(tmp_path), clock=clock) as running:
            log = await filled(running, retention_bytes="2500")
            await passed(running, clock, 61)
            assert (log.start_offset, log.end_offset) == (6, 10)
            assert 2500 <= log.size < 3500

    asyncio.run(main())


def test_a_changed_setting_holds_at_the_next_look(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with broker(SETTINGS, data=str(tmp_path), clock=clock) as running:
            log = await filled(running)
            await passed(running, clock, 61)
            assert log.start_offset == 0
            async with AdminClient(bootstrap_servers=running.bootstrap) as admin:
                change = [AlterConfig("log.retention.bytes", "2500")]
                await admin.incremental_alter_configs({THIS_BROKER: change})
            await passed(running, clock, 61)
            assert log.start_offset == 6

    asyncio.run(main())


def test_nothing_goes_by_age_from_a_topic_that_is_compacted_only(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with broker(SETTINGS, data=str(tmp_path), clock=clock) as running:
            log = await filled(running, retention_ms="1000", cleanup_policy="compact")
            await passed(running, clock, 3_600)
            assert log.start_offset == 0

    asyncio.run(main())


def test_internal_topics_of_an_older_broker_are_not_deleted_by_age(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(SETTINGS, data=str(tmp_path)) as running:
            topics = running.running.parts.topics
            for name in (CONSUMER_OFFSETS, SHARE_GROUP_STATE):
                await topics.alter(
                    lambda name=name: {
                        "event": "topic_settings",
                        "name": name,
                        "settings": {"cleanup.policy": "delete"},
                    }
                )
        async with broker(SETTINGS, data=str(tmp_path)) as running:
            topics = running.running.parts.topics
            offsets = topics.catalog.topic(CONSUMER_OFFSETS).config
            state = topics.catalog.topic(SHARE_GROUP_STATE).config
            assert offsets.cleanup_policy == ("compact",)
            assert (state.cleanup_policy, state.retention_ms) == (("delete",), -1)

    asyncio.run(main())
