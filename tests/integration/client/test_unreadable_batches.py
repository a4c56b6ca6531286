"""Batches that nobody can read cost a share group a few polls and one report each."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry

from sharegroup.client import (
    AdminClient,
    AlterConfig,
    ConfigResource,
    NewTopic,
    ResourceType,
    ShareConsumer,
    sync,
)
from sharegroup.client.metrics.prometheus import ClientCollector
from sharegroup.errors import UnreadableBatch
from sharegroup.ids import TopicName
from sharegroup.testing import broker
from sharegroup.wire.records import SimpleRecord, encode_batch
from sharegroup.worker.transport.kafka import KafkaSource
from tests.integration.broker.test_produce_checks import lying_batch
from tests.support.unreadable import cut_off, untrue

POLLS_MAX = 12
"""Four sound records, two reports, and a poll that waits for the broker's check."""
POLL_SECONDS = 5.0
SOUND = [b"1", b"2", b"3", b"4"]


def sound(value: bytes) -> bytearray:
    return encode_batch([SimpleRecord(None, value, 0)])


@asynccontextmanager
async def damaged_topic() -> AsyncIterator[str]:
    """A broker whose topic ``t`` holds four sound records between three batches that are not."""
    async with asyncio.timeout(60), broker() as there:
        async with AdminClient(bootstrap_servers=there.bootstrap_servers) as admin:
            assert await admin.create_topics([NewTopic("t", 1)]) == {"t": None}
            group = ConfigResource(ResourceType.GROUP, "g")
            earliest = AlterConfig("share.auto.offset.reset", "earliest")
            assert await admin.incremental_alter_configs({group: [earliest]}) == {group: None}
        log = there.running.parts.topics.named(TopicName("t"), 0)[1]
        first, second, third, fourth = map(sound, SOUND)
        bad = lying_batch(), bytearray(cut_off()), bytearray(untrue())
        assert len(bad[0]) == 69
        for batch in (first, bad[0], second, bad[1], third, bad[2], fourth):
            await log.append(batch, now_ms=time.time_ns() // 1_000_000)
        yield there.bootstrap_servers


def test_consumer_reports_and_counts_each_unreadable_batch_once() -> None:
    async def scenario() -> None:
        values: list[bytes | None] = []
        reported: list[str] = []
        async with (
            damaged_topic() as bootstrap,
            ShareConsumer("t", bootstrap_servers=bootstrap, group_id="g") as consumer,
        ):
            collector = ClientCollector()
            collector.add(consumer)
            for _ in range(POLLS_MAX):
                try:
                    values += [record.value for record in await consumer.poll(POLL_SECONDS)]
                except UnreadableBatch as error:
                    reported.append(str(error))
                if len(values) == len(SOUND):
                    break
            fetches = consumer.metrics()["consumer-share-fetch-manager-metrics"]
            assert fetches["unreadable-batches-total"] == 2
            registry = CollectorRegistry()
            registry.register(collector)
            name = "kafka_consumer_share_fetch_manager_unreadable_batches_total"
            assert registry.get_sample_value(name, {"client_id": consumer.client_id}) == 2
        assert values == SOUND
        assert len(reported) == 2, reported

    asyncio.run(scenario())


def test_blocking_consumer_reports_each_once() -> None:
    def consume(bootstrap: str) -> tuple[list[bytes | None], int]:
        values: list[bytes | None] = []
        reported = 0
        with sync.ShareConsumer("t", bootstrap_servers=bootstrap, group_id="g") as consumer:
            for _ in range(POLLS_MAX):
                try:
                    values += [record.value for record in consumer.poll(POLL_SECONDS)]
                except UnreadableBatch:
                    reported += 1
                if len(values) == len(SOUND):
                    break
        return values, reported

    async def scenario() -> None:
        async with damaged_topic() as bootstrap:
            assert await asyncio.to_thread(consume, bootstrap) == (SOUND, 2)

    asyncio.run(scenario())


def test_worker_logs_each_once_and_takes_the_next_without_a_pause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        values: list[bytes | None] = []
        async with damaged_topic() as bootstrap:
            source = KafkaSource("g", "t", 1 << 20, pause_seconds=1e9, bootstrap_servers=bootstrap)
            for _ in range(POLLS_MAX):
                for record in await source.take(10, POLL_SECONDS):
                    values.append(record.value)
                    record.accept()
                if len(values) == len(SOUND):
                    break
            await source.close(POLL_SECONDS)
        assert values == SOUND

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert sum("event=batch.unreadable" in line for line in caplog.messages) == 2
    assert sum("event=batch_unreadable" in line for line in caplog.messages) == 1, "the broker"
