"""The simulated administrator: makes topics, and changes things while everybody works."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.sim.board import Board, KnownTopic
from tests.sim.client import Client, NoAnswer
from tests.sim.messages import (
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    Partition,
    make_alter_config,
    make_alter_offset,
    make_create_partitions,
    make_create_topic,
    make_delete_group,
    make_delete_offsets,
    make_delete_records,
    make_delete_topic,
    make_describe_offsets,
    make_fetch,
    make_metadata,
)

PARTITIONS_MAX = 4
TOPIC_EXISTS = 36
PAUSED = "sharegroup.paused"
ORDER_BY = "sharegroup.order.by"
BREAKER = "sharegroup.breaker.failure.percent"
DELAY = "sharegroup.redelivery.delay.ms"
DELIVERS = {PAUSED: "false", BREAKER: "0", DELAY: "0"}
"""Settings with which nothing withholds a group's records."""


@dataclass
class Administrator:
    """See the module's text.  ``features`` name what it does beside looking."""

    board: Board
    chance: random.Random
    features: tuple[str, ...]
    group_settings: dict[str, str]
    delay_ms_max: int
    pause_s: float = 1.0
    withheld: set[str] = field(default_factory=set)
    """Groups that may be paused, or have a circuit breaker or a redelivery delay."""

    async def run(self) -> None:
        client = Client("admin")
        await self._until_done(lambda: self._configure_groups(client))
        for name in self.board.names:
            await self._until_done(lambda name=name: self._create(client, name))  # type: ignore[misc]
        while True:
            await asyncio.sleep(self.chance.uniform(0, 2 * self.pause_s))
            try:
                await self._learn(client)
                await self._act(client)
            except NoAnswer:
                continue

    async def _act(self, client: Client) -> None:
        if self.board.is_settling:
            for name in self.board.names:
                if name not in self.board.topics:
                    await self._create(client, name)
            await self._resume(client)
            return
        actions: dict[str, Callable[[Client], Awaitable[Any]]] = {
            "grow": self._grow,
            "recreate": self._recreate,
            "delete_records": self._delete_records,
            "group_configs": self._change_group,
            "topic_configs": self._change_topic,
            "offsets": self._change_offsets,
            "delete_groups": self._delete_group,
            "retention": self._retain,
        }
        await self._describe(client)
        if self.features and self.chance.random() < 0.7:
            await actions[self.chance.choice(self.features)](client)

    async def _until_done(self, step: Callable[[], Awaitable[bool]]) -> None:
        while True:
            try:
                if await step():
                    return
            except NoAnswer:
                pass  # Whether it was done is found out by doing it again.
            await asyncio.sleep(0.2)

    async def _configure_groups(self, client: Client) -> bool:
        codes = []
        for group in self.board.groups:
            settings = {k: v.replace("*", group) for k, v in self.group_settings.items()}
            answer = await client.ask(make_alter_config(GROUP_RESOURCE, group, settings))
            codes.append(int(answer.responses[0].error_code))
        return not any(codes)

    async def _create(self, client: Client, name: str) -> bool:
        answer = await client.ask(make_create_topic(name, self.chance.randint(1, 3)))
        await self._learn(client)
        return int(answer.topics[0].error_code) in (0, TOPIC_EXISTS)

    async def _learn(self, client: Client) -> None:
        answer = await client.ask(make_metadata(*self.board.names))
        self.board.topics = {
            str(topic.name): KnownTopic(str(topic.name), topic.topic_id, len(topic.partitions))
            for topic in answer.topics
            if int(topic.error_code) == 0
        }

    async def _describe(self, client: Client) -> None:
        topics = {topic.name: topic.partition_count for topic in self.board.topics.values()}
        await client.ask(make_describe_offsets(self.chance.choice(self.board.groups), topics))

    async def _grow(self, client: Client) -> None:
        topic = self._any_topic()
        if topic is not None and topic.partition_count < PARTITIONS_MAX:
            await client.ask(make_create_partitions(topic.name, topic.partition_count + 1))

    async def _recreate(self, client: Client) -> None:
        if self.chance.random() < 0.3:
            name = self.chance.choice(self.board.names)
            await client.ask(make_delete_topic(name))
            await asyncio.sleep(self.chance.choice((0, 0, 0.5)))
            await self._create(client, name)

    async def _delete_records(self, client: Client) -> None:
        topic = self._any_topic()
        if topic is None:
            return
        index = self.chance.randrange(topic.partition_count)
        offset = self.chance.choice((0, 1, 5, 20, 50, -1))
        await client.ask(make_delete_records(topic.name, index, offset))

    async def _change_group(self, client: Client) -> None:
        settings = self.chance.choice(
            (
                {"share.record.lock.duration.ms": str(self.chance.choice((1000, 2000, 5000)))},
                {"share.delivery.count.limit": str(self.chance.choice((2, 3, 5, 10)))},
                {"share.partition.max.record.locks": str(self.chance.choice((100, 200)))},
                {"share.renew.acknowledge.enable": self.chance.choice(("true", "false"))},
                {"share.session.timeout.ms": str(self.chance.choice((2000, 4000)))},
                {"sharegroup.assignment": self.chance.choice(("simple", "wide"))},
                {PAUSED: self.chance.choice(("true", "false"))},
                {
                    DELAY: str(min(self.chance.choice((0, 50, 500)), self.delay_ms_max)),
                    "sharegroup.redelivery.delay.max.ms": self.chance.choice(("0", "2000")),
                },
                {
                    BREAKER: self.chance.choice(("0", "20", "50")),
                    "sharegroup.breaker.window": self.chance.choice(("1", "10", "50")),
                    "sharegroup.breaker.pause.ms": self.chance.choice(("50", "500")),
                },
            )
        )
        if ORDER_BY not in self.group_settings and self.chance.random() < 0.1:
            settings = {ORDER_BY: self.chance.choice(("none", "key"))}
        group = self.chance.choice(self.board.groups)
        if not DELIVERS.keys().isdisjoint(settings):
            self.withheld.add(group)  # Also where the answer may be lost.
        await client.ask(make_alter_config(GROUP_RESOURCE, group, settings))

    async def _resume(self, client: Client) -> None:
        """Let every group receive again, so that what is left can be drained."""
        for group in tuple(self.withheld):
            answer = await client.ask(make_alter_config(GROUP_RESOURCE, group, DELIVERS))
            if int(answer.responses[0].error_code) == 0:
                self.withheld.discard(group)

    async def _change_topic(self, client: Client) -> None:
        topic = self._any_topic()
        if topic is not None:
            settings = self.chance.choice(
                (
                    {"segment.bytes": str(self.chance.choice((1024, 4096, 1 << 20)))},
                    {"segment.ms": str(self.chance.choice((1000, 3000)))},
                )
            )
            await client.ask(make_alter_config(TOPIC_RESOURCE, topic.name, settings))

    async def _retain(self, client: Client) -> None:
        """Let the broker delete old records, or all that are closed."""
        topic = self._any_topic()
        if topic is not None and self.chance.random() < 0.3:
            settings = self.chance.choice(
                (
                    {"retention.ms": str(self.chance.choice((1000, 4000, -1)))},
                    {"retention.bytes": str(self.chance.choice((0, 2000, -1)))},
                )
            )
            await client.ask(make_alter_config(TOPIC_RESOURCE, topic.name, settings))

    async def _change_offsets(self, client: Client) -> None:
        """Mostly refused, as the group must be empty; after crashes it sometimes is."""
        topic, group = self._any_topic(), self.chance.choice(self.board.groups)
        if topic is None:
            return
        if self.chance.random() < 0.3:
            await client.ask(make_delete_offsets(group, topic.name))
            return
        index = self.chance.randrange(topic.partition_count)
        offset = self.chance.choice((0, 1, 10, 1_000_000))
        await client.ask(make_alter_offset(group, topic.name, index, offset))

    async def _delete_group(self, client: Client) -> None:
        if self.chance.random() < 0.3:
            await client.ask(make_delete_group(self.chance.choice(self.board.groups)))

    def _any_topic(self) -> KnownTopic | None:
        topics = list(self.board.topics.values())
        return self.chance.choice(topics) if topics else None


@dataclass
class Reader:
    """Reads logs as an ordinary consumer does, from the start, again and again."""

    name: str
    board: Board
    chance: random.Random
    isolation: int
    pause_s: float = 0.8

    async def run(self) -> None:
        client = Client(self.name)
        positions: dict[Any, int] = {}
        while True:
            await asyncio.sleep(self.chance.uniform(0, 2 * self.pause_s))
            partition = self.board.any_partition(self.chance)
            if partition is None:
                continue
            offset = positions.get(partition, 0)
            try:
                answer = await client.ask(self._request(partition, offset))
            except NoAnswer:
                continue
            for topic in answer.responses:
                for found in topic.partitions:
                    at_end = found.high_watermark <= offset + 10
                    again = int(found.error_code) != 0 or (at_end and self.chance.random() < 0.2)
                    step = self.chance.randint(1, 30)
                    positions[partition] = (
                        max(0, found.log_start_offset) if again else offset + step
                    )
                    if positions[partition] > max(0, found.high_watermark):
                        positions[partition] = max(0, found.high_watermark)

    def _request(self, partition: Partition, offset: int) -> Any:
        return make_fetch(partition, offset, wait_ms=200, isolation=self.isolation)
