"""What tests of our clients on a cluster share: topics, groups, producing, reading.

Faults are called by `broken`, in a thread: the loop that the clients run on goes on meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

from sharegroup.client import (
    AdminClient,
    AlterConfig,
    ConfigResource,
    NewTopic,
    Producer,
    ResourceType,
    ShareConsumer,
)
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.client.share.member.idleness import IDLE_SECONDS
from sharegroup.client.share.ranges.share_ranges import ShareRanges
from tests.support.kafka_cluster import KafkaCluster

LIMIT_SECONDS = 180.0
"""For what ends by an event; long, because the machine may be slow."""
POLL_SECONDS = 0.5
ACQUIRE_MS = 500

P = ParamSpec("P")
T = TypeVar("T")


async def broken(fault: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """Let something happen to the cluster while this loop goes on."""
    return await asyncio.to_thread(fault, *arguments, **options)


async def create_topic(
    cluster: KafkaCluster, name: str, *, partitions: int = 6, replicas: int = 3, **configs: str
) -> None:
    """Create a topic and wait until all brokers know all leaders."""
    named = {key.replace("_", "."): value for key, value in configs.items()}
    async with AdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        created = await admin.create_topics([NewTopic(name, partitions, replicas, named)])
    assert created == {name: None}
    await broken(cluster.wait_until_whole)


async def begin_at_the_start(cluster: KafkaCluster, groups: Iterable[str]) -> None:
    """Let these share groups begin with the first record of each partition."""
    change = [AlterConfig("share.auto.offset.reset", "earliest")]
    resources = [ConfigResource(ResourceType.GROUP, group) for group in groups]
    async with AdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        changed = await admin.incremental_alter_configs(dict.fromkeys(resources, change))
    assert not any(changed.values()), changed


async def produce_to_each(
    cluster: KafkaCluster, topic: str, partitions: Iterable[int], text: str
) -> None:
    """One record for each of these partitions, whose value is ``text`` and the partition."""
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for partition in partitions:
            value = f"{text} {partition}".encode()
            await producer.send_and_wait(topic, value, partition=partition)


class Reading:
    """A consumer in explicit mode that reads, accepts and counts until it is left."""

    def __init__(self, cluster: KafkaCluster, topic: str, group: str, **options: Any) -> None:
        self.seen: Counter[str] = Counter()
        self.seen_at: dict[str, float] = {}
        self.consumer = ShareConsumer(
            topic,
            **{
                "bootstrap_servers": cluster.bootstrap_servers,
                "group_id": group,
                "share_acknowledgement_mode": "explicit",
                **options,
            },
        )
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Reading:
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])
        await self.consumer.close(timeout=10.0)

    async def _read(self) -> None:
        while True:
            for record in await self.consumer.poll(timeout=POLL_SECONDS):
                assert record.value is not None
                self.seen[record.value.decode()] += 1
                self.seen_at.setdefault(record.value.decode(), time.monotonic())
                record.accept()
                self._changed.set()

    async def until_seen(self, values: Iterable[str], seconds: float = LIMIT_SECONDS) -> None:
        """Wait until all of these were read."""
        wanted = set(values)
        assert self._task is not None
        try:
            async with asyncio.timeout(seconds):
                while not wanted <= self.seen.keys():
                    self._changed.clear()
                    waiting = asyncio.ensure_future(self._changed.wait())
                    await asyncio.wait([waiting, self._task], return_when="FIRST_COMPLETED")
                    if self._task.done():
                        waiting.cancel()
                        self._task.result()
        except TimeoutError:
            missing = sorted(wanted - self.seen.keys())
            raise AssertionError(f"not read in {seconds} s: {missing}") from None


def set_idle_seconds(member: ShareConsumer | ShareRanges, seconds: float) -> None:
    """Let a member that was not started yet count as idle after so long."""
    group = member._group if isinstance(member, ShareRanges) else member._member.group
    group.idleness.idle_seconds = seconds


async def first_record(
    cluster: KafkaCluster, topic: str, group: str, *, idle_seconds: float = IDLE_SECONDS
) -> float:
    """Seconds until a new consumer of a group has its first record."""
    started_at = time.monotonic()
    consumer = ShareConsumer(topic, bootstrap_servers=cluster.bootstrap_servers, group_id=group)
    set_idle_seconds(consumer, idle_seconds)
    async with consumer:
        while not await consumer.poll(timeout=POLL_SECONDS):
            pass
        return time.monotonic() - started_at


async def first_range(
    cluster: KafkaCluster, topic: str, group: str, *, idle_seconds: float = IDLE_SECONDS
) -> float:
    """Seconds until a new holder of ranges has its first ones."""
    started_at = time.monotonic()
    config = ClientConfig(bootstrap_servers=cluster.bootstrap_servers)
    holder = ShareRanges(config, group_id=group, topics=[topic])
    set_idle_seconds(holder, idle_seconds)
    try:
        while not (await holder.acquire(records_max=10, wait_ms=ACQUIRE_MS)).ranges:
            pass
        return time.monotonic() - started_at
    finally:
        await holder.close()
