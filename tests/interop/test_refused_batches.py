"""A batch that Java's clients refuse is the same range for ours, and the next batch arrives.

The broker is ours, because Apache Kafka refuses such a batch when it is produced.
"""

from __future__ import annotations

import asyncio
import subprocess
import time

import pytest

from sharegroup.client import (
    AdminClient,
    AlterConfig,
    ConfigResource,
    Consumer,
    NewTopic,
    ResourceType,
    ShareConsumer,
    TopicPartition,
)
from sharegroup.errors import UnreadableBatch
from sharegroup.ids import TopicName
from sharegroup.testing import broker
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.support import kafka_peer
from tests.support.java_shell import NO_COMPILER, java_command, javac

WHY_NOT = kafka_peer.why_missing() or (None if javac() else NO_COMPILER)
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]
SECONDS_MAX = 120.0
TOPIC, GROUP = "java.refused.topic", "java.refused.group"
WHERE = TopicPartition(TOPIC, 0)
"""As `java/ShareClient.java` names them."""


def batch(*values: bytes) -> bytearray:
    return encode_batch([SimpleRecord(None, value, 0) for value in values])


@pytest.mark.slow
def test_java_and_we_stop_at_the_same_batch_and_get_the_next() -> None:
    async def scenario() -> None:
        async with asyncio.timeout(SECONDS_MAX), broker() as there:
            bootstrap = there.bootstrap_servers
            async with AdminClient(bootstrap_servers=bootstrap) as admin:
                assert await admin.create_topics([NewTopic(TOPIC, 1)]) == {TOPIC: None}
                earliest = AlterConfig("share.auto.offset.reset", "earliest")
                for group in (GROUP, "ours"):
                    resource = ConfigResource(ResourceType.GROUP, group)
                    assert await admin.incremental_alter_configs({resource: [earliest]})
            log = there.running.parts.topics.named(TopicName(TOPIC), 0)[1]
            bad = batch(b"bad", b"bad")
            bad[-1] ^= 1
            for written in (batch(b"v0"), bad, batch(b"v3")):
                await log.append(written, now_ms=time.time_ns() // 1_000_000)
            java = await asyncio.to_thread(
                subprocess.run,
                java_command(kafka_peer.kafka_libs(), "ShareClient", bootstrap, "refused"),
                capture_output=True,
                text=True,
                timeout=SECONDS_MAX,
            )
            assert java.returncode == 0, java.stdout + java.stderr
            shared, plain = await by_share_consumer(bootstrap), await by_consumer(bootstrap)
        assert java.stdout.splitlines()[-3:] == [
            "## refused",
            "shared: [0=v0 #1, CorruptRecordException, 3=v3 #1]",
            "plain: [0=v0, KafkaException at 1, KafkaException at 1, 3=v3]",
        ]
        assert shared == [(0, b"v0"), (1, 3), (3, b"v3")]
        assert plain == [(0, b"v0"), (1, 3), (1, 3), (3, b"v3")]

    asyncio.run(scenario())


async def by_share_consumer(bootstrap: str) -> list[object]:
    """Offsets and values, and the ranges that cannot be read."""
    seen: list[object] = []
    async with ShareConsumer(
        TOPIC, bootstrap_servers=bootstrap, group_id="ours", share_acknowledgement_mode="explicit"
    ) as consumer:
        while (3, b"v3") not in seen:
            try:
                for record in await consumer.poll(1):
                    seen.append((record.offset, record.value))
                    record.accept()
            except UnreadableBatch as error:
                seen.append((error.first, error.end))
                consumer.reject(error)
    return seen


async def by_consumer(bootstrap: str) -> list[object]:
    """As `by_share_consumer`; the range is passed with its second error."""
    seen: list[object] = []
    async with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([WHERE])
        consumer.seek(WHERE, 0)
        while (3, b"v3") not in seen:
            try:
                seen += [(record.offset, record.value) for record in await consumer.poll(1)]
            except UnreadableBatch as error:
                seen.append((error.first, error.end))
                if len(seen) == 3:
                    consumer.seek(TopicPartition(error.topic, error.partition), error.end)
    return seen
