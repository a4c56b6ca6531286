"""A data directory that is deleted, moved away or replaced under a running broker.

Open files go on working then: writes and syncs succeed, and nobody ever finds the records.  The
broker must notice, say so once, confirm nothing any more, not touch what lies at the path now, and
not come back by itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sharegroup.errors import KafkaStorageError
from sharegroup.storage.disk import directory_watch
from sharegroup.wire.batches.records import encode_batch
from tests.faults.in_process import Broker, ShareMember

TOPIC = "orders"
KAFKA_STORAGE_ERROR, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 56, 15, 16
NOTICED_SECONDS_MAX = 10.0
WATCH_SECONDS = 0.01
SETTINGS = {
    "offsets_topic_num_partitions": "1",
    "share_coordinator_state_topic_num_partitions": "1",
}


def batch() -> bytearray:
    return encode_batch([(None, b"value", 1, ())])


def delete(data: Path) -> None:
    shutil.rmtree(data)


def move_away(data: Path) -> None:
    data.rename(data.with_name("moved"))


def make_anew(data: Path) -> None:
    shutil.rmtree(data)
    data.mkdir()


def put_a_copy_in_its_place(data: Path) -> None:
    shutil.copytree(data, data.with_name("copy"))
    data.rename(data.with_name("moved"))
    data.with_name("copy").rename(data)


def delete_what_a_shell_sees(data: Path) -> None:
    """``rm -rf data/*`` leaves the names that begin with a dot, the lock among them."""
    for path in data.iterdir():
        if path.name.startswith("."):
            continue
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def replace_the_journal(data: Path) -> None:
    (data / "other").write_bytes((data / "catalog.journal").read_bytes())
    (data / "other").rename(data / "catalog.journal")


CHANGES = [
    delete,
    move_away,
    make_anew,
    put_a_copy_in_its_place,
    delete_what_a_shell_sees,
    replace_the_journal,
]


async def running(data: Path) -> tuple[Broker, ShareMember]:
    broker = await Broker.start(None, str(data), **SETTINGS)
    assert await broker.create_topic(TOPIC, 2) == 0
    assert await broker.produce(TOPIC, 0, batch()) == (0, 0)
    member = ShareMember("billing", "member-1", TOPIC, 2, connection_id=101)
    assert await member.heartbeat(broker) == 0
    return broker, member


async def noticed(broker: Broker) -> None:
    """Watch the directory more often than the broker does, until its loss is noticed."""
    async with asyncio.timeout(NOTICED_SECONDS_MAX):
        await broker.running.directory.watch(watch_seconds=WATCH_SECONDS)
    assert broker.running.directory.lost


def test_the_directory_is_watched_as_often_as_the_documents_say() -> None:
    assert directory_watch.WATCH_SECONDS == 1.0, "the time that docs/recovery.md names"


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_is_confirmed_after_the_directory_is_lost(
    tmp_path: Path, change: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        data = tmp_path / "data"
        broker, _ = await running(data)
        change(data)
        await noticed(broker)
        at_path = sorted(str(path) for path in data.rglob("*")) if data.exists() else None
        for _ in range(3):
            for partition in (0, 1):
                error, _ = await broker.produce(TOPIC, partition, batch())
                assert error == KAFKA_STORAGE_ERROR
            assert await broker.create_topic("another", 1) == KAFKA_STORAGE_ERROR
            newcomer = ShareMember("shipping", "member-2", TOPIC, 2, connection_id=102)
            assert await newcomer.heartbeat(broker) in (
                KAFKA_STORAGE_ERROR,
                COORDINATOR_NOT_AVAILABLE,
                NOT_COORDINATOR,
            )
            await broker.running.directory.checkpoint()
        lines = [
            record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL
        ]
        assert len(lines) == 1
        assert "event=data_directory_lost" in lines[0]
        assert "stop it, put the directory back" in lines[0]
        await broker.stop()
        found = sorted(str(path) for path in data.rglob("*")) if data.exists() else None
        assert found == at_path, "it wrote to a directory that is not its own"

    asyncio.run(scenario())


def test_restored_directory_is_served_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        data = tmp_path / "data"
        broker, _ = await running(data)
        data.rename(tmp_path / "moved")
        await noticed(broker)
        (tmp_path / "moved").rename(data)
        await asyncio.sleep(0.05)  # The watch has ended; nothing would bring the broker back.
        assert (await broker.produce(TOPIC, 0, batch()))[0] == KAFKA_STORAGE_ERROR
        await broker.stop()
        broker = await Broker.start(None, str(data), **SETTINGS)
        assert await broker.produce(TOPIC, 0, batch()) == (0, 1)
        assert len(await broker.read_all(TOPIC, 0)) == 2
        await broker.stop()

    asyncio.run(scenario())


def test_moved_directory_stays_locked(tmp_path: Path) -> None:
    """A second broker must not use it while the first one still has its files open."""

    async def scenario() -> None:
        data = tmp_path / "data"
        broker, _ = await running(data)
        data.rename(tmp_path / "moved")
        with pytest.raises(BlockingIOError, match=f"in use by process {os.getpid()}"):
            await Broker.start(None, str(tmp_path / "moved"), **SETTINGS)
        async with asyncio.timeout(NOTICED_SECONDS_MAX):
            while not broker.running.directory.lost:  # It has a watch of its own.
                await asyncio.sleep(0.005)
        await broker.stop()

    asyncio.run(scenario())


def test_a_second_broker_in_the_place_of_the_first_is_left_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        data = tmp_path / "data"
        first, _ = await running(data)
        shutil.rmtree(data)
        second, _ = await running(data)
        await noticed(first)
        assert (await first.produce(TOPIC, 0, batch()))[0] == KAFKA_STORAGE_ERROR
        await first.running.directory.checkpoint()
        await first.stop()
        assert not (data / ".kafka_cleanshutdown").exists()
        assert await second.produce(TOPIC, 0, batch()) == (0, 1)
        await second.crash()
        second = await Broker.start(None, str(data), **SETTINGS)
        assert len(await second.read_all(TOPIC, 0)) == 2
        await second.stop()

    asyncio.run(scenario())


def test_a_folder_that_was_deleted_is_noticed_by_the_next_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its log accepts no more records, in no new folder either; the others continue."""

    async def scenario() -> None:
        data = tmp_path / "data"
        broker, _ = await running(data)
        assert await broker.produce(TOPIC, 1, batch()) == (0, 0)
        [folder] = [
            path.parent
            for path in data.glob("*-0/partition.metadata")
            if "orders" in path.read_text()
        ]
        shutil.rmtree(folder)
        await broker.running.directory.checkpoint()
        for _ in range(5):
            assert (await broker.produce(TOPIC, 0, batch()))[0] == KAFKA_STORAGE_ERROR
            await asyncio.sleep(0.01)
        assert not folder.exists()
        assert "event=folder_lost" in caplog.text
        assert await broker.produce(TOPIC, 1, batch()) == (0, 1)
        await broker.running.directory.checkpoint()
        topic_id = await broker.topic_id(TOPIC)
        other = broker.running.directory.get(topic_id, 1)
        assert other is not None
        assert other.recovery_point == 2
        await broker.stop()

    asyncio.run(scenario())


def test_failed_log_does_not_continue_in_a_new_folder(tmp_path: Path) -> None:
    """Otherwise a probe of the disk creates the folder, and the log continues with a hole."""

    async def scenario() -> None:
        data = tmp_path / "data"
        broker, _ = await running(data)
        topic_id = await broker.topic_id(TOPIC)
        log = broker.running.directory.get(topic_id, 0)
        assert log is not None
        [folder] = [
            path.parent
            for path in data.glob("*-0/partition.metadata")
            if "orders" in path.read_text()
        ]
        shutil.rmtree(folder)
        log.sync_failed(OSError(5, "a disk that failed"))
        for _ in range(5):
            with pytest.raises(KafkaStorageError):
                log.append(batch(), now_ms=1)
            await broker.running.directory.drain()
        assert log.is_fenced
        assert not folder.exists()
        await broker.crash()

    asyncio.run(scenario())
