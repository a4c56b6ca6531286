"""What a log does when the disk is full or a sync fails, and how it comes back."""

from __future__ import annotations

import asyncio

import pytest

from sharegroup.errors import KafkaStorageError
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.storage.parts import Durability
from sharegroup.storage.sync.tickets import Ticket
from sharegroup.testing.power_loss import PowerLossDisk
from tests.unit.storage.logs import FOLDER, NOW_MS, batch, open_directory, open_log, run


async def append_when_healed(log: PartitionLog, **producer: int) -> Ticket:
    """Append until the log takes it; the first refused append starts a probe."""
    while True:
        try:
            return log.append(batch(1, **producer), now_ms=NOW_MS)
        except KafkaStorageError:
            await asyncio.sleep(0)


def test_full_disk_refuses_appends_until_it_has_room_again() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk)
        await log.append(batch(2), now_ms=NOW_MS)
        promised = log.read(0, bytes_max=1)
        disk.fill_up(room_bytes=20)
        with pytest.raises(KafkaStorageError, match=r"offset=2: a write failed: .*No space left"):
            log.append(batch(2), now_ms=NOW_MS)
        assert log.is_fenced
        assert log.read(0, bytes_max=1) == promised
        with pytest.raises(KafkaStorageError, match="accepts no appends: a write failed"):
            log.append(batch(2), now_ms=NOW_MS)
        disk.make_room()
        ticket = await append_when_healed(log)
        await ticket
        assert (ticket.base_offset, log.is_fenced) == (2, False)
        await directory.close()
        assert open_log(disk)[1].end_offset == 3

    run(main())


def test_failed_write_does_not_affect_earlier_writes() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        _, log = open_log(disk)
        before = log.append(batch(2), now_ms=NOW_MS)
        disk.fill_up()
        with pytest.raises(KafkaStorageError):
            log.append(batch(2), now_ms=NOW_MS)
        await before
        assert log.high_watermark == 2

    run(main())


def test_failed_sync_fails_its_appends_and_their_offsets_are_reused() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        _, log = open_log(disk)
        await log.append(batch(2), now_ms=NOW_MS)
        disk.fail_next_sync(2)
        lost = [log.append(batch(1), now_ms=NOW_MS) for _ in range(3)]
        for ticket in lost:
            with pytest.raises(KafkaStorageError, match="a sync failed"):
                await ticket
        assert (log.end_offset, log.high_watermark) == (2, 2)
        disk.fail_next_sync(0)
        ticket = await append_when_healed(log)
        await ticket
        assert (ticket.base_offset, log.high_watermark) == (2, 3)
        with pytest.raises(KafkaStorageError):
            await lost[0]  # It stays failed, although another batch now has its offset.

    run(main())


def test_a_failed_sync_takes_back_segments_begun_since() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk, segment_bytes=len(batch(2)) * 2)
        for _ in range(3):
            await log.append(batch(2), now_ms=NOW_MS)
        disk.fail_next_sync(2)  # That of everything, and then that of the first file.
        lost = [log.append(batch(2), now_ms=NOW_MS) for _ in range(5)]
        with pytest.raises(KafkaStorageError):
            await lost[0]
        assert log.end_offset == 6
        disk.fail_next_sync(0)
        await (await append_when_healed(log))
        logs = [name for name in disk.names(FOLDER) if name.endswith(".log")]
        assert logs == ["00000000000000000000.log", "00000000000000000004.log"]
        await directory.close()
        _, again = open_log(disk)
        assert again.end_offset == 7
        assert again.batches(4, bytes_max=1 << 20).firsts == [4, 6]

    run(main())


def test_failed_sync_forgets_the_sequences_of_its_batches() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        _, log = open_log(disk)
        producer = {"producer_id": 5, "producer_epoch": 0}
        await log.append(batch(1, base_sequence=0, **producer), now_ms=NOW_MS)
        disk.fail_next_sync()
        lost = log.append(batch(1, base_sequence=1, **producer), now_ms=NOW_MS)
        with pytest.raises(KafkaStorageError):
            await lost
        disk.fail_next_sync(0)
        ticket = await append_when_healed(log, base_sequence=1, **producer)
        assert not ticket.is_duplicate
        await ticket
        assert log.high_watermark == 2

    run(main())


def test_failed_sync_of_one_log_does_not_fail_another() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk)
        other = directory.create(log.key.topic_id, 1)
        await log.append(batch(1), now_ms=NOW_MS)
        await other.append(batch(1), now_ms=NOW_MS)
        disk.fail_next_sync()
        unlucky = log.append(batch(1), now_ms=NOW_MS)
        lucky = other.append(batch(1), now_ms=NOW_MS)
        await lucky
        assert unlucky.failed

    run(main())


def test_a_failed_checkpoint_with_os_durability_keeps_the_records_and_heals() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk, Durability.OS)
        log.append(batch(2), now_ms=NOW_MS)
        disk.fail_next_sync()
        await directory.checkpoint()
        assert log.is_fenced
        assert (log.high_watermark, log.recovery_point) == (2, 0)
        await append_when_healed(log)
        await directory.checkpoint()
        assert log.recovery_point == 3

    run(main())


def test_a_failed_sync_of_the_journal_fails_the_ticket_and_the_next_append_works() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory = open_directory(disk)
        journal = directory.journal("catalog")
        await journal.append(b"one")
        disk.fail_next_sync()
        with pytest.raises(KafkaStorageError, match="catalog: a sync failed"):
            await journal.append(b"two")
        await journal.append(b"three")
        assert journal.payloads() == (b"one", b"three")
        await directory.close()
        assert open_directory(disk).journal("catalog").payloads() == (b"one", b"three")

    run(main())


def test_records_of_a_failed_sync_are_not_recovered() -> None:
    """The process dies before the disk was tried again, and the system still has the records.

    The second batch began a separate segment, which is removed as a whole.
    """

    async def main() -> None:
        disk = PowerLossDisk(1)
        _, log = open_log(disk, segment_bytes=100)
        await log.append(batch(2), now_ms=NOW_MS)
        disk.fail_next_sync(2)
        with pytest.raises(KafkaStorageError, match="a sync failed"):
            await log.append(batch(2), now_ms=NOW_MS)
        disk.fail_next_sync(0)
        disk.release_locks()
        assert open_log(disk)[1].end_offset == 2

    run(main())


def test_directory_can_be_closed_on_a_full_disk() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk)
        await log.append(batch(2), now_ms=NOW_MS)
        disk.fill_up()
        await directory.close()
        disk.make_room()
        again, log = open_log(disk)
        assert (again.was_clean, log.end_offset) == (False, 2)

    run(main())


def test_refused_deletion_does_not_come_with_a_later_one() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk)
        for _ in range(3):
            await log.append(batch(2), now_ms=NOW_MS)
        await directory.checkpoint()
        disk.fill_up()
        with pytest.raises(KafkaStorageError, match="new start offsets"):
            await directory.delete_before({log.key: 4})
        disk.make_room()
        await directory.delete_before({log.key: 2})
        await directory.close()
        assert open_log(disk)[1].start_offset == 2

    run(main())
