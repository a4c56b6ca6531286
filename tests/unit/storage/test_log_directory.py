from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from sharegroup.errors import KafkaStorageError
from sharegroup.ids import TopicId, TopicPartition
from sharegroup.storage.checkpoint_files import read_checkpoint, write_checkpoint
from sharegroup.storage.files import RealFiles
from sharegroup.storage.log_directory import LogDirectory
from sharegroup.storage.parts import Durability
from sharegroup.testing.power_loss import PowerLossDisk
from tests.unit.storage.logs import FOLDER, NOW_MS, ROOT, TOPIC, batch, open_directory, run


def text_of(disk: PowerLossDisk, name: str) -> str:
    fd = disk.open(f"{ROOT}/{name}")
    return disk.read(fd, disk.size(fd), 0).decode()


def test_a_second_broker_on_the_directory_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    async def main() -> None:
        path = str(tmp_path / "data")
        first = LogDirectory.open(path, wall_ms=lambda: NOW_MS)
        with pytest.raises(BlockingIOError, match=f"in use by process {os.getpid()}"):
            LogDirectory.open(path, wall_ms=lambda: NOW_MS)
        await first.close()
        await LogDirectory.open(path, wall_ms=lambda: NOW_MS).close()

    run(main())


def test_a_log_that_was_never_written_has_no_folder() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory = open_directory(disk)
        log = directory.create(TOPIC, 0)
        assert directory.get(TOPIC, 0) is log
        assert directory.get(TOPIC, 1) is None
        assert not disk.exists(FOLDER)
        assert directory.partitions() == []
        await log.append(batch(), now_ms=NOW_MS)
        assert directory.partitions() == [TopicPartition(TOPIC, 0)]

    run(main())


class InterruptedDisk(PowerLossDisk):
    """Lets something happen in front of the next sync of a file."""

    def __init__(self) -> None:
        super().__init__(1)
        self.interrupt: Callable[[], None] | None = None

    def sync(self, fd: int) -> None:
        interrupt, self.interrupt = self.interrupt, None
        if interrupt is not None:
            interrupt()
        super().sync(fd)


def test_topic_that_is_deleted_during_a_checkpoint_does_not_fail_it_for_the_others() -> None:
    async def main() -> None:
        disk = InterruptedDisk()
        directory = open_directory(disk, Durability.OS)
        stays, goes = directory.create(TOPIC, 0), directory.create(TopicId(UUID(int=8)), 0)
        producer = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
        for log in (stays, goes):
            await log.append(batch(4, **producer), now_ms=NOW_MS)
        disk.interrupt = lambda: directory.delete(TopicId(UUID(int=8)))
        await directory.checkpoint()
        assert (stays.recovery_point, stays.is_fenced) == (4, False)
        points = text_of(disk, "recovery-point-offset-checkpoint")
        assert points == "0\n1\nAAAAAAAAAAAAAAAAAAAABw 0 4\n"

    run(main())


def test_checkpoints_are_written_in_kafkas_format_with_topic_ids() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory = open_directory(disk)
        log = directory.create(TOPIC, 3)
        await log.append(batch(4), now_ms=NOW_MS)
        await log.delete_before(2)
        await directory.checkpoint()
        recovery_points = text_of(disk, "recovery-point-offset-checkpoint")
        assert recovery_points == "0\n1\nAAAAAAAAAAAAAAAAAAAABw 3 4\n"
        start_offsets = text_of(disk, "log-start-offset-checkpoint")
        assert start_offsets == "0\n1\nAAAAAAAAAAAAAAAAAAAABw 3 2\n"

    run(main())


@pytest.mark.parametrize("text", ["", "1\n0\n", "0\n2\nAAAAAAAAAAAAAAAAAAAABw 3 4\n", "0\n1\nx\n"])
def test_a_damaged_checkpoint_is_refused_with_its_path(text: str) -> None:
    disk = PowerLossDisk(1)
    disk.make_directory(ROOT)
    disk.write(disk.open(f"{ROOT}/points", create=True), text.encode(), 0)
    with pytest.raises(ValueError, match=f"{ROOT}/points is damaged"):
        read_checkpoint(disk, ROOT, "points")


def test_a_checkpoint_survives_power_loss_whole_or_not_at_all() -> None:
    old = {TopicPartition(TOPIC, 0): 5}
    new = {TopicPartition(TOPIC, 0): 9, TopicPartition(TOPIC, 1): 1}
    seen = []
    for operations in range(8):
        disk = PowerLossDisk(operations)
        disk.make_directory(ROOT)
        disk.sync_directory("/disk")
        write_checkpoint(disk, ROOT, "points", old)
        disk.cut_power_after(operations)
        try:
            write_checkpoint(disk, ROOT, "points", new)
        except OSError:
            assert not disk.has_power
        disk.cut_power()
        found = read_checkpoint(disk, ROOT, "points")
        assert found in (old, new)
        seen.append(found == new)
    assert seen[0] is False
    assert seen[-1] is True


def revived(disk: PowerLossDisk) -> PowerLossDisk:
    """A process whose operations failed from one on was killed there; the system lives on."""
    disk.release_locks()
    disk.cut_power_after(1 << 60)
    return disk


@pytest.mark.parametrize("operation", range(8))
@pytest.mark.parametrize("seed", range(4))
def test_a_start_that_was_read_once_is_there_after_power_loss(operation: int, seed: int) -> None:
    """The process is killed somewhere in the saving of a new one."""

    async def main() -> None:
        disk = PowerLossDisk(seed)
        directory = open_directory(disk)
        log = directory.create(TOPIC, 0)
        await log.append(batch(5), now_ms=NOW_MS)
        await directory.checkpoint()  # What recovery has to read it makes durable anyway.
        disk.cut_power_after(operation)
        try:
            await log.delete_before(3)
        except KafkaStorageError:
            assert not disk.has_power
        directory.abandon()
        directory = open_directory(revived(disk))
        seen = directory.create(TOPIC, 0).start_offset
        assert seen in (0, 3)
        directory.abandon()
        disk.cut_power()
        assert open_directory(disk).create(TOPIC, 0).start_offset == seen

    run(main())


@pytest.mark.parametrize("seed", range(8))
def test_a_directory_that_a_killed_process_had_just_made_keeps_its_name(seed: int) -> None:
    async def main() -> None:
        disk = PowerLossDisk(seed)
        disk.cut_power_after(1)
        with pytest.raises(OSError, match="sync"):
            open_directory(disk)
        directory = open_directory(revived(disk))
        await directory.create(TOPIC, 0).append(batch(5), now_ms=NOW_MS)
        directory.abandon()
        disk.cut_power()
        assert open_directory(disk).create(TOPIC, 0).end_offset == 5

    run(main())


def test_deleting_a_topic_removes_its_partitions_and_no_others() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        other = TopicId(UUID(int=8))
        directory = open_directory(disk)
        for topic_id in (TOPIC, other):
            for partition in (0, 1):
                await directory.create(topic_id, partition).append(batch(), now_ms=NOW_MS)
        await directory.close()
        directory = open_directory(disk)
        directory.create(TOPIC, 0)  # Partition 1 has not been opened when the topic goes.
        directory.delete(TOPIC)
        assert {key.topic_id for key in directory.partitions()} == {other}
        assert directory.get(TOPIC, 0) is None
        await directory.close()
        folders = [name for name in disk.names(ROOT) if name.startswith("AAAA")]
        assert folders == ["AAAAAAAAAAAAAAAAAAAACA-0", "AAAAAAAAAAAAAAAAAAAACA-1"]

    run(main())


def test_a_deletion_interrupted_by_a_crash_is_finished_at_start() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        disk.make_directory(f"{ROOT}/AAAAAAAAAAAAAAAAAAAABw-0-delete")
        disk.open(f"{ROOT}/AAAAAAAAAAAAAAAAAAAABw-0-delete/00000000000000000000.log", create=True)
        open_directory(disk)
        assert not disk.exists(f"{ROOT}/AAAAAAAAAAAAAAAAAAAABw-0-delete")

    run(main())


def test_real_files_hold_a_log_through_a_clean_stop(tmp_path: Path) -> None:
    async def main() -> None:
        path = str(tmp_path / "data with a blank")
        files = RealFiles()
        directory = LogDirectory.open(path, wall_ms=lambda: NOW_MS, files=files)
        logs = [directory.create(TOPIC, partition) for partition in range(20)]
        for ticket in [log.append(batch(3), now_ms=NOW_MS) for log in logs]:
            await ticket
        assert directory.sync_rounds == 1
        await directory.close()
        again = LogDirectory.open(path, wall_ms=lambda: NOW_MS, files=files)
        assert again.was_clean
        assert len(again.partitions()) == 20
        assert again.create(TOPIC, 19).end_offset == 3
        await again.close()

    run(main())
