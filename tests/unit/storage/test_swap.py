"""New segments of compaction that a start finds: of an interrupted swap, damaged, or foreign."""

from __future__ import annotations

import re

import pytest

from sharegroup.errors import CorruptMessage
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.testing.power_loss import PowerLossDisk
from tests.unit.storage.logs import FOLDER, NOW_MS, ROOT, batch, open_log, run

SEGMENTS = 5


def name(offset: int, suffix: str = ".log") -> str:
    return f"{offset:020d}{suffix}"


async def stopped() -> PowerLossDisk:
    """A disk with a log of five segments, of one record each."""
    disk = PowerLossDisk(1)
    directory, log = open_log(disk, segment_bytes=len(batch()))
    for _ in range(SEGMENTS):
        await log.append(batch(), now_ms=NOW_MS)
    await directory.close()
    return disk


def write(disk: PowerLossDisk, file: str, content: bytes) -> None:
    fd = disk.open(f"{FOLDER}/{file}", create=True)
    disk.write(fd, content, 0)
    disk.sync(fd)
    disk.sync_directory(FOLDER)
    disk.close(fd)


def content(disk: PowerLossDisk, file: str) -> bytes:
    fd = disk.open(f"{FOLDER}/{file}")
    data = disk.read(fd, disk.size(fd), 0)
    disk.close(fd)
    return data


def is_readable(log: PartitionLog) -> bool:
    return [log.start_offset, log.end_offset] == [0, SEGMENTS] and all(
        len(log.read(offset, bytes_max=1)) == len(batch()) for offset in range(SEGMENTS)
    )


def aside(disk: PowerLossDisk) -> list[str]:
    """The names of the files of this log that were set aside."""
    if not disk.exists(f"{ROOT}/set-aside"):
        return []
    (entry,) = disk.names(f"{ROOT}/set-aside")
    return disk.names(f"{ROOT}/set-aside/{entry}/{FOLDER.rpartition('/')[2]}")


def test_an_interrupted_swap_is_completed() -> None:
    async def main() -> None:
        disk = await stopped()
        whole = content(disk, name(0)) + content(disk, name(1))
        write(disk, name(0, ".log.swap"), whole)
        disk.remove(f"{FOLDER}/{name(1)}")
        _, log = open_log(disk)
        assert is_readable(log)
        assert (aside(disk), content(disk, name(0))) == ([], whole)

    run(main())


EMPTY, FOREIGN, ZEROS = b"", b"not a segment at all" * 10, bytes(4096)


@pytest.mark.parametrize("found", [EMPTY, FOREIGN, ZEROS, bytes(batch())[:-1]])
@pytest.mark.parametrize("offset", [0, 2])
def test_file_that_is_no_new_segment_is_set_aside(
    found: bytes, offset: int, caplog: pytest.LogCaptureFixture
) -> None:
    """An empty one took the place of the segment before, whose records were lost."""

    async def main() -> None:
        disk = await stopped()
        write(disk, name(offset, ".log.swap"), found)
        write(disk, name(offset, ".index.swap"), b"12345678")
        _, log = open_log(disk)
        assert is_readable(log)
        assert aside(disk) == [name(offset, ".log.swap")]
        assert not any(file.endswith(".swap") for file in disk.names(FOLDER))

    run(main())
    (line,) = (line for line in caplog.messages if line.startswith("event=swap_undone"))
    assert name(offset, ".log.swap") in line
    assert f"bytes={len(found)}" in line
    assert "byte" in line


def test_damaged_segment_of_compaction_removes_no_other_segments() -> None:
    """A flipped bit in a base offset, which no checksum covers, makes it end far behind."""

    async def main() -> None:
        disk = await stopped()
        write(disk, name(0, ".log.swap"), content(disk, name(0)))
        disk.flip_bit(f"{FOLDER}/{name(0, '.log.swap')}", 5)  # It ends at offset 65537 now.
        _, log = open_log(disk)
        assert is_readable(log)
        assert aside(disk) == [name(0, ".log.swap")]

    run(main())


def test_segment_that_begins_within_another_one_is_set_aside() -> None:
    async def main() -> None:
        disk = await stopped()
        both = content(disk, name(1)) + content(disk, name(2))
        write(disk, name(1), both)
        write(disk, name(2, ".log.swap"), content(disk, name(2)))
        for suffix in (".log", ".timeindex"):
            disk.remove(f"{FOLDER}/{name(2, suffix)}")
        _, log = open_log(disk)
        assert is_readable(log)
        assert aside(disk) == [name(2, ".log.swap")]

    run(main())


@pytest.mark.parametrize("gone", [0, 2])
def test_damaged_segment_is_not_set_aside_without_the_older_ones(gone: int) -> None:
    """It may have the only copy of some records, so the log is not opened, and nothing changed."""

    async def main() -> None:
        disk = await stopped()
        write(disk, name(0, ".log.swap"), FOREIGN)
        disk.remove(f"{FOLDER}/{name(gone)}")
        before = disk.names(FOLDER)
        expected = (
            f"{name(0, '.log.swap')} does not begin with a record batch; it has {len(FOREIGN)} "
            "bytes. The older segments that it replaces are not complete: their batches end at "
            f"offset {gone}, expected {SEGMENTS} or more. Restore "
        )
        with pytest.raises(CorruptMessage, match=re.escape(expected)):
            open_log(disk)
        assert disk.names(FOLDER) == before

    run(main())


def test_damaged_segment_is_not_set_aside_without_a_recovery_point() -> None:
    async def main() -> None:
        disk = await stopped()
        disk.remove(f"{ROOT}/recovery-point-offset-checkpoint")
        write(disk, name(0, ".log.swap"), FOREIGN)
        with pytest.raises(CorruptMessage, match="expected an offset that is not known"):
            open_log(disk)

    run(main())


STRANGE = ("notes.log.swap", "x.cleaned", "0.log.swap", "a.index.swap", "z.snapshot", "q.log")


def test_files_with_other_names_are_left_alone() -> None:
    """They were renamed, removed, or kept the log from being opened."""

    async def main() -> None:
        disk = await stopped()
        for file in STRANGE:
            write(disk, file, b"precious")
        for _ in range(2):
            directory, log = open_log(disk)
            assert is_readable(log)
            await directory.close()
        assert [content(disk, file) for file in STRANGE] == [b"precious"] * len(STRANGE)

    run(main())


def test_snapshot_of_another_name_does_not_count_as_the_newest() -> None:
    """Only the two newest snapshots are kept."""

    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk)
        for number in range(4):
            for file in ("y.snapshot", "z.snapshot"):
                if disk.exists(FOLDER):
                    write(disk, file, b"precious")
            await log.append(
                batch(producer_id=number, producer_epoch=0, base_sequence=0), now_ms=NOW_MS
            )
            await directory.checkpoint()
        snapshots = [file for file in disk.names(FOLDER) if file.endswith(".snapshot")]
        assert snapshots == [
            name(3, ".snapshot"),
            name(4, ".snapshot"),
            "y.snapshot",
            "z.snapshot",
        ]
        directory.abandon()

    run(main())
