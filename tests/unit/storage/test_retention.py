"""Which segments of a log need not be kept, and what a log is without them."""

from __future__ import annotations

import pytest

from sharegroup.errors import OffsetOutOfRange
from sharegroup.ids import TopicIdPartition
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.storage.log.retention import Retention
from sharegroup.storage.recovery.checkpoint import START_OFFSETS_FILE
from sharegroup.testing.power_loss import PowerLossDisk
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

ONE = len(batch(1))
KEY = TopicIdPartition(TOPIC, 0)


async def four_segments(log: PartitionLog) -> None:
    for timestamp in (1000, 2000, 3000, 4000):
        await log.append(batch(1, timestamp=timestamp), now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("now_ms", "retention", "kept_from"),
    [
        (5000, Retention(), 0),
        (5000, Retention(ms=4000), 0),
        (5001, Retention(ms=4000), 1),
        (5000, Retention(ms=2500), 2),
        (99_000, Retention(ms=1), 4),
        (5000, Retention(bytes=ONE * 2), 2),
        (5000, Retention(bytes=ONE * 2 - 1), 2),
        (5000, Retention(bytes=ONE * 2 + 1), 1),
        (5000, Retention(bytes=0), 4),
        (5000, Retention(ms=2500, bytes=ONE), 3),
    ],
)
def test_segments_beyond_the_age_or_size_limit_are_deleted(
    now_ms: int, retention: Retention, kept_from: int
) -> None:
    async def main() -> None:
        _, log = open_log(PowerLossDisk(1), segment_bytes=ONE)
        await four_segments(log)
        assert log.retained_from(retention, now_ms=now_ms) == kept_from

    run(main())


def test_young_segment_keeps_older_ones_after_it() -> None:
    async def main() -> None:
        _, log = open_log(PowerLossDisk(1), segment_bytes=ONE)
        for timestamp in (9000, 1000, 1000):
            await log.append(batch(1, timestamp=timestamp), now_ms=NOW_MS)
        assert log.retained_from(Retention(ms=2500), now_ms=9500) == 0

    run(main())


def test_undurable_segments_are_not_deleted() -> None:
    async def main() -> None:
        _, log = open_log(PowerLossDisk(1), segment_bytes=ONE)
        await log.append(batch(1), now_ms=NOW_MS)
        log.append(batch(1), now_ms=NOW_MS)
        log.append(batch(1), now_ms=NOW_MS)
        assert log.retained_from(Retention(ms=1), now_ms=NOW_MS) == 1

    run(main())


def test_records_without_a_time_are_as_old_as_their_append() -> None:
    async def main() -> None:
        _, log = open_log(PowerLossDisk(1), segment_bytes=ONE)
        await log.append(batch(1, timestamp=-1), now_ms=NOW_MS)
        assert log.retained_from(Retention(ms=1000), now_ms=NOW_MS + 1000) == 0
        assert log.retained_from(Retention(ms=1000), now_ms=NOW_MS + 1001) == 1

    run(main())


@pytest.mark.parametrize("ahead_ms", [3_600_001, 2**62])
def test_records_with_times_far_ahead_are_as_old_as_their_append(ahead_ms: int) -> None:
    """The attack: a timestamp in the year 292,000,000 kept a segment and all behind it for ever."""
    retention = Retention(ms=1000, ahead_ms_max=3_600_000)

    async def main() -> None:
        _, log = open_log(PowerLossDisk(1), segment_bytes=ONE)
        later_ms = NOW_MS + 1001
        await log.append(batch(1, timestamp=later_ms + ahead_ms), now_ms=NOW_MS)
        await log.append(batch(1, timestamp=later_ms + 3_600_000), now_ms=NOW_MS)
        assert log.retained_from(retention, now_ms=NOW_MS + 1000) == 0
        assert log.retained_from(retention, now_ms=later_ms) == 1, "the second is within the limit"
        assert log.retained_from(Retention(ms=1000), now_ms=later_ms) == 0

    run(main())


def test_log_without_records_continues_at_its_end_offset() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk, segment_bytes=ONE)
        await four_segments(log)
        await directory.delete_before({KEY: 4})
        await directory.drain()
        assert (log.start_offset, log.end_offset, log.size) == (4, 4, 0)
        assert [name for name in disk.names(FOLDER) if name.endswith(".log")] == [
            "00000000000000000004.log"
        ]
        directory.abandon()
        disk.cut_power()
        _, log = open_log(disk, segment_bytes=ONE)
        assert (log.start_offset, log.high_watermark) == (4, 4)
        ticket = log.append(batch(1), now_ms=NOW_MS)
        await ticket
        assert ticket.base_offset == 4

    run(main())


class RenamingDisk(PowerLossDisk):
    """A disk that remembers the new names of renamed files."""

    def __init__(self) -> None:
        super().__init__(1)
        self.renamed: list[str] = []

    def rename(self, source: str, target: str) -> None:
        self.renamed.append(target)
        super().rename(source, target)


def test_starts_of_many_logs_are_moved_by_one_write() -> None:
    async def main() -> None:
        disk = RenamingDisk()
        directory = open_directory(disk)
        logs = [directory.create(TOPIC, number, limits=limits(ONE)) for number in range(20)]
        for log in logs:
            await four_segments(log)
        await directory.drain()
        disk.renamed.clear()
        await directory.delete_before({log.key: 2 for log in logs})
        written = [path for path in disk.renamed if path.endswith(START_OFFSETS_FILE)]
        assert written == [disk.renamed[0]]
        assert [log.start_offset for log in logs] == [2] * 20

    run(main())


def test_start_offset_beyond_the_high_watermark_is_refused() -> None:
    async def main() -> None:
        directory, log = open_log(PowerLossDisk(1), segment_bytes=ONE)
        await four_segments(log)
        with pytest.raises(OffsetOutOfRange, match="up to offset 5 cannot be deleted"):
            await directory.delete_before({KEY: 5})
        assert log.start_offset == 0

    run(main())


def test_subscribers_are_called_when_the_log_start_advances() -> None:
    async def main() -> None:
        directory, log = open_log(PowerLossDisk(1), segment_bytes=ONE)
        await four_segments(log)
        heard: list[int] = []
        log.subscribe(lambda: heard.append(log.start_offset))
        await directory.delete_before({KEY: 3})
        assert heard == [3]

    run(main())


def test_a_segment_is_closed_when_its_records_span_the_time_limit() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory = open_directory(disk)
        log = directory.create(TOPIC, 0, limits=limits(1 << 20, ms=1000))
        for timestamp in (5000, 6000, 6001, 5500, 7001, 7002):
            await log.append(batch(1, timestamp=timestamp), now_ms=NOW_MS)
        assert [name[:20] for name in disk.names(FOLDER) if name.endswith(".log")] == [
            f"{0:020}",
            f"{2:020}",
            f"{5:020}",
        ]

    run(main())


def test_active_segment_can_be_deleted_after_a_roll() -> None:
    async def main() -> None:
        directory, log = open_log(PowerLossDisk(1))
        await four_segments(log)
        await directory.delete_before({KEY: 3})
        assert log.size == 4 * ONE
        log.roll()
        log.roll()  # An empty segment is not closed.
        await log.append(batch(1), now_ms=NOW_MS)
        await directory.delete_before({KEY: 4})
        assert (log.size, log.start_offset, log.end_offset) == (ONE, 4, 5)

    run(main())


@pytest.mark.parametrize("seed", range(80))
def test_producers_of_deleted_records_survive_power_loss(seed: int) -> None:
    async def main() -> None:
        disk = PowerLossDisk(seed)
        directory, log = open_log(disk, segment_bytes=ONE)
        for sequence in range(3):
            await log.append(numbered(sequence), now_ms=NOW_MS)
        await directory.delete_before({KEY: 3})
        await directory.drain()
        directory.abandon()
        disk.cut_power()
        _, log = open_log(disk, segment_bytes=ONE)
        assert (log.start_offset, log.end_offset) == (3, 3)
        assert log.append(numbered(2), now_ms=NOW_MS).is_duplicate

    run(main())


def numbered(sequence: int) -> bytearray:
    return batch(1, producer_id=9, producer_epoch=0, base_sequence=sequence)
