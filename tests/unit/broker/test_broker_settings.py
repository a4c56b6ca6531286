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


def test_fixed_key_is_refused() -> None:
    async def run() -> None:
        async with broker() as running, AdminClient(bootstrap_servers=running.bootstrap) as admin:
            change = [AlterConfig("num.partitions", "3")]
            results = await admin.incremental_alter_configs({THIS_BROKER: change})
            assert isinstance(results[THIS_BROKER], InvalidConfig)

    asyncio.run(run())
