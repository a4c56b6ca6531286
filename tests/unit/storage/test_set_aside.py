"""What recovery cuts off a log is kept, within a bound, and named in a WARNING."""

from __future__ import annotations

import logging
from functools import partial

import pytest

from sharegroup.errors import KafkaStorageError
from sharegroup.storage.directory.log_directory import LogDirectory
from sharegroup.storage.recovery.damage import CHECKED_BYTES_MAX, sound_in
from sharegroup.storage.segment.segment import SegmentLimits
from sharegroup.testing.power_loss import PowerLossDisk
from tests.unit.storage.logs import FOLDER, NOW_MS, ROOT, TOPIC, batch, open_directory, run

PATH = f"{FOLDER}/00000000000000000000.log"
ASIDE = f"{ROOT}/set-aside"
PARTITION = FOLDER.rpartition("/")[2]


async def written(batches: int, *, segment_bytes: int = 1 << 30, count: int = 1) -> PowerLossDisk:
    """A disk with a log of batches above the recovery point."""
    disk = PowerLossDisk(1)
    directory = open_directory(disk)
    log = directory.create(TOPIC, 0, limits=SegmentLimits(segment_bytes, 1 << 40))
    for _ in range(batches):
        await log.append(batch(count), now_ms=NOW_MS)
    directory.abandon()
    return disk


def content(disk: PowerLossDisk, path: str) -> bytes:
    fd = disk.open(path)
    return disk.read(fd, disk.size(fd), 0)


def kept(disk: PowerLossDisk) -> list[bytes]:
    """The content of all files that were set aside."""
    folders = [f"{ASIDE}/{entry}" for entry in disk.names(ASIDE)]
    folders = [f"{entry}/{name}" for entry in folders for name in disk.names(entry)]
    paths = [f"{folder}/{name}" for folder in folders for name in disk.names(folder)]
    paths += [f"{FOLDER}/{name}" for name in disk.names(FOLDER) if name.endswith(".set-aside")]
    return [content(disk, path) for path in paths]


def damage(disk: PowerLossDisk, number: int) -> None:
    """Turn a bit in the last byte of a batch; all have the same size."""
    disk.flip_bit(PATH, (number + 1) * len(batch()) - 1)


def reopened(disk: PowerLossDisk) -> tuple[LogDirectory, int]:
    directory = open_directory(disk)
    return directory, directory.create(TOPIC, 0).end_offset


def test_sound_batches_after_a_damaged_one_are_set_aside_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        disk = await written(5)
        damage(disk, 2)
        tail = content(disk, PATH)[2 * len(batch()) :]
        directory, end_offset = reopened(disk)
        assert end_offset == 2
        [entry] = disk.names(ASIDE)
        assert entry == "20231114T221320Z-damaged-log"
        path = f"{ASIDE}/{entry}/{PARTITION}/00000000000000000002.log"
        disk.cut_power()
        assert content(disk, path) == tail
        [line] = [
            record.getMessage() for record in caplog.records if record.levelno == logging.WARNING
        ]
        assert "sound_batches=2 records=2 offsets=3-4" in line
        assert f"set_aside={path}" in line
        directory.abandon()

    run(main())


def test_torn_end_is_set_aside_and_distinguished_from_damage(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        disk = await written(3)
        fd = disk.open(PATH)
        disk.truncate(fd, disk.size(fd) - 7)
        directory, end_offset = reopened(disk)
        assert end_offset == 2
        assert disk.names(ASIDE) == ["20231114T221320Z-torn-log"]
        assert "sound_batches=0" in caplog.text
        directory.abandon()

    run(main())


def test_segments_after_the_damage_are_set_aside(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        size = len(batch())
        disk = await written(6, segment_bytes=2 * size)
        damage(disk, 1)
        later = [content(disk, f"{FOLDER}/0000000000000000000{base}.log") for base in (2, 4)]
        directory, end_offset = reopened(disk)
        assert end_offset == 1
        [left] = [name for name in disk.names(FOLDER) if name.endswith(".log")]
        assert left == "00000000000000000000.log"
        directory.abandon()
        disk.cut_power()
        kept_bytes = kept(disk)
        assert set(later) < set(kept_bytes)
        assert caplog.text.count("records=2 offsets=2-3") == 1
        assert caplog.text.count("records=2 offsets=4-5") == 1

    run(main())


def test_tail_stays_in_its_file_on_a_full_disk(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No byte of the tail is lost, neither while the disk is full nor afterwards."""

    async def main() -> None:
        disk = await written(5)
        damage(disk, 2)
        before = content(disk, PATH)
        disk.fill_up()
        directory = open_directory(disk)
        log = directory.create(TOPIC, 0)
        assert log.end_offset == 2
        assert "event=tail_kept" in caplog.text
        for _ in range(3):
            with pytest.raises(KafkaStorageError):
                log.append(batch(), now_ms=NOW_MS)
            await directory.drain()
        assert content(disk, PATH) == before
        disk.make_room()
        while log.is_fenced:
            with pytest.raises(KafkaStorageError):
                log.append(batch(), now_ms=NOW_MS)
            await directory.drain()
        ticket = log.append(batch(), now_ms=NOW_MS)
        await ticket
        assert ticket.base_offset == 2
        assert content(disk, PATH) == before
        directory.abandon()
        directory, end_offset = reopened(disk)  # Above the recovery point: it is scanned again.
        assert end_offset == 3
        assert len(directory.get(TOPIC, 0).read(2, bytes_max=1)) == len(batch())
        [entry] = disk.names(ASIDE)
        path = f"{ASIDE}/{entry}/{PARTITION}/00000000000000000002.log"
        assert content(disk, path) == before[2 * len(batch()) :]
        directory.abandon()

    run(main())


def test_damaged_tail_in_a_closed_segment_is_ignored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Below the recovery point nothing is truncated; bytes after the segment's end do not count."""

    async def main() -> None:
        disk = await written(5)
        damage(disk, 2)
        disk.fill_up()
        directory = open_directory(disk)
        log = directory.create(TOPIC, 0)
        disk.make_room()
        for _ in range(3):
            await log.append(batch(), now_ms=NOW_MS)
        await directory.close()
        directory, end_offset = reopened(disk)
        assert end_offset == 5
        log = directory.get(TOPIC, 0)
        assert log is not None
        for offset in range(5):
            assert len(log.read(offset, bytes_max=1)) == len(batch())
        await directory.close()

    run(main())


def test_oldest_entries_are_removed_first_and_the_newest_is_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        disk = await written(1, count=50)
        times = iter(range(NOW_MS + 60_000, NOW_MS + 360_000, 60_000))
        for now_ms in times:
            fd = disk.open(PATH)
            disk.write(fd, b"torn" * 50, disk.size(fd))
            directory = LogDirectory.open(
                ROOT, wall_ms=partial(int, now_ms), files=disk, set_aside_bytes_max=500
            )
            assert directory.create(TOPIC, 0).end_offset == 50
            directory.abandon()
        assert len(disk.names(ASIDE)) == 2
        removed = [
            record.getMessage() for record in caplog.records if "set_aside_removed" in record.msg
        ]
        assert [line.split()[1].rpartition("/")[2] for line in removed] == [
            f"20231114T22{minute}20Z-torn-log" for minute in (14, 15, 16)
        ]
        disk.make_directory(f"{ASIDE}/19990101T000000Z-of-an-operator")
        fd = disk.open(PATH)
        disk.write(fd, b"torn" * 500, disk.size(fd))
        directory, _ = reopened(disk)
        directory.abandon()
        assert "19990101T000000Z-of-an-operator" in disk.names(ASIDE)

    run(main())


@pytest.mark.parametrize("operations", range(30))
def test_power_loss_while_setting_aside_loses_no_bytes(operations: int) -> None:
    async def main() -> None:
        size = len(batch())
        disk = await written(6, segment_bytes=4 * size)
        damage(disk, 1)
        disk.sync_tree(ROOT)
        whole = [content(disk, f"{FOLDER}/0000000000000000000{base}.log") for base in (0, 4)]
        disk.cut_power()
        disk.cut_power_after(operations)
        try:
            directory, _ = reopened(disk)
            directory.abandon()
        except (OSError, KafkaStorageError):
            assert not disk.has_power
        disk.cut_power()
        directory, end_offset = reopened(disk)
        assert end_offset == 1
        assert whole[0][size:] in kept(disk)
        assert whole[1] in kept(disk)
        directory.abandon()

    run(main())


def test_forged_headers_do_not_slow_down_the_search() -> None:
    """Each header claims all following bytes; the checksummed bytes are limited in total."""
    forged = bytearray(batch())
    forged[8:12] = (1 << 20).to_bytes(4, "big")
    data = bytes(forged[:61]) * ((8 << 20) // 61)
    assert sound_in(data).batches == 0
    assert len(data) < CHECKED_BYTES_MAX
