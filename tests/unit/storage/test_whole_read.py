"""Reading a log from its start to its end, in pieces."""

from __future__ import annotations

import pytest

from sharegroup.errors import CorruptMessage
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.testing.power_loss import PowerLossDisk
from sharegroup.wire.batches.batches import scan
from tests.unit.storage.logs import (
    FOLDER,
    NOW_MS,
    TOPIC,
    batch,
    limits,
    open_directory,
    open_log,
    run,
)
from tests.unit.storage.test_compaction import append, closed, compact, keyed

FIRST = f"{FOLDER}/00000000000000000000.log"


def bases(log: PartitionLog, *, piece_bytes: int) -> list[int]:
    """The base offset of every batch that is read."""
    return [
        header.base_offset
        for data in log.read_whole(piece_bytes=piece_bytes)
        for _, header in scan(data)
    ]


in_pieces = pytest.mark.parametrize("piece_bytes", [64, 700, 1 << 20])
"""Pieces smaller than a batch, than a segment, and than nothing."""


@in_pieces
def test_every_batch_of_every_segment_is_read_once(piece_bytes: int) -> None:
    async def main() -> None:
        _, log = open_log(PowerLossDisk(1), segment_bytes=1_000)
        for size in (10, 10, 300, 10, 600, 1_500, 10):
            await log.append(batch(2, size=size), now_ms=NOW_MS)
        assert bases(log, piece_bytes=piece_bytes) == [0, 2, 4, 6, 8, 10, 12]

    run(main())


@in_pieces
def test_read_whole_includes_undurable_batches(piece_bytes: int) -> None:
    async def main() -> None:
        _, log = open_log(PowerLossDisk(1))
        await log.append(batch(), now_ms=NOW_MS)
        ticket = log.append(batch(), now_ms=NOW_MS)
        assert (log.high_watermark, bases(log, piece_bytes=piece_bytes)) == (1, [0, 1])
        await ticket

    run(main())


@in_pieces
def test_reading_begins_near_the_start_of_the_log(piece_bytes: int) -> None:
    """At a batch that the index knows, which is at most some kilobytes before."""

    async def main() -> None:
        _, log = open_log(PowerLossDisk(1))
        for _ in range(40):
            await log.append(batch(size=1_000), now_ms=NOW_MS)
        await log.delete_before(30)
        found = bases(log, piece_bytes=piece_bytes)
        assert 20 < found[0] <= 30
        assert found == list(range(found[0], 40))

    run(main())


def test_an_empty_log_has_nothing_to_read() -> None:
    async def main() -> None:
        _, log = open_log(PowerLossDisk(1))
        assert list(log.read_whole()) == []
        await log.append(batch(), now_ms=NOW_MS)
        await log.delete_before(1)
        assert list(log.read_whole()) == []

    run(main())


@in_pieces
def test_holes_that_compaction_left_are_passed_over(piece_bytes: int) -> None:
    async def main() -> None:
        directory, log = open_log(PowerLossDisk(1), segment_bytes=1_000)
        for number in range(20):
            await append(log, keyed(("same", str(number) * 50)))
        await append(log, keyed(("other", "x")))
        await closed(directory, log)
        await compact(directory, log, segment_bytes=1 << 20)
        assert bases(log, piece_bytes=piece_bytes)[-3:] == [19, 20, 21]
        assert len(bases(log, piece_bytes=piece_bytes)) < 10

    run(main())


@in_pieces
def test_a_damaged_batch_ends_the_reading_with_its_offset(piece_bytes: int) -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk)
        positions = []
        for _ in range(3):
            positions.append(log.size)
            await log.append(batch(size=200), now_ms=NOW_MS)
        await directory.close()
        disk.flip_bit(FIRST, positions[1] + 100)
        again = open_directory(disk).create(TOPIC, 0, limits=limits(1 << 30))
        with pytest.raises(CorruptMessage, match="offset=1: a batch on disk does not match"):
            bases(again, piece_bytes=piece_bytes)

    run(main())


@in_pieces
def test_truncated_file_is_corrupt_at_its_end(piece_bytes: int) -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk)
        for _ in range(3):
            await log.append(batch(size=200), now_ms=NOW_MS)
        size = log.size
        disk.truncate(disk.open(FIRST), size - 10)
        with pytest.raises(CorruptMessage, match="offset=2: "):
            list(log.read_whole(piece_bytes=piece_bytes))
        await directory.close()

    run(main())
