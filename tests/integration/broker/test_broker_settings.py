"""Settings of the broker, changed over the wire: they hold at once and after a restart."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest

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
from tests.faults.in_process import Broker, ShareMember
from tests.integration.broker.test_administration import set_group

THIS_BROKER = ConfigResource(ResourceType.BROKER, "1")
ALL_BROKERS = ConfigResource(ResourceType.BROKER, "")


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
            async with AdminClient(bootstrap_servers=running.bootstrap_servers) as admin:
                await admin.create_topics([NewTopic("orders", num_partitions=1)])
                assert not await too_large(running.bootstrap_servers)
                change = [AlterConfig("message.max.bytes", "500")]
                assert await admin.incremental_alter_configs({THIS_BROKER: change}) == {
                    THIS_BROKER: None
                }
            assert await too_large(running.bootstrap_servers)
        async with broker(data=str(tmp_path)) as running:
            assert await too_large(running.bootstrap_servers)

    asyncio.run(run())


def test_changed_limit_of_connections_holds_at_once_and_after_a_restart(tmp_path: Path) -> None:
    async def refused(port: int) -> bool:
        """Whether the broker closes a second connection."""
        _, first = await asyncio.open_connection("127.0.0.1", port)
        reader, second = await asyncio.open_connection("127.0.0.1", port)
        try:
            async with asyncio.timeout(0.2):
                return await reader.read(1) == b""
        except TimeoutError:
            return False
        finally:
            for writer in (first, second):
                writer.close()

    async def run() -> None:
        async with broker(data=str(tmp_path)) as running:
            port = int(running.bootstrap_servers.rpartition(":")[2])
            assert not await refused(port)
            async with AdminClient(bootstrap_servers=running.bootstrap_servers) as admin:
                change = [AlterConfig("max.connections.per.ip", "1")]
                outcome = await admin.incremental_alter_configs({ALL_BROKERS: change})
                assert outcome == {ALL_BROKERS: None}
            while running.running.server.connection_count:
                await asyncio.sleep(0)
            assert await refused(port)
        async with broker(data=str(tmp_path)) as running:
            assert await refused(int(running.bootstrap_servers.rpartition(":")[2]))

    asyncio.run(run())


def test_key_without_an_effect_is_kept_and_described(tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            broker(data=str(tmp_path)) as running,
            AdminClient(bootstrap_servers=running.bootstrap_servers) as admin,
        ):
            for name, value, expected in (
                ("num.io.threads", "16", "None"),
                ("num.io.threads", "0", "must be at least 1"),
                ("num.io.thread", "1", "is no key of Apache Kafka"),
            ):
                change = {THIS_BROKER: [AlterConfig(name, value)]}
                outcome = await admin.incremental_alter_configs(change)
                assert expected in str(outcome[THIS_BROKER])
        async with (
            broker(data=str(tmp_path)) as running,
            AdminClient(bootstrap_servers=running.bootstrap_servers) as admin,
        ):
            found: Any = (await admin.describe_configs([THIS_BROKER]))[THIS_BROKER]
            assert found["num.io.threads"].value == "16"

    asyncio.run(run())


def test_changes_of_one_group_at_the_same_time_all_hold() -> None:
    async def run() -> None:
        async with (
            broker() as running,
            AdminClient(bootstrap_servers=running.bootstrap_servers) as admin,
        ):
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
        async with (
            broker() as running,
            AdminClient(bootstrap_servers=running.bootstrap_servers) as admin,
        ):
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


def test_changed_group_settings_apply_immediately_and_outlive_the_group(tmp_path: Path) -> None:
    """The heartbeat interval and the lock duration change while the group has a member."""

    async def run() -> None:
        running = await Broker.start(None, str(tmp_path))
        await running.create_topic("orders", 1)
        member = ShareMember("g", "member", "orders", 1, connection_id=1)
        assert await member.heartbeat(running) == 0
        assert await interval_of(running, member) == timedelta(seconds=5)
        await set_group(running, "g", "share.heartbeat.interval.ms", "10000")
        await set_group(running, "g", "share.record.lock.duration.ms", "20000")
        assert await interval_of(running, member) == timedelta(seconds=10)
        parts = running.running.parts
        assert parts.group_settings.limits(GroupId("g")).lock_ms == 20_000
        await leave(running, member)
        await parts.share_group_coordinator.delete(GroupId("g"))
        assert await member.heartbeat(running) == 0
        assert await interval_of(running, member) == timedelta(seconds=10)
        await running.stop()

    asyncio.run(run())


def test_stored_setting_beyond_a_new_broker_limit_is_capped_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        running = await Broker.start(None, str(tmp_path))
        await set_group(running, "g", "share.record.lock.duration.ms", "50000")
        await running.stop()
        running = await Broker.start(
            None, str(tmp_path), group_share_max_record_lock_duration_ms="40000"
        )
        limits = running.running.parts.group_settings.limits(GroupId("g"))
        assert limits.lock_ms == 40_000
        await running.stop()

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert (
        "event=group_setting_capped group='g' setting=share.record.lock.duration.ms reason='50000 "
        "is outside of 15000 to 40000; 40000 is used'"
    ) in caplog.messages


async def interval_of(running: Broker, member: ShareMember) -> timedelta:
    answer = await running.ask(heartbeat_of(member, member.member_epoch))
    assert answer.error_code == 0
    interval: timedelta = answer.heartbeat_interval
    return interval


async def leave(running: Broker, member: ShareMember) -> None:
    assert (await running.ask(heartbeat_of(member, -1))).error_code == 0
    member.member_epoch = 0


def heartbeat_of(member: ShareMember, epoch: int) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(
        group_id=member.group,
        member_id=member.member_id,
        member_epoch=epoch,
        rack_id=None,
        subscribed_topic_names=None,
    )


def test_fixed_key_is_refused() -> None:
    async def run() -> None:
        async with (
            broker() as running,
            AdminClient(bootstrap_servers=running.bootstrap_servers) as admin,
        ):
            change = [AlterConfig("num.partitions", "3")]
            results = await admin.incremental_alter_configs({THIS_BROKER: change})
            assert isinstance(results[THIS_BROKER], InvalidConfig)

    asyncio.run(run())
