"""A broker, a topic of work, and a group with a dead-letter queue, on a clock moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from kio.schema.incremental_alter_configs.v1 import request as alter_configs
from kio.schema.update_features.v1 import request as update_features
from kio.static.primitive import i8, i16

from sharegroup.broker.share.dead_letters import DeadLetterCounts, DeadLetters
from sharegroup.broker.share.live_share_partition import LiveSharePartition
from sharegroup.core.delivery.delivery import AcquireRequest, LogBatches
from sharegroup.ids import GroupId, MemberId, SharePartitionKey, TopicId, TopicName
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.storage.disk.files import Files
from sharegroup.wire.batches.batches import BatchHeader, scan
from sharegroup.wire.batches.records import (
    DecodedRecord,
    SimpleRecord,
    decode_records,
    encode_batch,
)
from tests.faults.in_process import DATA, Broker, ShareMember

TOPIC_KIND, BROKER_KIND, GROUP_KIND = 2, 4, 32
TURNS_MAX = 10_000


class Scene:
    """Group g of one member works on `orders`, of one partition; its dead letters go to dlq.g."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.member = ShareMember("g", "member-1", "orders", 1, connection_id=1)

    @classmethod
    async def start(cls, files: Files | None, data: str = DATA, **settings: str) -> Scene:
        return cls(await Broker.start(files, data, **settings))

    async def set_up(self, *, auto_create: bool = True, **group_settings: str) -> None:
        """Topic, group and its queue, all of it allowed; the member's session is open."""
        await self.broker.create_topic("orders", 1)
        if auto_create:
            await self.alter(
                BROKER_KIND, "", errors_deadletterqueue_auto_create_topics_enable="true"
            )
        values = {
            "errors_deadletterqueue_topic_name": "dlq.g",
            "errors_deadletterqueue_copy_record_enable": "true",
            "share_auto_offset_reset": "earliest",
        }
        await self.alter(GROUP_KIND, "g", **(values | group_settings))
        await self.join()

    async def make_queue(self, name: str = "dlq.g", **settings: str) -> None:
        """A dead-letter topic as an operator makes it."""
        assert await self.broker.create_topic(name, 1) == 0
        enabled = {"errors_deadletterqueue_group_enable": "true"}
        await self.alter(TOPIC_KIND, name, **(enabled | settings))

    async def join(self) -> None:
        self.member.broker_restarted()
        self.member.member_epoch = 0
        assert await self.member.heartbeat(self.broker) == 0

    async def alter(self, kind: int, resource: str, **values: str) -> None:
        """``values`` have ``_`` for the dots of the keys; "" unsets one."""
        changes = tuple(
            alter_configs.AlterableConfig(
                name=key.replace("_", "."),
                config_operation=i8(0 if value else 1),
                value=value or None,
            )
            for key, value in values.items()
        )
        named = alter_configs.AlterConfigsResource(
            resource_type=i8(kind), resource_name=resource, configs=changes
        )
        request = alter_configs.IncrementalAlterConfigsRequest(
            resources=(named,), validate_only=False
        )
        [answer] = (await self.broker.ask(request)).responses
        assert answer.error_code == 0, answer.error_message

    async def produce(
        self, *records: tuple[bytes | None, bytes | None, Any], codec: int = 0
    ) -> int:
        """Key, value and headers of each; the base offset."""
        batch = encode_batch(
            [SimpleRecord(key, value, 1, headers) for key, value, headers in records], codec=codec
        )
        error, base_offset = await self.broker.produce("orders", 0, batch)
        assert error == 0
        return base_offset

    async def produce_values(self, count: int, size: int = 10) -> int:
        return await self.produce(*((None, b"%0*d" % (size, n), ()) for n in range(count)))

    async def take(self, count: int = 500) -> list[tuple[int, int]]:
        """Offset and delivery count of what the member locks."""
        taken, _ = await self.member.fetch(self.broker, records_max=count)
        return [(record.offset, record.delivery_count) for record in taken]

    async def take_undecoded(self, count: int) -> list[int]:
        """Lock so many records, whatever they are; the member's session is open then."""
        assert await self.take(0) == []
        live = await self.live()
        found = live.log.batches(0, bytes_max=1 << 24)
        acquired = live.state.acquire(
            MemberId(self.member.member_id),
            LogBatches(0, found.firsts, found.ends),
            request=AcquireRequest(count, 500),
            limits=self.broker.running.parts.group_settings.limits(live.key.group_id),
            now_ms=self.broker.clock.now_ms(),
        )
        return [offset for range_ in acquired.ranges for offset in range(range_.first, range_.end)]

    async def settle(self, *acks: tuple[int, AcknowledgeType]) -> None:
        assert await self.member.acknowledge(self.broker, {0: acks}) == {0: 0}

    async def reject(self, *offsets: int) -> None:
        await self.settle(*((offset, AcknowledgeType.REJECT) for offset in offsets))

    def letters(self, topic: str = "dlq.g", partition: int = 0) -> list[DecodedRecord]:
        """What is readable of the dead-letter topic now."""
        topics = self.broker.running.parts.topics
        found = topics.catalog.find(TopicName(topic))
        if found is None or not topics.is_touched(found, partition):
            return []
        log, records = topics.log_of(found, partition), []
        offset = log.start_offset
        while offset < log.high_watermark:
            records += decode_records(log.read(offset, bytes_max=1 << 20))
            offset = records[-1].offset + 1
        return records

    def origins(self, topic: str = "dlq.g", partition: int = 0) -> list[int]:
        """The offsets of which there are dead letters, in the order of the letters."""
        return [
            int(dict(letter.headers)["__dlq.errors.offset"] or b"")
            for letter in self.letters(topic, partition)
        ]

    def batch_headers(self) -> list[BatchHeader]:
        """Of each batch of the dead-letter topic."""
        topics = self.broker.running.parts.topics
        _, log = topics.named(TopicName("dlq.g"), 0)
        return [header for _, header in scan(log.read(0, bytes_max=1 << 24))]

    def counts(self) -> DeadLetterCounts:
        """What was done for the group."""
        return self.broker.running.parts.dead_letters.counts[GroupId("g")]

    @property
    def dead_letters(self) -> DeadLetters:
        return self.broker.running.parts.dead_letters

    async def seconds(self, count: int) -> None:
        """Let time pass, and the dead letters be dealt with that are due then."""
        for _ in range(count):
            self.broker.clock.advance(1)
            await self.until(lambda: self.dead_letters.is_idle, "idle")

    async def share_version(self, level: int) -> None:
        """Another level of the feature: 1 is share groups without dead letters."""
        update = update_features.FeatureUpdateKey(
            feature="share.version", max_version_level=i16(level), upgrade_type=i8(1 + (level < 2))
        )
        request = update_features.UpdateFeaturesRequest(
            feature_updates=(update,), validate_only=False
        )
        assert (await self.broker.ask(request)).error_code == 0

    async def key(self, partition: int = 0) -> SharePartitionKey:
        topic_id = await self.broker.topic_id("orders")
        assert topic_id is not None
        return SharePartitionKey(GroupId("g"), TopicId(topic_id), partition)

    async def live(self) -> LiveSharePartition:
        return self.broker.running.parts.share_partitions.get(await self.key())

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Let the broker work until something holds; time stands still."""
        for _ in range(TURNS_MAX):
            if condition():
                return
            await asyncio.sleep(0.0005)
        raise AssertionError(f"never: {what}")

    async def start_offset(self) -> int:
        [(start_offset, _)] = await self.broker.group_offsets("g", "orders", 1)
        return start_offset

    async def settles_up_to(self, offset: int) -> None:
        """Wait until the group's durable start offset is ``offset``."""
        for _ in range(TURNS_MAX):
            if await self.start_offset() >= offset:
                break
            await asyncio.sleep(0.0005)
        assert await self.start_offset() == offset


def played(scenario: Callable[[Scene], Awaitable[None]], path: Path, **settings: str) -> None:
    """Run a scenario on a broker of its own, on a real directory."""

    async def main() -> None:
        scene = await Scene.start(None, str(path), **settings)
        try:
            await scenario(scene)
        finally:
            await scene.broker.stop()

    asyncio.run(main())
