"""A broker in the test's own process with a topic of four records and a group that reads it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

from sharegroup.client import (
    AdminClient,
    AlterConfig,
    ConfigResource,
    NewTopic,
    Producer,
    Record,
    ResourceType,
    ShareConsumer,
    SharePartitionOffset,
    TopicPartition,
)
from sharegroup.testing import ManualClock, broker

WHERE = TopicPartition("t", 0)
POLL_SECONDS = 10.0
LOCK_SECONDS = 30.0
"""How long a broker locks records unless told otherwise."""


class Bench:
    """A broker with a topic of four records and a group that reads it from the beginning."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    async def set_group(self, **configs: str) -> None:
        """Group configs, with underscores for dots."""
        changes = [AlterConfig(name.replace("_", "."), value) for name, value in configs.items()]
        async with AdminClient(bootstrap_servers=self.bootstrap) as admin:
            group = ConfigResource(ResourceType.GROUP, "g")
            assert await admin.incremental_alter_configs({group: changes}) == {group: None}

    async def fill(self, *values: bytes, topic: str = "t", partition: int = 0) -> None:
        async with Producer(bootstrap_servers=self.bootstrap) as producer:
            for value in values:
                await producer.send(topic, value, partition=partition)

    async def create_topic(self, name: str) -> None:
        async with AdminClient(bootstrap_servers=self.bootstrap) as admin:
            assert await admin.create_topics([NewTopic(name, 1)]) == {name: None}

    async def delete_topic(self) -> None:
        async with AdminClient(bootstrap_servers=self.bootstrap) as admin:
            assert await admin.delete_topics(["t"]) == {"t": None}

    async def grow_topic(self, partitions: int) -> None:
        async with AdminClient(bootstrap_servers=self.bootstrap) as admin:
            assert await admin.create_partitions({"t": partitions}) == {"t": None}

    @asynccontextmanager
    async def member(self, mode: str = "explicit", **options: Any) -> AsyncIterator[ShareConsumer]:
        async with ShareConsumer(
            "t",
            bootstrap_servers=self.bootstrap,
            group_id="g",
            share_acknowledgement_mode=mode,  # type: ignore[typeddict-item]
            **options,
        ) as made:
            yield made

    async def lag(self) -> int | None:
        async with AdminClient(bootstrap_servers=self.bootstrap) as admin:
            offsets = (await admin.list_share_group_offsets({"g": None}))["g"]
        assert isinstance(offsets, dict)
        found = offsets[WHERE]
        assert isinstance(found, SharePartitionOffset)
        return found.lag


def play(
    scenario: Callable[[Bench], Coroutine[Any, Any, None]],
    *,
    clock: ManualClock | None = None,
    settings: Mapping[str, str] | None = None,
) -> None:
    async def run() -> None:
        async with broker(clock=clock, settings=settings) as running:
            bench = Bench(running.bootstrap)
            async with AdminClient(bootstrap_servers=running.bootstrap) as admin:
                await admin.create_topics([NewTopic("t", 1)])
            await bench.set_group(share_auto_offset_reset="earliest")
            await bench.fill(b"0", b"1", b"2", b"3")
            async with asyncio.timeout(30):
                await scenario(bench)

    asyncio.run(run())


def values(records: list[Record]) -> list[bytes]:
    return [record.value for record in records]
