"""What is read before anybody asks is given out once, and only where it is what is asked for.

The disk counts reads of whole batches; looking for them by their headers is not among those.
"""

from __future__ import annotations

import pytest

from sharegroup.errors import CorruptMessage
from sharegroup.storage.directory.log_directory import LogDirectory
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.storage.segment.read_ahead import PIECE_BYTES_MAX
from sharegroup.testing.power_loss import PowerLossDisk
from sharegroup.wire.batches.records import decode_records
from tests.unit.storage.logs import FOLDER, NOW_MS, batch, open_log, run
from tests.unit.storage.test_compaction import append, closed, compact, keyed

FIRST = f"{FOLDER}/00000000000000000000.log"
ONE = len(batch(2))


class CountingDisk(PowerLossDisk):
    """A disk that remembers how much was read from where."""

    def __init__(self) -> None:
        super().__init__(1)
        self.reads: list[tuple[int, int]] = []

    def read(self, fd: int, size: int, position: int) -> bytes:
        self.reads.append((size, position))
        return super().read(fd, size, position)


async def filled(batches: int = 6) -> tuple[CountingDisk, LogDirectory, PartitionLog]:
    """A log of batches of two records."""
    disk = CountingDisk()
    directory, log = open_log(disk)
    await append(log, *(batch(2) for _ in range(batches)))
    disk.reads.clear()
    return disk, directory, log


def offsets(data: bytes) -> list[int]:
    return [record.offset for record in decode_records(data)]


def test_expected_range_is_read_ahead_and_used_once() -> None:
    async def main() -> None:
        disk, directory, log = await filled()
        log.expect_read(2, 6)
        assert (directory.read_ahead.is_due, disk.reads) == (True, [])
        directory.read_ahead.read_expected()
        assert (directory.read_ahead.is_due, disk.reads) == (False, [(2 * ONE, ONE)])
        assert offsets(log.read_range(2, 6)) == [2, 3, 4, 5]
        assert len(disk.reads) == 1
        assert offsets(log.read_range(2, 6)) == [2, 3, 4, 5]
        assert len(disk.reads) == 2

    run(main())


def test_unexpected_part_of_a_range_is_read_from_the_disk() -> None:
    async def main() -> None:
        disk, directory, log = await filled()
        log.expect_read(2, 6)
        directory.read_ahead.read_expected()
        assert offsets(log.read_range(2, 8)) == [2, 3, 4, 5, 6, 7]
        assert disk.reads == [(2 * ONE, ONE), (3 * ONE, ONE)]

    run(main())


def test_undurable_range_is_not_read_ahead() -> None:
    async def main() -> None:
        _, directory, log = await filled(2)
        ticket = log.append(batch(2), now_ms=NOW_MS)
        log.expect_read(4, 6)
        assert not directory.read_ahead.is_due
        await ticket

    run(main())


@pytest.mark.parametrize(("more", "reads"), [(0, 1), (1, 0)])
def test_too_large_range_is_not_read_ahead(more: int, reads: int) -> None:
    around_records = len(batch(size=1_000_000)) - 1_000_000
    large = batch(size=PIECE_BYTES_MAX - around_records + more)
    assert len(large) == PIECE_BYTES_MAX + more

    async def main() -> None:
        disk, directory, log = await filled(1)
        await append(log, large, batch(2))
        disk.reads.clear()
        log.expect_read(2, 3)
        directory.read_ahead.read_expected()
        assert disk.reads == [(PIECE_BYTES_MAX, ONE)] * reads

    run(main())


def test_oldest_piece_is_dropped_beyond_the_limit() -> None:
    async def main() -> None:
        disk, directory, log = await filled()
        for first in (0, 2, 4, 6, 8):
            log.expect_read(first, first + 2)
            directory.read_ahead.read_expected()
        disk.reads.clear()
        for first in (8, 6, 4, 2):
            log.read_range(first, first + 2)
        assert disk.reads == []
        log.read_range(0, 2)
        assert disk.reads == [(ONE, 0)]

    run(main())


def test_range_compacted_after_the_read_ahead_is_read_again() -> None:
    async def main() -> None:
        directory, log = open_log(PowerLossDisk(1))
        await append(log, keyed(("a", "1"), ("b", "1")), keyed(("a", "2")))
        await closed(directory, log)
        log.expect_read(0, 3)
        directory.read_ahead.read_expected()
        await compact(directory, log)
        assert offsets(log.read_range(0, 3)) == [1, 2]

    run(main())


def test_damaged_range_raises_when_it_is_read() -> None:
    async def main() -> None:
        disk, directory, _ = await filled()
        await directory.close()
        disk.flip_bit(FIRST, ONE + 90)
        directory, log = open_log(disk)
        log.expect_read(2, 6)
        directory.read_ahead.read_expected()
        with pytest.raises(CorruptMessage, match="offset=2"):
            log.read_range(2, 6)

    run(main())


def test_a_log_that_was_closed_is_not_read() -> None:
    async def main() -> None:
        disk, directory, log = await filled()
        log.expect_read(2, 6)
        log.close()
        directory.read_ahead.read_expected()
        assert disk.reads == []

    run(main())
