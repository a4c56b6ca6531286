"""Batches that nobody can read: each acquired range is raised once, and the application decides."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry

from sharegroup.client import (
    AcknowledgeType,
    AdminClient,
    AlterConfig,
    ConfigResource,
    NewTopic,
    ResourceType,
    ShareConsumer,
    SharePartitionOffset,
    TopicPartition,
    sync,
)
from sharegroup.client.metrics.prometheus import ClientCollector
from sharegroup.client.share.consumer.flow_control import FlowControl
from sharegroup.client.share.consumer.record import UnreadableDelivery
from sharegroup.errors import UnreadableBatch
from sharegroup.ids import TopicName
from sharegroup.testing import broker
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.integration.broker.test_produce_checks import lying_batch
from tests.support.limits import HANGING_SECONDS
from tests.support.unreadable import cut_off, untrue

WHERE = TopicPartition("t", 0)
POLLS_MAX = 12
"""Four sound records, two reports, and a poll that waits for the broker's check."""
SOUND = [b"1", b"2", b"3", b"4"]


def sound(value: bytes) -> bytearray:
    return encode_batch([SimpleRecord(None, value, 0)])


@asynccontextmanager
async def damaged_topic() -> AsyncIterator[str]:
    """A broker whose topic ``t`` holds four sound records between three batches that are not."""
    async with asyncio.timeout(HANGING_SECONDS), broker() as there:
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


@pytest.mark.parametrize("columns", [False, True], ids=["records", "columns"])
def test_consumer_raises_each_range_once_and_the_application_decides(columns: bool) -> None:
    async def scenario() -> None:
        values: list[bytes | None] = []
        errors: list[UnreadableBatch] = []
        async with (
            damaged_topic() as bootstrap,
            ShareConsumer(
                "t",
                bootstrap_servers=bootstrap,
                group_id="g",
                share_acknowledgement_mode="explicit",
            ) as consumer,
        ):
            collector = ClientCollector()
            collector.add(consumer)
            for _ in range(POLLS_MAX):
                try:
                    if columns:
                        batch = await consumer.poll_arrow(HANGING_SECONDS)
                        assert batch is not None
                        values += batch["value"].to_pylist()
                        consumer.accept(batch)
                    else:
                        records = await consumer.poll(HANGING_SECONDS)
                        values += [record.value for record in records]
                        consumer.accept(records)
                except UnreadableBatch as error:
                    errors.append(error)
                    consumer.reject(error)
                if len(values) == len(SOUND):
                    break
            assert await consumer.commit() in ({}, {WHERE: None})
            assert await remaining(bootstrap) == 0
            fetches = consumer.metrics()["consumer-share-fetch-manager-metrics"]
            assert fetches["unreadable-batches-total"] == 2
            registry = CollectorRegistry()
            registry.register(collector)
            name = "kafka_consumer_share_fetch_manager_unreadable_batches_total"
            assert registry.get_sample_value(name, {"client_id": consumer.client_id}) == 2
        assert values == SOUND
        assert [error.end - error.first for error in errors] == [400, 400]
        assert [len(error.batch) for error in errors] == [len(cut_off()), len(untrue())]
        assert "topic 't' partition 0 offsets " in str(errors[0])

    asyncio.run(scenario())


async def remaining(bootstrap: str) -> int | None:
    """The lag of the group."""
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        listed = (await admin.list_share_group_offsets({"g": None}))["g"]
        assert isinstance(listed, dict)
        offset = listed[WHERE]
        assert isinstance(offset, SharePartitionOffset)
        return offset.lag


async def first_error(consumer: ShareConsumer) -> UnreadableDelivery:
    for _ in range(POLLS_MAX):
        try:
            await consumer.poll(HANGING_SECONDS)
        except UnreadableDelivery as error:
            return error
    raise AssertionError("no poll raised")


def test_without_a_decision_the_range_is_released_and_delivered_again() -> None:
    async def scenario() -> None:
        counts: list[int] = []
        async with damaged_topic() as bootstrap:
            for _ in range(2):
                async with ShareConsumer(
                    "t", bootstrap_servers=bootstrap, group_id="g"
                ) as consumer:
                    error = await first_error(consumer)
                    counts.append(error.delivery_count)
                    assert (await consumer.close()).released[WHERE] >= 400
        assert counts == [1, 2]

    asyncio.run(scenario())


@pytest.mark.parametrize("decided", [AcknowledgeType.REJECT, AcknowledgeType.ACCEPT])
def test_blocking_consumer_decides_by_offset_or_by_error(decided: AcknowledgeType) -> None:
    def consume(bootstrap: str) -> tuple[list[bytes | None], int]:
        values: list[bytes | None] = []
        reported = 0
        with sync.ShareConsumer("t", bootstrap_servers=bootstrap, group_id="g") as consumer:
            for _ in range(POLLS_MAX):
                try:
                    values += [record.value for record in consumer.poll(HANGING_SECONDS)]
                except UnreadableBatch as error:
                    reported += 1
                    if reported == 1:
                        consumer.acknowledge(error, decided)
                    else:
                        for offset in range(error.first, error.end):
                            consumer.acknowledge_offset("t", 0, offset, decided)
                if len(values) == len(SOUND):
                    break
            consumer.commit()
        return values, reported

    async def scenario() -> None:
        async with damaged_topic() as bootstrap:
            assert await asyncio.to_thread(consume, bootstrap) == (SOUND, 2)
            assert await remaining(bootstrap) == 0

    asyncio.run(scenario())


def test_window_has_room_for_records_while_a_range_is_undecided() -> None:
    async def scenario() -> None:
        values: list[bytes | None] = []
        async with (
            damaged_topic() as bootstrap,
            ShareConsumer(
                "t",
                bootstrap_servers=bootstrap,
                group_id="g",
                share_acknowledgement_mode="explicit",
                in_flight_max=500,
            ) as consumer,
        ):
            control = FlowControl(consumer)
            kept: list[UnreadableDelivery] = []
            for _ in range(POLLS_MAX):
                try:
                    values += [record.value for record in await consumer.poll(HANGING_SECONDS)]
                except UnreadableDelivery as error:
                    control.keep(error)
                    kept.append(error)
                if len(values) == len(SOUND):
                    break
            assert values == SOUND
            assert consumer.in_flight == 4
            for error in kept:
                consumer.reject(error)
            assert await consumer.commit() == {WHERE: None}

    asyncio.run(scenario())
