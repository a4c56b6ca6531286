"""Topics over a real data directory: kept through restarts, orphans, producer ids."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest

from sharegroup.broker.cluster.producer_ids import BLOCK_IDS, ProducerIds
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.configuration.config import Config
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.core.log.producer_state import ProducedBatch
from sharegroup.errors import InvalidPartitions, PolicyViolation, UnknownTopicOrPartition
from sharegroup.ids import TopicId, TopicName
from sharegroup.steps import STEP_ELEMENTS, run_to_end
from sharegroup.storage.directory.log_directory import LogDirectory
from sharegroup.wire.batches.records import SimpleRecord, encode_batch

ORDERS = TopicName("orders")


@asynccontextmanager
async def opened(path: Path, settings: dict[str, str] | None = None) -> AsyncIterator[Topics]:
    directory = LogDirectory.open(str(path), wall_ms=lambda: 1_700_000_000_000)
    config = LiveConfig(Config.parse(settings or {}))
    topics = Topics(config, directory, directory.journal("catalog.journal"))
    await topics.start()
    try:
        yield topics
    finally:
        await directory.close()


def folders(path: Path) -> list[str]:
    return sorted(path_.name for path_ in path.iterdir() if path_.is_dir())


def test_topic_and_its_records_survive_a_restart(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as topics:
            topic = await topics.create(ORDERS, partitions=2, settings={})
            batch = encode_batch([SimpleRecord(None, b"one", 1)])
            await topics.log_of(topic, 1).append(batch, now_ms=1)
        async with opened(tmp_path) as topics:
            again, log = topics.named(ORDERS, 1)
            assert again == topic
            assert log.high_watermark == 1

    asyncio.run(run())


def test_partition_without_records_has_no_folder(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as topics:
            await topics.create(ORDERS, partitions=1_000, settings={})
            topics.named(ORDERS, 999)
            assert folders(tmp_path) == []

    asyncio.run(run())


def test_folders_of_a_deleted_topic_are_removed_at_start(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as topics:
            topic = await topics.create(ORDERS, partitions=1, settings={})
            await topics.log_of(topic, 0).append(
                encode_batch([SimpleRecord(None, b"1", 1)]), now_ms=1
            )
        # As after a crash between the journal's event and the removal of the files.
        async with opened(tmp_path) as topics:
            await topics.alter(lambda: {"event": "topic_deleted", "id": topic.topic_id.hex})
            assert len(folders(tmp_path)) == 1
        async with opened(tmp_path):
            pass
        assert folders(tmp_path) == []

    asyncio.run(run())


def test_error_for_an_unknown_partition_names_the_existing_ones(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as topics:
            await topics.create(ORDERS, partitions=2, settings={})
            with pytest.raises(UnknownTopicOrPartition, match="partitions 0 to 1, not 2"):
                topics.named(ORDERS, 2)

    asyncio.run(run())


def test_partitions_only_grow_and_only_to_the_limit(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path, {"sharegroup.partitions.max": "5"}) as topics:
            await topics.create(ORDERS, partitions=2, settings={})
            with pytest.raises(InvalidPartitions, match="has 2 partitions"):
                await topics.grow(ORDERS, 2)
            with pytest.raises(PolicyViolation, match=r"sharegroup\.partitions\.max=5"):
                await topics.grow(ORDERS, 6)
            await topics.grow(ORDERS, 5)
            assert topics.catalog.topic(ORDERS).partition_count == 5

    asyncio.run(run())


def test_producer_ids_are_never_repeated(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as topics:
            ids = ProducerIds(topics)
            assert [await ids.take() for _ in range(3)] == [0, 1, 2]
        async with opened(tmp_path) as topics:
            assert await ProducerIds(topics).take() == BLOCK_IDS

    asyncio.run(run())


def test_silent_producers_are_forgotten(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as topics:
            topic = await topics.create(ORDERS, partitions=1, settings={})
            log = topics.log_of(topic, 0)
            batch = encode_batch(
                [SimpleRecord(None, b"1", 1)], producer_id=7, producer_epoch=0, base_sequence=0
            )
            await log.append(batch, now_ms=1_000)
            run_to_end(topics.expire_producers(1_000))
            assert len(log.producers) == 1
            run_to_end(topics.expire_producers(1_001))
            assert len(log.producers) == 0

    asyncio.run(run())


def test_silent_producers_of_many_partitions_are_forgotten_in_steps(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as topics:
            topic = await topics.create(ORDERS, partitions=200, settings={})
            states = [topics.log_of(topic, partition).producers for partition in range(200)]
            for producers in states:
                producers.append(7, epoch=0, batch=ProducedBatch(0, 0, 1), now_ms=999)
            forgotten = most = before = 0
            for _ in topics.expire_producers(1_000):
                forgotten = sum(not len(producers) for producers in states)
                most, before = max(most, forgotten - before), forgotten
            assert (forgotten, most) == (200, STEP_ELEMENTS)

    asyncio.run(run())


def test_unknown_topic_id_is_not_found(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as topics:
            assert topics.catalog.by_id(TopicId(UUID(int=9))) is None

    asyncio.run(run())
