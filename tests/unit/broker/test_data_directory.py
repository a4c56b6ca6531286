"""A broker starts only with a catalog and partition folders that belong together.

What it must never do is to delete a folder because the catalog does not know it: the catalog may
be lost, damaged, or an older copy.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from sharegroup.broker.cluster.catalog import SHARE_GROUP_STATE
from sharegroup.broker.cluster.catalog_part import Event
from sharegroup.broker.cluster.producer_ids import BLOCK_IDS, ProducerIds
from sharegroup.broker.cluster.topics import JOURNAL_EVENTS_SPARE, Topics
from sharegroup.broker.configuration.config import Config
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.cli.broker.repairing.diagnosis import findings
from sharegroup.cli.broker.repairing.repair import Repair
from sharegroup.cli.broker.repairing.state import read_state
from sharegroup.errors import KafkaStorageError
from sharegroup.ids import TopicIdPartition, TopicName
from sharegroup.storage.directory.log_directory import LogDirectory
from sharegroup.storage.disk.files import RealFiles
from sharegroup.storage.disk.folders import folder_name
from sharegroup.testing.power_loss import PowerLossDisk
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.support.limits import HANGING_SECONDS

ORDERS = TopicName("orders")
JOURNAL = "catalog.journal"


@asynccontextmanager
async def opened(
    path: Path | str, disk: PowerLossDisk | None = None, *, events_spare: int = JOURNAL_EVENTS_SPARE
) -> AsyncIterator[Topics]:
    directory = LogDirectory.open(str(path), wall_ms=lambda: 1_700_000_000_000, files=disk)
    try:
        topics = Topics(
            LiveConfig(Config.parse({})),
            directory,
            directory.journal(JOURNAL),
            journal_events_spare=events_spare,
        )
        await topics.start()
        yield topics
    finally:
        await directory.close()


def content(path: Path) -> dict[str, bytes]:
    """The files in partition folders."""
    return {str(file.relative_to(path)): file.read_bytes() for file in path.glob("*/*")}


async def make_topic(path: Path, name: str = ORDERS, *, partitions: int = 1) -> None:
    """A topic with one record in each partition."""
    async with opened(path) as topics:
        topic = await topics.create(TopicName(name), partitions=partitions, settings={})
        for number in range(partitions):
            batch = encode_batch([SimpleRecord(None, b"1", 1)])
            await topics.log_of(topic, number).append(batch, now_ms=1)


def refused(path: Path, *, match: str) -> None:
    """A start fails with this message and leaves every record where it is."""
    before = content(path)

    async def start() -> None:
        with pytest.raises(KafkaStorageError, match=match):
            async with opened(path):
                pass

    asyncio.run(start())
    assert content(path) == before


def remove(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def tear_first_event(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


@pytest.mark.parametrize("damage", [remove, empty, tear_first_event])
def test_a_lost_journal_is_never_a_new_directory(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    asyncio.run(make_topic(tmp_path))
    damage(tmp_path / JOURNAL)
    refused(
        tmp_path, match=r"catalog\.journal is missing or its first events are missing.*1 partition"
    )
    refused(tmp_path, match="sharegroup data check --data")


def test_a_lost_journal_beside_meta_properties_is_no_new_directory(tmp_path: Path) -> None:
    async def make() -> None:
        async with opened(tmp_path):
            pass

    asyncio.run(make())
    (tmp_path / JOURNAL).unlink()
    refused(tmp_path, match=r"meta\.properties says that the directory belongs to cluster")


def test_an_older_copy_of_the_journal_is_refused(tmp_path: Path) -> None:
    asyncio.run(make_topic(tmp_path))
    older = (tmp_path / JOURNAL).read_bytes()
    asyncio.run(make_topic(tmp_path, "payments"))
    (tmp_path / JOURNAL).write_bytes(older)
    refused(tmp_path, match="1 folders belong to partitions that are not in")


def test_a_journal_from_before_partitions_were_added_is_refused(tmp_path: Path) -> None:
    async def grow() -> None:
        async with opened(tmp_path) as topics:
            await topics.grow(ORDERS, 3)
            log = topics.named(ORDERS, 2)[1]
            await log.append(encode_batch([SimpleRecord(None, b"1", 1)]), now_ms=1)

    asyncio.run(make_topic(tmp_path))
    older = (tmp_path / JOURNAL).read_bytes()
    asyncio.run(grow())
    (tmp_path / JOURNAL).write_bytes(older)
    refused(tmp_path, match=r"1 folders belong to partitions that are not in.*-2\)")


def test_damaged_journal_is_refused_before_records_are_removed(tmp_path: Path) -> None:
    asyncio.run(make_topic(tmp_path))
    damaged = bytearray((tmp_path / JOURNAL).read_bytes())
    damaged[-1] ^= 1
    (tmp_path / JOURNAL).write_bytes(damaged)
    refused(tmp_path, match="1 folders belong to partitions that are not in")


def test_the_journal_of_another_broker_is_refused(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for path in (ours, theirs):
        asyncio.run(make_topic(path))
    shutil.copy(theirs / JOURNAL, ours / JOURNAL)
    refused(ours, match=r"catalog\.journal belongs to cluster .* from another broker")


def test_a_folder_of_another_partition_is_refused(tmp_path: Path) -> None:
    for name in (ORDERS, "payments"):
        asyncio.run(make_topic(tmp_path, name))
    first, second = sorted(path for path in tmp_path.iterdir() if path.is_dir())
    shutil.rmtree(first)
    shutil.copytree(second, first)
    refused(tmp_path, match=r"partition\.metadata names topic .* restore the right one")


@pytest.mark.parametrize("damage", [remove, empty, tear_first_event])
def test_metadata_files_that_are_lost_are_written_again(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """As in a data directory of an older version, or after a loss of power."""
    asyncio.run(make_topic(tmp_path))
    paths = [tmp_path / "meta.properties", *tmp_path.glob("*/partition.metadata")]
    assert len(paths) == 2
    before = [path.read_bytes() for path in paths]
    for path in paths:
        damage(path)

    async def start() -> None:
        async with opened(tmp_path) as topics:
            assert topics.named(ORDERS, 0)[1].high_watermark == 1

    asyncio.run(start())
    assert [path.read_bytes() for path in paths] == before


async def set_retention(path: Path, ms: str) -> None:
    async with opened(path) as topics:
        event: Event = {
            "event": "topic_settings",
            "name": ORDERS,
            "settings": {"retention.ms": ms},
        }
        await topics.alter(lambda: event)


def test_older_journal_is_refused_until_it_is_accepted(
    tmp_path: Path,
) -> None:
    asyncio.run(make_topic(tmp_path))
    older = (tmp_path / JOURNAL).read_bytes()
    asyncio.run(set_retention(tmp_path, "-1"))
    (tmp_path / JOURNAL).write_bytes(older)
    for _ in range(2):  # A start that was refused changes nothing.
        refused(
            tmp_path, match=r"catalog\.journal is not the one with which the last broker stopped"
        )
    [finding] = findings(read_state(RealFiles(), str(tmp_path)))
    assert (finding.at_start, finding.repair) == ("refuses to start", "uses the present file")
    for step in Repair(RealFiles(), read_state(RealFiles(), str(tmp_path))).steps():
        step.execute()
    assert not list(findings(read_state(RealFiles(), str(tmp_path))))
    asyncio.run(set_retention(tmp_path, "1000"))


def test_a_missing_folder_of_an_internal_topic_is_refused(tmp_path: Path) -> None:
    async def write() -> str:
        async with opened(tmp_path) as topics:
            topic = await topics.create(
                SHARE_GROUP_STATE, partitions=2, settings={"cleanup.policy": "delete"}
            )
            await topics.log_of(topic, 1).append(
                encode_batch([SimpleRecord(b"k", b"1", 1)]), now_ms=1
            )
            return folder_name(TopicIdPartition(topic.topic_id, 1))

    folder = asyncio.run(write())
    (tmp_path / folder).rename(tmp_path / "elsewhere")
    refused(tmp_path, match=rf"1 folders of internal topics.*{folder} of __share_group_state")
    (tmp_path / "recovery-point-offset-checkpoint").unlink()

    async def start() -> None:
        async with opened(tmp_path) as topics:
            topic = topics.catalog.topic(SHARE_GROUP_STATE)
            assert topics.log_of(topic, 1).end_offset == 0

    asyncio.run(start())


def test_older_journal_never_repeats_a_producer_id(tmp_path: Path) -> None:
    async def run() -> None:
        await make_topic(tmp_path)
        older = (tmp_path / JOURNAL).read_bytes()
        async with opened(tmp_path) as topics:
            ids = ProducerIds(topics)
            for _ in range(BLOCK_IDS + 1):
                taken = await ids.take()
            batch = encode_batch(
                [SimpleRecord(None, b"1", 1)], producer_id=taken, producer_epoch=0, base_sequence=0
            )
            await topics.named(ORDERS, 0)[1].append(batch, now_ms=1)
        (tmp_path / JOURNAL).write_bytes(older)
        (
            tmp_path / ".kafka_cleanshutdown"
        ).unlink()  # After a crash an older journal is not recognized.
        async with opened(tmp_path) as topics:
            assert await ProducerIds(topics).take() == taken + 1

    asyncio.run(run())


def test_a_crash_between_the_deletion_of_a_topic_and_that_of_its_files_is_finished(
    tmp_path: Path,
) -> None:
    """The rewritten journal remembers the deletion until the folders are gone durably."""
    start = partial(opened, tmp_path, events_spare=-20)

    async def run() -> None:
        await make_topic(tmp_path)
        async with start() as topics:
            topic = topics.catalog.topic(ORDERS)
            await topics.alter(lambda: {"event": "topic_deleted", "id": topic.topic_id.hex})
            await topics._rewrite_journal()
            assert topics.catalog.deleted_topics == (topic.topic_id,)
            assert len(content(tmp_path)) > 0
        async with start():
            pass
        assert content(tmp_path) == {}
        async with start() as topics:
            assert topics.catalog.deleted_topics == ()

    asyncio.run(run())


@pytest.mark.parametrize("operations", range(40))
def test_deleting_a_topic_survives_a_loss_of_power_at_any_operation(operations: int) -> None:
    """The topic is there with its records, or it is gone with its folders after one more start."""

    async def run() -> None:
        disk, path = PowerLossDisk(operations), "/top/data"
        async with opened(path, disk) as topics:
            for name in (ORDERS, TopicName("payments")):
                topic = await topics.create(name, partitions=2, settings={})
                for number in range(2):
                    batch = encode_batch([SimpleRecord(None, b"1", 1)])
                    await topics.log_of(topic, number).append(batch, now_ms=1)
        disk.cut_power_after(operations)
        try:
            async with opened(path, disk) as topics:
                await topics.delete(topics.catalog.topic(ORDERS))
                await topics._rewrite_journal()
        except (KafkaStorageError, OSError):
            assert not disk.has_power
        disk.cut_power()
        async with opened(path, disk) as topics:
            assert topics.named(TopicName("payments"), 1)[1].high_watermark == 1
            found = topics.catalog.find(ORDERS)
            assert found is None or topics.log_of(found, 1).high_watermark == 1
        folders = [name for name in disk.names(path) if name.endswith(("-0", "-0-delete"))]
        assert len(folders) == (1 if found is None else 2)

    asyncio.run(run())


def group_setting(number: int) -> Event:
    settings = {"retention.ms": str(number)}
    return {"event": "group_settings", "group": "g", "settings": settings}


def test_the_journal_is_rewritten_while_the_broker_runs(tmp_path: Path) -> None:
    start = partial(opened, tmp_path, events_spare=20)

    async def run() -> None:
        async with start() as topics:
            job = asyncio.create_task(topics.keep_journal_short())
            for number in range(100):
                await topics.alter(partial(group_setting, number))
            async with asyncio.timeout(HANGING_SECONDS):
                while topics._has_long_journal:
                    await asyncio.sleep(0)
            job.cancel()
            await topics.create(ORDERS, partitions=1, settings={})
        assert len((tmp_path / JOURNAL).read_bytes()) < 60 * 100
        async with start() as topics:
            assert topics.catalog.group_settings("g") == {"retention.ms": "99"}
            assert topics.catalog.find(ORDERS) is not None

    asyncio.run(run())
