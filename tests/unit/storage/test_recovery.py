"""What a log is after a crash: torn ends are cut, damage is left where it is."""

from __future__ import annotations

import pytest

from sharegroup.errors import CorruptMessage, KafkaStorageError
from sharegroup.storage.disk.checkpoint_files import write_checkpoint
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.storage.parts import Durability
from sharegroup.testing.power_loss import PowerLossDisk
from tests.unit.storage.logs import (
    FOLDER,
    NOW_MS,
    ROOT,
    TOPIC,
    batch,
    found_at,
    open_directory,
    open_log,
    run,
)

FIRST_SEGMENT = f"{FOLDER}/00000000000000000000.log"
ONE = len(batch(2, size=100))


async def written(batches: int, *, clean: bool, segment_bytes: int = 1 << 30) -> PowerLossDisk:
    """A disk with a log of that many batches of two records, after a stop or a crash."""
    disk = PowerLossDisk(1)
    directory, log = open_log(disk, segment_bytes=segment_bytes)
    for _ in range(batches):
        await log.append(batch(2, size=100), now_ms=NOW_MS)
    if clean:
        await directory.close()
    disk.cut_power()
    return disk


def firsts(log: PartitionLog) -> list[int]:
    """The first offset of every batch, through every segment."""
    found: list[int] = []
    offset = log.start_offset
    while offset < log.end_offset:
        spans = log.batches(offset, bytes_max=1 << 30)
        found += spans.firsts
        offset = spans.ends[-1]
    return found


@pytest.mark.parametrize("clean", [True, False])
def test_durable_records_are_recovered(clean: bool) -> None:
    async def main() -> None:
        directory, log = open_log(await written(10, clean=clean))
        assert directory.was_clean is clean
        assert (log.start_offset, log.end_offset, log.high_watermark) == (0, 20, 20)
        assert firsts(log) == list(range(0, 20, 2))
        ticket = log.append(batch(1), now_ms=NOW_MS)
        await ticket
        assert ticket.base_offset == 20

    run(main())


def test_a_torn_last_batch_is_cut_off() -> None:
    async def main() -> None:
        disk = await written(10, clean=False)
        fd = disk.open(FIRST_SEGMENT)
        disk.truncate(fd, ONE * 9 + 70)
        _, log = open_log(disk)
        assert log.end_offset == 18
        assert disk.size(fd) == ONE * 9

    run(main())


def test_a_flipped_bit_above_the_recovery_point_ends_the_log() -> None:
    async def main() -> None:
        disk = await written(10, clean=False)
        disk.flip_bit(FIRST_SEGMENT, ONE * 6 + 90)
        _, log = open_log(disk)
        assert log.end_offset == 12
        assert firsts(log) == list(range(0, 12, 2))

    run(main())


@pytest.mark.parametrize(
    ("byte", "field"), [(90, "records"), (7, "base offset"), (26, "count"), (16, "magic")]
)
def test_flipped_bit_below_the_recovery_point_damages_only_its_batch(byte: int, field: str) -> None:
    async def main() -> None:
        disk = await written(100, clean=True)
        disk.flip_bit(FIRST_SEGMENT, ONE * 60 + byte)
        _, log = open_log(disk)
        assert log.end_offset == 200
        with pytest.raises(CorruptMessage, match="offset=120"):
            log.read(120, bytes_max=1)
        before = log.read(100, bytes_max=1 << 20)
        assert len(before) == ONE * 10  # Up to the damaged one.
        with pytest.raises(CorruptMessage):
            log.read_range(118, 124)
        # An unreadable header hides what follows it up to the next index entry.
        step = log.batches(120, bytes_max=1, count_max=1).ends[0]
        assert step == (122 if field != "magic" else step)
        assert step <= 120 + 2 * (4096 // ONE + 2)
        assert len(log.read(step, bytes_max=1)) == ONE
        assert len(log.read(198, bytes_max=1)) == ONE

    run(main())


def test_a_flipped_bit_in_a_length_hides_batches_up_to_the_next_index_entry() -> None:
    """No checksum covers the length: the batch seems to contain the 65,536 bytes after it."""

    async def main() -> None:
        disk = await written(400, clean=True)
        disk.flip_bit(FIRST_SEGMENT, ONE * 60 + 9)
        _, log = open_log(disk)
        with pytest.raises(CorruptMessage, match="offset=120"):
            log.read(120, bytes_max=1)
        step = log.batches(120, bytes_max=1, count_max=1).ends[0]
        assert 122 <= step <= 120 + 2 * (4096 // ONE + 2)
        assert len(log.read(step, bytes_max=1)) == ONE
        assert firsts(log)[-3:] == [794, 796, 798]

    run(main())


def test_damage_right_below_the_recovery_point_does_not_stop_appends() -> None:
    async def main() -> None:
        disk = await written(3, clean=True)
        disk.flip_bit(FIRST_SEGMENT, ONE * 2 + 16)
        directory, log = open_log(disk)
        assert log.end_offset == 6
        with pytest.raises(CorruptMessage):
            log.read(4, bytes_max=1)
        for _ in range(3):
            await log.append(batch(1, size=100), now_ms=NOW_MS)
        assert len(log.read(8, bytes_max=1)) > 0
        await directory.close()
        _, again = open_log(disk)
        assert again.end_offset == 9
        assert len(again.read(6, bytes_max=1 << 20)) == 3 * len(batch(1, size=100))

    run(main())


def test_offsets_lost_with_a_truncated_file_are_not_reused() -> None:
    async def main() -> None:
        disk = await written(5, clean=True)
        disk.truncate(disk.open(FIRST_SEGMENT), ONE * 3)
        _, log = open_log(disk)
        assert log.end_offset == 10
        assert len(log.read(4, bytes_max=1)) == ONE
        with pytest.raises(CorruptMessage):
            log.read(6, bytes_max=1)
        ticket = log.append(batch(1), now_ms=NOW_MS)
        await ticket
        assert ticket.base_offset == 10
        assert len(log.read(10, bytes_max=1)) == len(batch(1))

    run(main())


def test_only_batches_above_the_recovery_point_are_checked_at_start() -> None:
    """A bit flipped below it is not noticed by recovery, one above it is."""

    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk)
        for number in range(10):
            await log.append(batch(2, size=100), now_ms=NOW_MS)
            if number == 4:
                await directory.checkpoint()
        assert log.recovery_point == 10
        disk.cut_power()
        disk.flip_bit(FIRST_SEGMENT, ONE + 90)
        disk.flip_bit(FIRST_SEGMENT, ONE * 8 + 90)
        _, again = open_log(disk)
        assert again.end_offset == 16

    run(main())


def test_missing_indexes_are_rebuilt() -> None:
    async def main() -> None:
        disk = await written(300, clean=True, segment_bytes=ONE * 100)
        for name in disk.names(FOLDER):
            if name.endswith("index"):
                disk.remove(f"{FOLDER}/{name}")
        _, log = open_log(disk)
        assert firsts(log) == list(range(0, 600, 2))
        assert found_at(log, 1001) == (1001, 1)

    run(main())


def test_index_with_trailing_zeros_is_used_up_to_them() -> None:
    async def main() -> None:
        disk = await written(100, clean=True)
        path = FIRST_SEGMENT.replace(".log", ".index")
        fd = disk.open(path)
        disk.write(fd, bytes(80), disk.size(fd))
        _, log = open_log(disk)
        assert firsts(log) == list(range(0, 200, 2))

    run(main())


def test_segments_after_a_damaged_one_are_dropped() -> None:
    async def main() -> None:
        disk = await written(10, clean=False, segment_bytes=ONE * 4)
        disk.flip_bit(FIRST_SEGMENT, ONE * 2 + 90)
        _, log = open_log(disk)
        assert log.end_offset == 4
        logs = [name for name in disk.names(FOLDER) if name.endswith(".log")]
        assert logs == ["00000000000000000000.log"]

    run(main())


def test_reappearing_deleted_segment_does_not_end_the_log() -> None:
    """Found by the model test: the second of two deleted segments is gone, the first is not."""

    async def main() -> None:
        disk = await written(10, clean=False, segment_bytes=ONE * 2)
        directory, log = open_log(disk)
        await log.delete_before(10)
        directory.abandon()
        for name in ("00000000000000000004.log", "00000000000000000004.timeindex"):
            if disk.exists(f"{FOLDER}/{name}"):
                disk.remove(f"{FOLDER}/{name}")
        disk.open(FIRST_SEGMENT, create=True)
        _, again = open_log(disk)
        assert (again.start_offset, again.end_offset) == (10, 20)
        assert not disk.exists(FIRST_SEGMENT)

    run(main())


def test_unsynced_records_are_synced_before_they_are_readable() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk)
        log.append(batch(2), now_ms=NOW_MS)  # Written, not synced: the process dies here.
        directory.abandon()
        directory, again = open_log(disk)
        assert again.high_watermark == 2
        readable = again.read(0, bytes_max=1)
        directory.abandon()
        for _ in range(5):
            disk.cut_power()
        _, last = open_log(disk)
        assert last.read(0, bytes_max=1) == readable

    run(main())


@pytest.mark.parametrize("seed", range(8))
def test_empty_file_of_a_killed_process_keeps_later_records(seed: int) -> None:
    """Found by the simulation: the names of folder and file were not durable."""

    async def main() -> None:
        disk = PowerLossDisk(seed)
        directory, log = open_log(disk)
        disk.fill_up()
        with pytest.raises(KafkaStorageError, match="a write failed"):
            log.append(batch(2), now_ms=NOW_MS)
        directory.abandon()
        disk.make_room()
        directory, again = open_log(disk)
        await again.append(batch(3), now_ms=NOW_MS)
        promised = again.read(0, bytes_max=1)
        directory.abandon()
        disk.cut_power()
        _, last = open_log(disk)
        assert (last.start_offset, last.end_offset) == (0, 3)
        assert last.read(0, bytes_max=1) == promised

    run(main())


@pytest.mark.parametrize("checkpoint_after", [None, 2, 5])
def test_duplicates_are_recognized_after_a_crash(checkpoint_after: int | None) -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk)
        producer = {"producer_id": 5, "producer_epoch": 3}
        for number in range(6):
            data = batch(2, base_sequence=number * 2, **producer)
            await log.append(data, now_ms=NOW_MS)
            if number == checkpoint_after:
                await directory.checkpoint()
        disk.cut_power()
        _, again = open_log(disk)
        for number in range(1, 6):
            data = batch(2, base_sequence=number * 2, **producer)
            ticket = again.append(data, now_ms=NOW_MS)
            assert (ticket.is_duplicate, ticket.done) == (True, True)
            assert ticket.base_offset == number * 2
        assert again.end_offset == 12

    run(main())


def test_a_damaged_producer_snapshot_is_replaced_by_reading_the_log() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk)
        producer = {"producer_id": 5, "producer_epoch": 3}
        for number in range(3):
            await log.append(batch(1, base_sequence=number, **producer), now_ms=NOW_MS)
        await directory.close()
        (snapshot,) = [name for name in disk.names(FOLDER) if name.endswith(".snapshot")]
        assert snapshot == "00000000000000000003.snapshot"
        disk.flip_bit(f"{FOLDER}/{snapshot}", 12)
        _, again = open_log(disk)
        ticket = again.append(batch(1, base_sequence=1, **producer), now_ms=NOW_MS)
        assert (ticket.is_duplicate, ticket.base_offset) == (True, 1)

    run(main())


def test_a_kill_with_os_durability_loses_nothing_the_system_has() -> None:
    """The process dies; the system's memory survives: no power cut here."""

    async def main() -> None:
        disk = PowerLossDisk(1)
        _, log = open_log(disk, Durability.OS)
        for _ in range(20):
            log.append(batch(2), now_ms=NOW_MS)
        again = open_directory_of_dead_process(disk).create(TOPIC, 0)
        assert again.end_offset == 40

    run(main())


def open_directory_of_dead_process(disk: PowerLossDisk):
    disk.release_locks()
    return open_directory(disk)


def test_a_start_offset_above_the_log_hides_and_removes_nothing() -> None:
    """The checkpoint file, or the log, is that of another time or another broker."""

    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk, segment_bytes=200)
        for _ in range(5):
            await log.append(batch(), now_ms=NOW_MS)
        await directory.close()
        write_checkpoint(disk, ROOT, "log-start-offset-checkpoint", {log.key: 1_000})
        before = disk.names(FOLDER)
        directory, log = open_log(disk, segment_bytes=200)
        assert (log.start_offset, log.end_offset) == (0, 5)
        assert [name for name in disk.names(FOLDER) if name.endswith(".log")] == [
            name for name in before if name.endswith(".log")
        ]
        directory.abandon()

    run(main())


def test_log_without_its_folder_continues_at_its_recovery_point() -> None:
    """A reused offset would inherit the share state of the former record."""

    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk)
        await log.append(batch(7), now_ms=NOW_MS)
        await directory.close()
        for name in disk.names(FOLDER):
            disk.remove(f"{FOLDER}/{name}")
        directory, log = open_log(disk)
        assert (log.start_offset, log.end_offset) == (7, 7)
        ticket = log.append(batch(), now_ms=NOW_MS)
        await ticket
        assert ticket.base_offset == 7
        await directory.close()
        directory, log = open_log(disk)
        assert (log.start_offset, log.end_offset) == (7, 8)
        directory.abandon()

    run(main())
