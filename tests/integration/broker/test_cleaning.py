"""The broker's retention: by the settings that hold now, on the broker's clock."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sharegroup.broker.cluster.catalog import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from sharegroup.broker.cluster.cleaning import Cleaning
from sharegroup.client import (
    AdminClient,
    AlterConfig,
    ConfigResource,
    Producer,
    ResourceType,
    ShareConsumer,
)
from sharegroup.errors import InvalidRecord
from sharegroup.ids import TopicName
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.testing import ManualClock, TestBroker, broker
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.support.limits import HANGING_SECONDS

TOPIC = TopicName("events")
ROUNDS = 400
"""Of the storage thread; a pass over the logs of these tests takes fewer."""
THIS_BROKER = ConfigResource(ResourceType.BROKER, "1")
SETTINGS = {"log.segment.bytes": "1024", "log.retention.check.interval.ms": "60000"}


async def filled(running: TestBroker, **settings: str) -> PartitionLog:
    """Ten records of half a segment each."""
    topics = running.running.parts.topics
    named = {name.replace("_", "."): value for name, value in settings.items()}
    await topics.create(TOPIC, partitions=1, settings=named)
    async with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
        for _ in range(10):
            await producer.send_and_wait(TOPIC, bytes(600))
    return topics.named(TOPIC, 0)[1]


async def passed(running: TestBroker, clock: ManualClock, seconds: float) -> None:
    """Let time pass until the next look at the logs is over."""
    clock.advance(seconds)
    directory = running.running.directory
    for _ in range(ROUNDS):
        await asyncio.sleep(0)
        await directory.drain()


def test_old_records_are_deleted_at_the_next_retention_check(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with broker(SETTINGS, data=str(tmp_path), clock=clock) as running:
            log = await filled(running, retention_ms="3600000")
            await passed(running, clock, 3_500)
            assert log.start_offset == 0
            await passed(running, clock, 200)
            assert (log.start_offset, log.end_offset, log.size) == (10, 10, 0)

    asyncio.run(main())


def test_records_with_future_timestamps_are_deleted_by_their_write_time(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with broker(SETTINGS, data=str(tmp_path), clock=clock) as running:
            log = await filled(running, retention_ms="3600000")
            future_ms = clock.wall_ms() + 10 * 24 * 3_600_000
            batch = encode_batch(
                [SimpleRecord(None, b"v", future_ms)]
            )  # Produce requests now refuse such a timestamp.
            await log.append(batch, now_ms=clock.wall_ms())
            await passed(running, clock, 3_500)
            assert log.start_offset == 0
            await passed(running, clock, 200)
            assert (log.start_offset, log.end_offset, log.size) == (11, 11, 0)

    asyncio.run(main())


def test_records_beyond_retention_bytes_are_deleted_at_the_next_check(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with broker(SETTINGS, data=str(tmp_path), clock=clock) as running:
            log = await filled(running, retention_bytes="2500")
            await passed(running, clock, 61)
            assert (log.start_offset, log.end_offset) == (6, 10)
            assert 2500 <= log.size < 3500

    asyncio.run(main())


def test_changed_retention_applies_at_the_next_check(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with broker(SETTINGS, data=str(tmp_path), clock=clock) as running:
            log = await filled(running)
            await passed(running, clock, 61)
            assert log.start_offset == 0
            async with AdminClient(bootstrap_servers=running.bootstrap_servers) as admin:
                change = [AlterConfig("log.retention.bytes", "2500")]
                await admin.incremental_alter_configs({THIS_BROKER: change})
            await passed(running, clock, 61)
            assert log.start_offset == 6

    asyncio.run(main())


def test_compacted_topic_without_delete_policy_ignores_retention_ms(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with broker(SETTINGS, data=str(tmp_path), clock=clock) as running:
            log = await keyed(running, 12, retention_ms="1000", cleanup_policy="compact")
            await passed(running, clock, 3_600)
            assert log.start_offset == 0

    asyncio.run(main())


def test_internal_topics_of_an_older_broker_are_not_deleted_by_age(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(SETTINGS, data=str(tmp_path)) as running:
            topics = running.running.parts.topics
            for name in (CONSUMER_OFFSETS, SHARE_GROUP_STATE):
                await topics.alter(
                    lambda name=name: {
                        "event": "topic_settings",
                        "name": name,
                        "settings": {"cleanup.policy": "delete"},
                    }
                )
        async with broker(SETTINGS, data=str(tmp_path)) as running:
            topics = running.running.parts.topics
            offsets = topics.catalog.topic(CONSUMER_OFFSETS).config
            state = topics.catalog.topic(SHARE_GROUP_STATE).config
            assert offsets.cleanup_policy == ("compact",)
            assert (state.cleanup_policy, state.retention_ms) == (("delete",), -1)

    asyncio.run(main())


async def keyed(running: TestBroker, count: int, **settings: str) -> PartitionLog:
    """Records of half a segment each, of three keys in turn."""
    topics = running.running.parts.topics
    if topics.catalog.find(TOPIC) is None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        await topics.create(TOPIC, partitions=1, settings=named)
    async with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
        for number in range(count):
            await producer.send_and_wait(TOPIC, bytes(600), key=b"%d" % (number % 3))
    return topics.named(TOPIC, 0)[1]


def test_a_compacted_topic_keeps_the_newest_record_of_each_key(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with broker(SETTINGS, data=str(tmp_path), clock=clock) as running:
            log = await keyed(running, 12, cleanup_policy="compact")
            before = log.size
            await passed(running, clock, 16)
            assert (log.start_offset, log.end_offset, log.cleaned_to) == (0, 12, 11)
            assert log.size < before / 2

    asyncio.run(main())


def test_compaction_takes_the_checkpoint_that_it_needs(tmp_path: Path) -> None:
    """Checkpoints come every 30 seconds, and the cleaner looks at the logs every 15."""

    async def main() -> None:
        clock = ManualClock()
        async with broker(SETTINGS, data=str(tmp_path), clock=clock) as running:
            log = await keyed(running, 12, cleanup_policy="compact")
            await running.create_topic("others")
            async with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
                await producer.send_and_wait("others", b"value")
            other = running.running.parts.topics.named(TopicName("others"), 0)[1]
            assert log.recovery_point == 0
            await passed(running, clock, 16)
            assert (log.recovery_point, log.cleaned_to) == (12, 11)
            assert other.recovery_point == 0

    asyncio.run(main())


def test_log_that_needs_no_compaction_gets_no_checkpoint_for_it(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with broker(SETTINGS, data=str(tmp_path), clock=clock) as running:
            settings = {"cleanup_policy": "compact", "min_compaction_lag_ms": "3600000"}
            log = await keyed(running, 12, **settings)
            await passed(running, clock, 16)
            assert (log.recovery_point, log.cleaned_to) == (0, 0)

    asyncio.run(main())


def test_topic_is_compacted_at_its_dirty_ratio(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with broker(SETTINGS, data=str(tmp_path), clock=clock) as running:
            ratio = {"min_cleanable_dirty_ratio": "0.6"}
            log = await keyed(running, 12, cleanup_policy="compact", **ratio)
            await passed(running, clock, 16)
            assert log.cleaned_to == 11
            await keyed(running, 2)
            await passed(running, clock, 16)
            assert log.cleaned_to == 11
            await keyed(running, 6)
            await passed(running, clock, 16)
            assert log.cleaned_to == 19

    asyncio.run(main())


def test_overdue_topic_is_compacted_below_its_dirty_ratio(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with broker(SETTINGS, data=str(tmp_path), clock=clock) as running:
            settings = {"min_cleanable_dirty_ratio": "1", "max_compaction_lag_ms": "3600000"}
            log = await keyed(running, 12, cleanup_policy="compact", **settings)
            await passed(running, clock, 16)
            assert log.cleaned_to == 0
            await passed(running, clock, 3_600)
            assert log.cleaned_to == 11

    asyncio.run(main())


def test_a_compacted_topic_takes_no_record_without_a_key(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(SETTINGS, data=str(tmp_path)) as running:
            await keyed(running, 1, cleanup_policy="compact")
            async with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
                with pytest.raises(InvalidRecord, match="but the record has no key"):
                    await producer.send_and_wait(TOPIC, b"value")

    asyncio.run(main())


def offsets_log(running: TestBroker) -> PartitionLog:
    """The only log of `__consumer_offsets` with records."""
    topics = running.running.parts.topics
    offsets = topics.catalog.topic(CONSUMER_OFFSETS)
    (log,) = [opened for opened in topics.opened(offsets) if opened.size]
    return log


def test_groups_are_the_same_after_their_topic_was_compacted(tmp_path: Path) -> None:
    """Ten members come and go; of their records little is left, and of the group all."""
    settings = {"offsets.topic.segment.bytes": "1024", "log.cleaner.backoff.ms": "20"}

    async def main() -> None:
        off = {**settings, "log.cleaner.enable": "false"}
        async with broker(off, data=str(tmp_path)) as running:
            topics = running.running.parts.topics
            await topics.create(TOPIC, partitions=3, settings={})
            for _ in range(10):
                async with ShareConsumer(
                    TOPIC,
                    bootstrap_servers=running.bootstrap_servers,
                    group_id="readers",
                    fetch_max_wait_ms=10,  # Closing waits for the fetch that is under way.
                ) as consumer:
                    await consumer.poll(0.01)
            before, pictures = offsets_log(running).size, await described(running)
        async with broker(settings, data=str(tmp_path)) as running:
            log = offsets_log(running)
            async with asyncio.timeout(HANGING_SECONDS):
                while log.size > before / 2:
                    await running.running.directory.drain()
            assert await described(running) == pictures
        async with broker(settings, data=str(tmp_path)) as running:
            assert await described(running) == pictures

    asyncio.run(main())


async def described(running: TestBroker) -> tuple[object, ...]:
    async with AdminClient(bootstrap_servers=running.bootstrap_servers) as admin:
        groups = await admin.describe_share_groups(["readers"])
        offsets = await admin.list_share_group_offsets({"readers": None})
    return groups["readers"], offsets["readers"]


def test_fault_that_one_log_brings_to_light_leaves_the_others_compacted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with broker(SETTINGS, data=str(tmp_path)) as running:
            parts = running.running.parts
            settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
            names = [TopicName("first"), TopicName("second")]
            async with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
                for name in names:
                    await parts.topics.create(name, partitions=1, settings=settings)
                    for _ in range(10):
                        await producer.send_and_wait(name, bytes(600), key=b"k")
            await running.running.directory.checkpoint()
            real, met = parts.topics.compact, set[PartitionLog]()

            async def compact(log: PartitionLog, *rest: Any) -> Any:
                if log is parts.topics.named(names[0], 0)[1]:
                    met.add(log)
                    raise ZeroDivisionError("as if by mistake")
                return await real(log, *rest)

            monkeypatch.setattr(type(parts.topics), "compact", staticmethod(compact))
            cleaning = Cleaning(parts.config, parts.clock, parts.topics)
            for _ in range(2):
                await cleaning.compact()
            sizes = [parts.topics.named(name, 0)[1].size for name in names]
            assert len(met) == 1
            assert sizes[1] < sizes[0] / 2
            failures = [line for line in caplog.messages if "event=compaction_failed" in line]
            assert [line.count("topic=first partition=0") for line in failures] == [1]

    asyncio.run(main())
