from __future__ import annotations

import asyncio
import errno
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from sharegroup.errors import KafkaStorageError
from sharegroup.ids import TopicId, TopicIdPartition
from sharegroup.storage.directory.checkpoints import GROUP_LOGS, TURN_LOGS
from sharegroup.storage.directory.deletions import SLICE_LOGS
from sharegroup.storage.directory.log_directory import LogDirectory
from sharegroup.storage.disk.checkpoint_files import read_checkpoint, write_checkpoint
from sharegroup.storage.disk.files import RealFiles
from sharegroup.storage.parts import Durability
from sharegroup.storage.sync.syncer import FILES_EACH_MAX
from sharegroup.testing.power_loss import PowerLossDisk
from tests.support.limits import HANGING_SECONDS
from tests.unit.storage.logs import FOLDER, NOW_MS, ROOT, TOPIC, batch, open_directory, run


def text_of(disk: PowerLossDisk, name: str) -> str:
    fd = disk.open(f"{ROOT}/{name}")
    return disk.read(fd, disk.size(fd), 0).decode()


def test_second_broker_is_refused_with_the_process_id_of_the_first(tmp_path: Path) -> None:
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
        assert directory.partitions() == [TopicIdPartition(TOPIC, 0)]

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


def test_topic_deleted_during_a_checkpoint_does_not_fail_it() -> None:
    async def main() -> None:
        disk = InterruptedDisk()
        directory = open_directory(disk, Durability.OS)
        stays, goes = directory.create(TOPIC, 0), directory.create(TopicId(UUID(int=8)), 0)
        producer = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
        for log in (stays, goes):
            await log.append(batch(4, **producer), now_ms=NOW_MS)

        async def delete() -> None:
            directory.delete(TopicId(UUID(int=8)), partition_count=1)

        loop = asyncio.get_running_loop()
        disk.interrupt = lambda: asyncio.run_coroutine_threadsafe(delete(), loop).result(
            HANGING_SECONDS
        )
        await directory.checkpoint()
        assert (stays.recovery_point, stays.is_fenced) == (4, False)
        points = text_of(disk, "recovery-point-offset-checkpoint")
        assert points.startswith("0\n1\nAAAAAAAAAAAAAAAAAAAABw 0 4\ncrc32c ")

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
        assert recovery_points == "0\n1\nAAAAAAAAAAAAAAAAAAAABw 3 4\ncrc32c da426b2e\n"
        start_offsets = text_of(disk, "log-start-offset-checkpoint")
        assert start_offsets == "0\n1\nAAAAAAAAAAAAAAAAAAAABw 3 2\ncrc32c b38d3a1c\n"

    run(main())


@pytest.mark.parametrize(
    "text",
    ["", "1\n0\n", "0\n2\nAAAAAAAAAAAAAAAAAAAABw 3 4\n", "0\n1\nx\n", "0\n0\ncrc32c 00000000\n"],
)
def test_a_damaged_checkpoint_is_refused_with_its_path(text: str) -> None:
    disk = PowerLossDisk(1)
    disk.make_directory(ROOT)
    disk.write(disk.open(f"{ROOT}/points", create=True), text.encode(), 0)
    with pytest.raises(ValueError, match=f"{ROOT}/points is damaged"):
        read_checkpoint(disk, ROOT, "points")


def test_checkpoint_is_atomic_under_power_loss() -> None:
    old = {TopicIdPartition(TOPIC, 0): 5}
    new = {TopicIdPartition(TOPIC, 0): 9, TopicIdPartition(TOPIC, 1): 1}
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
def test_recovered_start_offset_survives_power_loss(operation: int, seed: int) -> None:
    """The process is killed somewhere in the saving of a new one."""

    async def main() -> None:
        disk = PowerLossDisk(seed)
        directory = open_directory(disk)
        log = directory.create(TOPIC, 0)
        await log.append(batch(5), now_ms=NOW_MS)
        await directory.checkpoint()  # Recovery itself makes durable whatever it reads.
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
        directory.delete(TOPIC, partition_count=2)
        assert {key.topic_id for key in directory.partitions()} == {other}
        assert directory.get(TOPIC, 0) is None
        await directory.close()
        folders = [name for name in disk.names(ROOT) if name.startswith("AAAA")]
        assert folders == ["AAAAAAAAAAAAAAAAAAAACA-0", "AAAAAAAAAAAAAAAAAAAACA-1"]

    run(main())


def test_a_topic_deleted_after_the_end_is_left_to_the_next_start() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory = open_directory(disk)
        await directory.create(TOPIC, 0).append(batch(), now_ms=NOW_MS)
        await directory.close()
        directory.delete(TOPIC, partition_count=1)
        assert "AAAAAAAAAAAAAAAAAAAABw-0" in disk.names(ROOT)

    run(main())


def test_a_deletion_interrupted_by_a_crash_is_finished_at_start() -> None:
    """By a start that still knows of the deletion; opening the directory alone removes nothing."""

    async def main() -> None:
        disk = PowerLossDisk(1)
        disk.make_directory(f"{FOLDER}-delete")
        disk.open(f"{FOLDER}-delete/00000000000000000000.log", create=True)
        directory = open_directory(disk)
        assert directory.doomed_partitions() == [TopicIdPartition(TOPIC, 0)]
        gone: list[bool] = []
        directory.delete(
            TOPIC,
            partition_count=1,
            removed=lambda: gone.append(disk.exists(f"{FOLDER}-delete")),
        )
        await directory.drain()
        await asyncio.sleep(0)
        assert gone == [False]
        directory.abandon()
        disk.cut_power()
        assert not disk.exists(f"{FOLDER}-delete")

    run(main())


class StrictDisk(PowerLossDisk):
    """As a system does, it moves no folder over another one with files."""

    def rename(self, source: str, target: str) -> None:
        if self.exists(target) and self.names(target):
            raise OSError(errno.ENOTEMPTY, "there are files", target)
        super().rename(source, target)


async def many_logs(disk: PowerLossDisk, count: int) -> LogDirectory:
    """A directory with a log with a record in each partition."""
    directory = open_directory(disk)
    logs = [directory.create(TOPIC, partition) for partition in range(count)]
    for ticket in [log.append(batch(), now_ms=NOW_MS) for log in logs]:
        await ticket
    return directory


def test_a_topic_with_many_partitions_is_deleted_in_turns() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory = await many_logs(disk, 3 * SLICE_LOGS)
        gone: list[str] = []
        directory.delete(
            TOPIC, partition_count=3 * SLICE_LOGS, removed=lambda: gone.append("topic")
        )
        for turn in (1, 2):
            closed = [directory.get(TOPIC, n) is None for n in range(3 * SLICE_LOGS)]
            doomed = [name for name in disk.names(ROOT) if name.endswith("-delete")]
            assert closed.count(True) == len(doomed) == turn * SLICE_LOGS
            await asyncio.sleep(0)
        for _ in range(3):
            await directory.drain()
            await asyncio.sleep(0)
        assert gone == ["topic"]
        assert not any(name.startswith("AAAA") for name in disk.names(ROOT))
        await directory.close()

    run(main())


def test_a_stop_amid_a_deletion_closes_the_logs_that_are_left() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory = await many_logs(disk, 2 * SLICE_LOGS)
        directory.delete(TOPIC, partition_count=2 * SLICE_LOGS)
        await directory.close()
        directory = open_directory(disk)
        assert directory.partitions() == []
        directory.abandon()

    run(main())


def test_topic_can_be_deleted_while_a_delete_folder_of_its_name_exists() -> None:
    async def main() -> None:
        disk = StrictDisk(1)
        directory = await many_logs(disk, 1)
        disk.make_directory(f"{FOLDER}-delete")
        disk.open(f"{FOLDER}-delete/00000000000000000000.log", create=True)
        gone: list[str] = []
        directory.delete(TOPIC, partition_count=1, removed=lambda: gone.append("topic"))
        await directory.drain()
        await asyncio.sleep(0)
        assert gone == ["topic"]
        assert not any(name.startswith("AAAA") for name in disk.names(ROOT))
        await directory.close()

    run(main())


@pytest.mark.parametrize("seed", range(4))
def test_snapshots_that_are_written_together_survive_a_loss_of_power(seed: int) -> None:
    """The first batch of each log is deleted, so only the snapshot knows its producer."""
    repeated = batch(producer_id=1, producer_epoch=0, base_sequence=0)

    async def main() -> None:
        disk = PowerLossDisk(seed)
        directory = open_directory(disk)
        logs = [directory.create(TOPIC, partition) for partition in range(FILES_EACH_MAX + 1)]
        for log in logs:
            await log.append(bytearray(repeated), now_ms=NOW_MS)
            log.roll()
            await log.append(batch(), now_ms=NOW_MS)
        await directory.delete_before({log.key: 1 for log in logs})
        await directory.drain()
        directory.abandon()
        disk.cut_power()
        again = open_directory(disk)
        for partition in range(len(logs)):
            log = again.create(TOPIC, partition)
            assert log.start_offset == 1
            assert log.append(bytearray(repeated), now_ms=NOW_MS).is_duplicate
        again.abandon()

    run(main())


def test_a_checkpoint_of_many_logs_lets_others_have_their_turns() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        count = GROUP_LOGS + TURN_LOGS + 1
        directory = await many_logs(disk, count)
        logs = [directory.get(TOPIC, partition) for partition in range(count)]
        points = []

        async def look() -> None:
            while True:
                points.append(sum(log.recovery_point for log in logs if log is not None))
                await asyncio.sleep(0)

        looking = asyncio.create_task(look())
        await directory.checkpoint()
        looking.cancel()
        assert points[0] == 0
        assert max(after - before for before, after in itertools.pairwise(points)) <= TURN_LOGS
        assert sum(log.recovery_point for log in logs if log is not None) == count
        text = text_of(disk, "recovery-point-offset-checkpoint")
        assert text.startswith(f"0\n{count}\n")
        await directory.close()

    run(main())


def test_log_tells_a_new_directory_from_clean_and_unclean_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    path = str(tmp_path / "data")

    async def main() -> None:
        for _ in range(2):
            directory = LogDirectory.open(path, wall_ms=lambda: NOW_MS)
            directory.begin()
            await directory.close()
        (tmp_path / "data" / ".kafka_cleanshutdown").unlink()
        await LogDirectory.open(path, wall_ms=lambda: NOW_MS).close()

    run(main())
    opened = [text for text in caplog.messages if "data_directory_opened" in text]
    assert [text.rpartition(" ")[2] for text in opened] == [
        *("state=new", "state=clean", "state=unclean")
    ]


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
