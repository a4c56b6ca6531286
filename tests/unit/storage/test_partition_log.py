from __future__ import annotations

import asyncio

import pytest

from sharegroup.errors import OffsetOutOfRange, OutOfOrderSequenceNumber, UnknownTopicOrPartition
from sharegroup.storage.parts import Durability
from sharegroup.storage.segment.boundaries import TAIL_BATCHES_MAX
from sharegroup.testing.power_loss import PowerLossDisk
from sharegroup.wire.batches.batches import parse_header
from sharegroup.wire.batches.records import decode_records
from tests.unit.storage.logs import (
    FOLDER,
    NOW_MS,
    TOPIC,
    batch,
    check_listed,
    commit,
    open_log,
    run,
    transactional,
)


def test_append_assigns_offsets_and_is_readable_when_durable() -> None:
    async def main() -> None:
        _, log = open_log(PowerLossDisk(1))
        first, second = log.append(batch(3), now_ms=NOW_MS), log.append(batch(2), now_ms=NOW_MS)
        assert (first.base_offset, first.end_offset) == (0, 3)
        assert (second.base_offset, second.end_offset) == (3, 5)
        assert (log.end_offset, log.high_watermark, first.done) == (5, 0, False)
        assert log.read(0, bytes_max=1000) == b""
        await second
        assert (log.high_watermark, first.done) == (5, True)

    run(main())


def test_os_durability_shows_an_append_at_once_and_syncs_nothing() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        _, log = open_log(disk, Durability.OS)
        syncs = disk.syncs
        ticket = log.append(batch(3), now_ms=NOW_MS)
        assert (ticket.done, log.high_watermark) == (True, 3)
        await ticket
        assert disk.syncs == syncs

    run(main())


def test_appends_of_one_turn_share_a_round_of_syncs() -> None:
    async def main() -> None:
        directory, log = open_log(PowerLossDisk(1))
        other = directory.create(TOPIC, 1)
        tickets = [log.append(batch(), now_ms=NOW_MS) for _ in range(10)]
        tickets += [other.append(batch(), now_ms=NOW_MS) for _ in range(10)]
        for ticket in tickets:
            await ticket
        assert directory.sync_rounds == 1

    run(main())


def test_offset_and_leader_epoch_are_stamped_and_the_checksum_still_holds() -> None:
    async def main() -> None:
        _, log = open_log(PowerLossDisk(1))
        log.append(batch(3), now_ms=NOW_MS)
        await log.append(batch(2), now_ms=NOW_MS)
        data = log.read(3, bytes_max=1)
        header = parse_header(data)
        assert (header.base_offset, header.leader_epoch) == (3, 0)
        assert [record.offset for record in decode_records(data, check_crc=True)] == [3, 4]

    run(main())


def test_read_returns_whole_batches_within_the_limit_and_always_one() -> None:
    async def main() -> None:
        _, log = open_log(PowerLossDisk(1))
        size = len(batch(2))
        for _ in range(5):
            await log.append(batch(2), now_ms=NOW_MS)
        assert len(log.read(0, bytes_max=size * 3)) == size * 3
        assert len(log.read(0, bytes_max=size * 3 - 1)) == size * 2
        assert len(log.read(5, bytes_max=0)) == size  # The batch that holds offset 5 is [4, 6).
        assert parse_header(log.read(5, bytes_max=0)).base_offset == 4
        assert len(log.read(0, bytes_max=size * 9, end=3)) == size * 2
        assert log.read(10, bytes_max=size) == b""

    run(main())


def test_read_range_returns_exactly_the_batches_that_cover_it_across_segments() -> None:
    async def main() -> None:
        size = len(batch(2))
        _, log = open_log(PowerLossDisk(1), segment_bytes=size * 2)
        for _ in range(6):
            await log.append(batch(2), now_ms=NOW_MS)
        offsets = [record.offset for record in decode_records(log.read_range(3, 9))]
        assert offsets == [2, 3, 4, 5, 6, 7, 8, 9]

    run(main())


def test_batches_returns_first_and_end_offsets_within_the_limits() -> None:
    async def main() -> None:
        _, log = open_log(PowerLossDisk(1))
        for count in (3, 1, 4, 1, 5):
            await log.append(batch(count), now_ms=NOW_MS)
        found = log.batches(2, bytes_max=1 << 20, count_max=3)
        assert (found.firsts, found.ends) == ([0, 3, 4], [3, 4, 8])
        assert found.total_bytes == len(batch(3)) + len(batch(1)) + len(batch(4))
        sizes = [found.size_of(first) for first in found.firsts]
        assert sizes == [len(batch(3)), len(batch(1)), len(batch(4))]
        found = log.batches(8, bytes_max=1 << 20)
        assert (found.firsts, found.ends) == ([8, 9], [9, 14])
        found = log.batches(0, end=4, bytes_max=1 << 20)
        assert found.firsts == [0, 3]
        assert log.batches(14, bytes_max=1).firsts == []
        assert log.batches(0, bytes_max=0).firsts == [0]

    run(main())


def test_batches_are_listed_as_they_would_be_read() -> None:
    async def main() -> None:
        _, log = open_log(PowerLossDisk(1), Durability.OS, segment_bytes=300_000)
        for number in range(TAIL_BATCHES_MAX * 2):
            producer = number % 7
            log.append(transactional(2, producer=producer, sequence=number // 7 * 2), now_ms=NOW_MS)
            if number % 100 < 7:
                log.append(commit(producer), now_ms=NOW_MS)
        for first in range(0, log.high_watermark, 501):
            check_listed(log, first, min(first + 400, log.high_watermark))
        check_listed(log, 0, log.high_watermark)
        assert log.listed(5, 5) == []

    run(main())


def test_batches_of_an_earlier_run_are_not_listed_without_a_read() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk)
        await log.append(batch(3), now_ms=NOW_MS)
        await directory.checkpoint()
        await directory.close()
        _, log = open_log(disk)
        await log.append(batch(2), now_ms=NOW_MS)
        assert log.listed(0, 5) is None
        assert log.listed(3, 5) == [(3, 5, len(batch(2)), False)]

    run(main())


def test_offsets_outside_the_log_are_refused() -> None:
    async def main() -> None:
        _, log = open_log(PowerLossDisk(1))
        await log.append(batch(3), now_ms=NOW_MS)
        for offset in (-1, 4):
            with pytest.raises(OffsetOutOfRange, match=f"offset {offset} is not in 0 to 3"):
                log.read(offset, bytes_max=1)

    run(main())


def test_batches_that_left_memory_are_found_through_the_index() -> None:
    async def main() -> None:
        _, log = open_log(PowerLossDisk(1), Durability.OS)
        count = TAIL_BATCHES_MAX * 3
        for _ in range(count):
            log.append(batch(1, size=100), now_ms=NOW_MS)
        for offset in (0, 1, 777, count - TAIL_BATCHES_MAX - 5, count - 1):
            assert parse_header(log.read(offset, bytes_max=1)).base_offset == offset
        found = log.batches(500, bytes_max=1 << 30, count_max=3000)
        assert found.firsts == list(range(500, 3500))
        assert found.ends == list(range(501, 3501))
        assert {found.size_of(first) for first in found.firsts} == {len(batch(1, size=100))}

    run(main())


def test_a_full_segment_is_followed_by_another_in_kafkas_naming() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk, segment_bytes=len(batch(2)) * 2)
        for _ in range(5):
            await log.append(batch(2), now_ms=NOW_MS)
        await directory.close()
        logs = [name for name in disk.names(FOLDER) if name.endswith(".log")]
        assert logs == [
            "00000000000000000000.log",
            "00000000000000000004.log",
            "00000000000000000008.log",
        ]

    run(main())


def test_a_batch_sent_again_gets_the_offset_of_the_first_time() -> None:
    async def main() -> None:
        _, log = open_log(PowerLossDisk(1))
        producer = {"producer_id": 9, "producer_epoch": 0}
        first = log.append(batch(3, base_sequence=0, **producer), now_ms=NOW_MS)
        again = log.append(batch(3, base_sequence=0, **producer), now_ms=NOW_MS)
        assert again.is_duplicate
        assert (again.base_offset, again.end_offset, log.end_offset) == (0, 3, 3)
        assert not again.done  # The first one is not durable yet, so neither is its repetition.
        await again
        assert first.done
        with pytest.raises(OutOfOrderSequenceNumber, match="expected sequence 3, the batch has 4"):
            log.append(batch(1, base_sequence=4, **producer), now_ms=NOW_MS)

    run(main())


def test_delete_before_moves_the_start_and_removes_whole_segments() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk, segment_bytes=len(batch(2)) * 2)
        for _ in range(5):
            await log.append(batch(2), now_ms=NOW_MS)
        assert await log.delete_before(5) == 5
        assert await log.delete_before(3) == 5
        with pytest.raises(OffsetOutOfRange):
            log.read(4, bytes_max=1)
        assert parse_header(log.read(5, bytes_max=1)).base_offset == 4
        with pytest.raises(OffsetOutOfRange, match="up to offset 11 cannot be deleted"):
            await log.delete_before(11)
        await directory.close()
        assert "00000000000000000000.log" not in disk.names(FOLDER)
        _, again = open_log(disk)
        assert (again.start_offset, again.end_offset) == (5, 10)

    run(main())


def test_subscribers_are_called_when_the_high_watermark_advances() -> None:
    async def main() -> None:
        _, log = open_log(PowerLossDisk(1))
        heard: list[int] = []
        log.subscribe(lambda: heard.append(log.high_watermark))
        log.append(batch(1), now_ms=NOW_MS)
        await log.append(batch(1), now_ms=NOW_MS)
        await log.append(batch(1), now_ms=NOW_MS)
        assert heard == [2, 3]

    run(main())


def test_cancelling_one_waiter_of_a_ticket_leaves_the_others_waiting() -> None:
    async def main() -> None:
        _, log = open_log(PowerLossDisk(1))
        ticket = log.append(batch(1), now_ms=NOW_MS)

        async def wait() -> None:
            await ticket

        impatient, patient = asyncio.create_task(wait()), asyncio.create_task(wait())
        impatient.cancel()
        await patient
        assert log.high_watermark == 1

    run(main())


def test_a_deleted_log_takes_no_appends_and_its_tickets_fail() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk)
        ticket = log.append(batch(1), now_ms=NOW_MS)
        directory.delete(TOPIC, partition_count=1)
        assert ticket.failed
        with pytest.raises(UnknownTopicOrPartition, match="closed or was deleted"):
            log.append(batch(1), now_ms=NOW_MS)
        await directory.close()
        assert not disk.exists(FOLDER)

    run(main())
