"""Letters for tests: buried by the real `Burier`, or by a broker; and what lies in a topic."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sharegroup.client import AdminClient, Producer, ShareConsumer
from sharegroup.client.admin.types import AlterConfig, ConfigResource, NewTopic
from sharegroup.client.fetch.record_reading import partition_ranges, read_records
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.dead_letters.reasons import DeadLetterReason
from sharegroup.dead_letters.story import NEW, Story
from sharegroup.protocol_enums import ConfigOperation, ResourceType
from sharegroup.wire.batches.records import DecodedRecord
from sharegroup.worker.dead_letters import Burier
from sharegroup.worker.decisions.decide import Bury
from sharegroup.worker.declarations.handler import HandlerKind, HandlerShape
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.declarations.topics import DeadLetter
from sharegroup.worker.ports import Header, WrittenRecord
from tests.support.limits import HANGING_SECONDS


class NoAnswer(Exception):
    """What the payment service does."""


@dataclass
class Given:
    """A delivery that no broker made."""

    topic: str
    offset: int = 0
    partition: int = 0
    timestamp_ms: int = 1_700_000_000_000
    key: bytes | None = None
    value: bytes | None = b"{}"
    headers: Sequence[Header] = ()
    delivery_count: int = 1
    deadline: float = 0.0
    is_lost: bool = False
    settled: list[str] = field(default_factory=list)

    def accept(self) -> None:
        self.settled.append("accept")

    def release(self) -> None:
        self.settled.append("release")

    def reject(self) -> None:
        self.settled.append("reject")

    def renew(self) -> None:
        self.settled.append("renew")


class Sending:
    """An `Outbox` over a producer."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def send(self, topic: str, value: bytes | None, **more: Any) -> Awaitable[WrittenRecord]:
        return self._producer.send_and_wait(topic, value, **more)


class WallClock:
    def now(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep_until(self, when: float) -> None:
        raise AssertionError("nobody sleeps here")


def route(group: str, dead_letter: Any, *, handler: str = "bill") -> Route:
    shape = HandlerShape(
        name=handler, call=print, kind=HandlerKind.FUNCTION, payload_type=bytes,
        takes_record=False, is_batch=False,
    )  # fmt: skip
    return Route(group=group, topics=("orders",), shape=shape, dead_letter=dead_letter)


def failed(
    error: BaseException, story: Story = NEW, reason: str = DeadLetterReason.ATTEMPTS_EXHAUSTED
) -> Bury:
    return Bury(story, reason, error)


async def make_topics(bootstrap: str, *names: str, partitions: int = 1, **configs: str) -> None:
    dotted = {name.replace("_", "."): value for name, value in configs.items()}
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        new = [NewTopic(name, num_partitions=partitions, configs=dotted) for name in names]
        results = await admin.create_topics(new)
        assert set(results.values()) == {None}, results


async def set_group(bootstrap: str, group: str, **configs: str) -> None:
    changes = [
        AlterConfig(name.replace("_", "."), value, ConfigOperation.SET)
        for name, value in configs.items()
    ]
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        resource = ConfigResource(ResourceType.GROUP, group)
        results = await admin.incremental_alter_configs({resource: changes})
        assert set(results.values()) == {None}, results


async def bury(
    bootstrap: str, dead: str, group: str, *burials: tuple[Given, Bury], handler: str = "bill"
) -> None:
    """Write letters one after the other, so that their offsets are in this order."""
    async with Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
        declared = route(group, DeadLetter(dead), handler=handler)
        burier = Burier(Sending(producer), WallClock(), declared, "member-1")
        for given, step in burials:
            assert await burier.bury(given, step) is not None


async def reject_all(bootstrap: str, group: str, topic: str, count: int) -> None:
    """A member of the group that rejects so many records."""
    async with ShareConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, share_acknowledgement_mode="explicit"
    ) as consumer:
        async with asyncio.timeout(HANGING_SECONDS):
            while count > 0:
                for record in await consumer.poll(timeout=1):
                    record.reject()
                    count -= 1
                await consumer.commit()


async def lying_in(bootstrap: str, topic: str) -> list[DecodedRecord]:
    """All records of a topic, partition by partition."""
    cluster = Cluster(ClientConfig(bootstrap_servers=bootstrap))
    try:
        return [
            record
            for span in await partition_ranges(cluster, topic)
            async for some in read_records(cluster, span)
            for record in some
        ]
    finally:
        cluster.close()


async def until_there(bootstrap: str, topic: str, count: int) -> list[DecodedRecord]:
    """The records of a topic when there are so many."""
    async with asyncio.timeout(HANGING_SECONDS):
        while len(records := await lying_in(bootstrap, topic)) < count:
            await asyncio.sleep(0.05)
    return records
