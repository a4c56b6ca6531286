"""A topic of four records and a group that reads it, on a broker in the test's own process.

With ``SHAREGROUP_INTEROP=kafka`` the same scenes are played on a real Apache Kafka, one for all of
them: what the client's tests state is then true of a client on Kafka too.  Only a scene with a
clock of its own stays at home.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest

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
from tests.support.chosen_broker import SHORT_TIMES
from tests.support.limits import HANGING_SECONDS

WHERE = TopicPartition("t", 0)
POLL_SECONDS = 10.0
LOCK_SECONDS = 30.0
"""How long a broker locks records unless told otherwise."""
groups = count(1)
"""No two scenes have a group of one name: who left without a word is a member for a while."""


class Bench:
    """A broker with a topic of four records and a group that reads it from the beginning."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap_servers = bootstrap
        self.group = f"g{next(groups)}"

    async def set_group(self, **configs: str) -> None:
        """Group configs, with underscores for dots."""
        changes = [AlterConfig(name.replace("_", "."), value) for name, value in configs.items()]
        async with AdminClient(bootstrap_servers=self.bootstrap_servers) as admin:
            group = ConfigResource(ResourceType.GROUP, self.group)
            assert await admin.incremental_alter_configs({group: changes}) == {group: None}

    async def fill(self, *values: bytes, topic: str = "t", partition: int = 0) -> None:
        async with Producer(bootstrap_servers=self.bootstrap_servers) as producer:
            for value in values:
                await producer.send(topic, value, partition=partition)

    async def create_topic(self, name: str) -> None:
        async with AdminClient(bootstrap_servers=self.bootstrap_servers) as admin:
            assert await admin.create_topics([NewTopic(name, 1)]) == {name: None}

    async def delete_topic(self) -> None:
        async with AdminClient(bootstrap_servers=self.bootstrap_servers) as admin:
            assert await admin.delete_topics(["t"]) == {"t": None}

    async def grow_topic(self, partitions: int) -> None:
        async with AdminClient(bootstrap_servers=self.bootstrap_servers) as admin:
            assert await admin.create_partitions({"t": partitions}) == {"t": None}

    @asynccontextmanager
    async def member(self, mode: str = "explicit", **options: Any) -> AsyncIterator[ShareConsumer]:
        # Closing waits for the fetch that is under way.
        options = {"fetch_max_wait_ms": 50, **options}
        async with ShareConsumer(
            "t",
            bootstrap_servers=self.bootstrap_servers,
            group_id=self.group,
            share_acknowledgement_mode=mode,  # type: ignore[typeddict-item]
            **options,
        ) as made:
            yield made

    async def lag(self) -> int | None:
        async with AdminClient(bootstrap_servers=self.bootstrap_servers) as admin:
            offsets = (await admin.list_share_group_offsets({self.group: None}))[self.group]
        assert isinstance(offsets, dict)
        found = offsets[WHERE]
        assert isinstance(found, SharePartitionOffset)
        return found.lag


SETTINGS = {**SHORT_TIMES, "group.share.max.partition.max.record.locks": "10000"}
"""What scenes ask of either broker; Apache Kafka allows no more locks."""
kafka: list[str] = []
"""Where the Apache Kafka listens that scenes are played on, if they are; see `conftest`."""


@asynccontextmanager
async def stage(*, clock: ManualClock | None = None) -> AsyncIterator[str]:
    """Where the broker of a scene listens; when the scene is over there are no topics left."""
    if not kafka:
        async with broker(SETTINGS, clock=clock) as there:
            yield there.bootstrap_servers
        return
    if clock is not None:
        pytest.skip("only a broker in this process goes by a clock that a test moves")
    async with AdminClient(bootstrap_servers=kafka[0]) as admin:
        try:
            yield kafka[0]
        finally:
            await admin.delete_topics(await admin.list_topics())


def play(
    scenario: Callable[[Bench], Coroutine[Any, Any, None]],
    *,
    clock: ManualClock | None = None,
    group: Mapping[str, str] | None = None,
) -> None:
    """Play a scene; ``group`` are configs of its group."""

    async def run() -> None:
        async with stage(clock=clock) as bootstrap:
            bench = Bench(bootstrap)
            await bench.create_topic("t")
            await bench.set_group(share_auto_offset_reset="earliest", **(group or {}))
            await bench.fill(b"0", b"1", b"2", b"3")
            async with asyncio.timeout(HANGING_SECONDS):
                await scenario(bench)

    asyncio.run(run())


def values(records: list[Record]) -> list[bytes]:
    return [record.value for record in records]
