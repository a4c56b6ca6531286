"""Settings of the broker, changed over the wire: they hold at once and after a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sharegroup.client import (
    AdminClient,
    AlterConfig,
    ConfigResource,
    NewTopic,
    Producer,
    ResourceType,
)
from sharegroup.errors import InvalidConfig, MessageTooLarge
from sharegroup.ids import GroupId, TopicName
from sharegroup.testing import broker

THIS_BROKER = ConfigResource(ResourceType.BROKER, "1")


async def too_large(bootstrap: str) -> bool:
    """Whether a record of a thousand bytes is refused."""
    async with Producer(bootstrap_servers=bootstrap) as producer:
        try:
            await (await producer.send("orders", b"x" * 1_000))
        except MessageTooLarge:
            return True
    return False


def test_changed_default_holds_at_once_and_after_a_restart(tmp_path: Path) -> None:
    async def run() -> None:
        async with broker(data=str(tmp_path)) as running:
            async with AdminClient(bootstrap_servers=running.bootstrap) as admin:
                await admin.create_topics([NewTopic("orders", num_partitions=1)])
                assert not await too_large(running.bootstrap)
                change = [AlterConfig("message.max.bytes", "500")]
                assert await admin.incremental_alter_configs({THIS_BROKER: change}) == {
                    THIS_BROKER: None
                }
            assert await too_large(running.bootstrap)
        async with broker(data=str(tmp_path)) as running:
            assert await too_large(running.bootstrap)

    asyncio.run(run())


def test_changes_of_one_group_at_the_same_time_all_hold() -> None:
    async def run() -> None:
        async with broker() as running, AdminClient(bootstrap_servers=running.bootstrap) as admin:
            group = ConfigResource(ResourceType.GROUP, "g")
            changes = [
                AlterConfig("share.auto.offset.reset", "earliest"),
                AlterConfig("share.delivery.count.limit", "7"),
            ]
            await asyncio.gather(
                *(admin.incremental_alter_configs({group: [change]}) for change in changes)
            )
            assert running.running.parts.topics.catalog.group_settings(GroupId("g")) == {
                "share.auto.offset.reset": "earliest",
                "share.delivery.count.limit": "7",
            }

    asyncio.run(run())


def test_changed_segment_size_holds_for_logs_that_are_open() -> None:
    async def run() -> None:
        async with broker() as running, AdminClient(bootstrap_servers=running.bootstrap) as admin:
            await admin.create_topics([NewTopic("orders", num_partitions=1)])
            _, log = running.running.parts.topics.named(TopicName("orders"), 0)
            change = [AlterConfig("log.segment.bytes", "1048576")]
            await admin.incremental_alter_configs({THIS_BROKER: change})
            assert log.segment_limits.bytes == 1_048_576
            own = [AlterConfig("segment.bytes", "2097152")]
            topic = ConfigResource(ResourceType.TOPIC, "orders")
            await admin.incremental_alter_configs({topic: own})
            assert log.segment_limits.bytes == 2_097_152

    asyncio.run(run())


def test_fixed_key_is_refused() -> None:
    async def run() -> None:
        async with broker() as running, AdminClient(bootstrap_servers=running.bootstrap) as admin:
            change = [AlterConfig("num.partitions", "3")]
            results = await admin.incremental_alter_configs({THIS_BROKER: change})
            assert isinstance(results[THIS_BROKER], InvalidConfig)

    asyncio.run(run())
