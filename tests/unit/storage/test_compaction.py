"""What compaction leaves of a log, and how a log with holes is read."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from collections.abc import Callable, Iterable

import pytest
from crc32c import crc32c

from sharegroup.errors import CorruptMessage, KafkaStorageError, OutOfOrderSequenceNumber
from sharegroup.storage.directory.log_directory import LogDirectory
from sharegroup.storage.log.compaction import (
    BATCH_RECORDS_MAX,
    STEP_RECORDS,
    Compacted,
    CompactionLimits,
    dirty_bytes,
)
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.storage.log.retention import Retention
from sharegroup.testing.power_loss import PowerLossDisk
from sharegroup.wire.batches.batches import parse_header, scan
from sharegroup.wire.batches.compression import ZSTD, compress
from sharegroup.wire.batches.records import SimpleRecord, decode_records, encode_batch
from tests.unit.storage.logs import (
    FOLDER,
    NOW_MS,
    abort,
    check_listed,
    commit,
    found_at,
    open_log,
    run,
    transactional,
)

SEGMENT_BYTES = 200
MEMORY = 1 << 20
Content = list[tuple[int, bytes | None, bytes | None]]


def keyed(*records: tuple[str | None, str | None], timestamp: int = NOW_MS, **producer: int):
    """A batch of (key, value); None as the value is a tombstone."""
    return encode_batch(
        [
            SimpleRecord(
                None if key is None else key.encode(),
                None if value is None else value.encode(),
                timestamp,
            )
            for key, value in records
        ],
        **producer,
    )


async def append(log: PartitionLog, *batches: bytearray) -> None:
    for batch in batches:
        await log.append(batch, now_ms=NOW_MS)


async def closed(directory: LogDirectory, log: PartitionLog) -> None:
    """Let everything be in closed segments below the recovery point."""
    log.roll()
    await log.append(keyed(("active", "a")), now_ms=NOW_MS)
    await directory.checkpoint()


async def compact(
    directory: LogDirectory,
    log: PartitionLog,
    *,
    memory_bytes: int = MEMORY,
    delete_retention_ms: int = 1000,
    segment_bytes: int = SEGMENT_BYTES,
    sleep: Callable[[float], None] = time.sleep,
) -> Compacted:
    limits = CompactionLimits(memory_bytes, delete_retention_ms, segment_bytes, sleep)
    found = log.compactable(now_ms=NOW_MS, lag_ms=0)
    return await directory.compact(log, found, limits)


def batches(log: PartitionLog) -> Iterable[tuple[int, int, int]]:
    """Base offset, end offset and record count of every batch."""
    offset = log.start_offset
    while offset < log.high_watermark:
        data = log.read(offset, bytes_max=1 << 20)
        for _, header in scan(data):
            yield header.base_offset, header.end_offset, header.record_count
            offset = header.end_offset


def content(log: PartitionLog) -> Content:
    found: Content = []
    offset = log.start_offset
    while offset < log.high_watermark:
        data = log.read(offset, bytes_max=1 << 20)
        found += (
            (record.offset, record.key, record.value)
            for record in decode_records(data, check_crc=True)
        )
        offset = max(header.end_offset for _, header in scan(data))
    return found


def keys(log: PartitionLog) -> list[tuple[int, str]]:
    return [(offset, (key or b"-").decode()) for offset, key, _ in content(log)]


def test_newest_record_of_each_key_is_kept() -> None:
    async def main() -> None:
        directory, log = open_log(PowerLossDisk(1), segment_bytes=SEGMENT_BYTES)
        await append(
            log,
            keyed(("a", "1"), ("b", "1"), ("a", "2")),  # 0 1 2
            keyed(("c", "1"), ("d", "1")),  # 3 4
            keyed(("b", "2")),  # 5
            keyed(("a", "3"), ("d", "2")),  # 6 7
        )
        await closed(directory, log)  # 8
        done = await compact(directory, log)
        assert content(log) == [
            (3, b"c", b"1"),
            (5, b"b", b"2"),
            (6, b"a", b"3"),
            (7, b"d", b"2"),
            (8, b"active", b"a"),
        ]
        assert (log.start_offset, log.end_offset, log.cleaned_to) == (0, 9, 8)
        assert done.bytes_after < done.bytes_before
        assert log.size == done.bytes_after + len(keyed(("active", "a")))

    run(main())


def test_the_active_segment_is_not_touched_but_hides_nothing() -> None:
    async def main() -> None:
        directory, log = open_log(PowerLossDisk(1))
        await append(log, keyed(("a", "1")))
        await closed(directory, log)
        await append(log, keyed(("a", "2")))
        await compact(directory, log)
        assert keys(log) == [(0, "a"), (1, "active"), (2, "a")]

    run(main())


def test_record_without_a_key_is_removed() -> None:
    async def main() -> None:
        directory, log = open_log(PowerLossDisk(1))
        await append(log, keyed((None, "1"), ("a", "1")))
        await closed(directory, log)
        await compact(directory, log)
        assert keys(log) == [(1, "a"), (2, "active")]

    run(main())


def test_tombstone_is_kept_for_delete_retention_ms() -> None:
    async def main() -> None:
        now = [NOW_MS]
        disk = PowerLossDisk(1)
        directory = LogDirectory.open("/disk/data", wall_ms=lambda: now[0], files=disk)
        log = directory.create(*_topic())
        await append(log, keyed(("a", "1")), keyed(("a", None), ("b", "1")))
        await closed(directory, log)
        seen = []
        for later_ms in (0, 4_000, 5_000):
            now[0] = NOW_MS + later_ms
            await compact(directory, log, delete_retention_ms=5_000)
            seen.append(keys(log))
        kept = [(1, "a"), (2, "b"), (3, "active")]
        assert seen == [kept, kept, kept[1:]]

    run(main())


def test_last_batch_of_a_segment_is_kept_without_records() -> None:
    async def main() -> None:
        directory, log = open_log(PowerLossDisk(1))
        await append(log, keyed(("a", "1")), keyed(("a", "2"), ("b", "1")))
        log.roll()
        await append(log, keyed(("a", "3"), ("b", "2")))
        await closed(directory, log)
        await compact(directory, log, segment_bytes=1)
        assert list(batches(log)) == [(1, 3, 0), (3, 5, 2), (5, 6, 1)]
        await compact(directory, log, segment_bytes=1 << 20)
        assert list(batches(log)) == [(3, 5, 2), (5, 6, 1)]

    run(main())


def test_last_batch_of_a_producer_is_kept_without_records() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk)
        numbered = {"producer_id": 9, "producer_epoch": 0}
        await append(log, keyed(("a", "1"), base_sequence=0, **numbered))
        await append(log, keyed(("a", "2"), base_sequence=1, **numbered))
        await append(log, keyed(("a", "3")), keyed(("b", "1")))
        await closed(directory, log)
        await compact(directory, log)
        assert list(batches(log)) == [(1, 2, 0), (2, 3, 1), (3, 4, 1), (4, 5, 1)]
        directory.abandon()
        disk.cut_power()
        disk.flip_bit(f"{FOLDER}/{5:020}.snapshot", 9)
        directory, log = open_log(disk)
        repeated = keyed(("a", "2"), base_sequence=1, **numbered)
        with pytest.raises(OutOfOrderSequenceNumber, match="expected sequence 2"):
            log.append(keyed(("a", "9"), base_sequence=7, **numbered), now_ms=NOW_MS)
        assert log.append(repeated, now_ms=NOW_MS).is_duplicate

    run(main())


@pytest.mark.parametrize("is_commit", [True, False])
def test_marker_is_removed_when_its_transaction_has_no_records(is_commit: bool) -> None:
    async def main() -> None:
        now = [NOW_MS]
        directory = LogDirectory.open("/disk/data", wall_ms=lambda: now[0], files=PowerLossDisk(1))
        log = directory.create(*_topic())
        end = commit(7) if is_commit else abort(7)
        await append(log, transactional(2, producer=7), end)  # 0-1, 2
        await append(log, keyed(("key", "9"), ("last", "1")))  # 3 4
        await closed(directory, log)
        log.producers.expire(NOW_MS + 1)
        seen = []
        for later_ms in (0, 1, 1000, 1001):
            now[0] = NOW_MS + later_ms
            await compact(directory, log)
            seen.append(([first for first, _, _ in batches(log)], log.aborted_transactions(0, 5)))
        aborted = () if is_commit else ((7, 0, 2),)
        assert seen == [([2, 3, 5], aborted), ([2, 3, 5], ()), ([2, 3, 5], ()), ([3, 5], ())]

    run(main())


def test_aborted_records_are_removed_and_older_values_are_kept() -> None:
    async def main() -> None:
        directory, log = open_log(PowerLossDisk(1), segment_bytes=SEGMENT_BYTES)
        await append(log, keyed(("key", "old")), transactional(3, producer=7))  # 0, 1-3
        await append(log, keyed(("b", "1")), abort(7), keyed(("c", "1")))  # 4 5 6
        await closed(directory, log)
        await compact(directory, log)
        assert keys(log) == [(0, "key"), (4, "b"), (6, "c"), (7, "active")]

    run(main())


def test_abort_in_the_cleaned_part_says_nothing_about_later_transactions() -> None:
    """The producer's next transaction is committed, so its record is the newest of its key."""

    async def main() -> None:
        directory, log = open_log(PowerLossDisk(1), segment_bytes=SEGMENT_BYTES)
        producer = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
        aborted = keyed(("x", "aborted"), base_sequence=0, **producer)
        await append(log, keyed(("k", "old")), aborted, abort(7))  # 0 1 2
        await closed(directory, log)  # 3
        await compact(directory, log)
        assert (log.cleaned_to, log.aborted_transactions(0, 3)) == (3, ((7, 1, 2),))
        await append(log, keyed(("k", "new"), base_sequence=1, **producer), commit(7))  # 4 5
        await closed(directory, log)  # 6
        await compact(directory, log)
        assert (4, b"k", b"new") in content(log)
        assert (0, b"k", b"old") not in content(log)

    run(main())


def test_abort_that_begins_in_the_cleaned_part_goes_on_behind_it() -> None:
    """Memory for two keys ends the first pass between two batches of the transaction."""

    async def main() -> None:
        directory, log = open_log(PowerLossDisk(1))
        producer = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
        await append(
            log,
            keyed(("k", "valid"), ("x", "1")),  # 0 1
            keyed(("k", "aborted"), base_sequence=0, **producer),  # 2
        )
        log.roll()
        await append(
            log,
            keyed(("k", "aborted"), base_sequence=1, **producer),  # 3
            keyed(("y", "1"), ("z", "1")),  # 4 5
            abort(7),  # 6
        )
        await closed(directory, log)  # 7
        await compact(directory, log, memory_bytes=2 * 200)
        assert log.cleaned_to == 3
        await compact(directory, log)
        assert log.cleaned_to == 7
        assert content(log)[:4] == [
            (0, b"k", b"valid"),
            (1, b"x", b"1"),
            (4, b"y", b"1"),
            (5, b"z", b"1"),
        ]

    run(main())


def test_an_open_transaction_is_not_compacted() -> None:
    async def main() -> None:
        directory, log = open_log(PowerLossDisk(1))
        await append(log, keyed(("key", "1")), keyed(("key", "2")))
        log.roll()
        await append(log, transactional(1, producer=7), keyed(("key", "4")))
        await closed(directory, log)
        await compact(directory, log)
        assert log.cleaned_to == 2
        assert keys(log) == [(1, "key"), (2, "key"), (3, "key"), (4, "active")]

    run(main())


def test_more_keys_than_fit_into_memory_take_several_passes() -> None:
    async def main() -> None:
        directory, log = open_log(PowerLossDisk(1), segment_bytes=SEGMENT_BYTES)
        for number in range(40):
            await append(log, keyed((f"k{number % 10}", str(number))))
        await closed(directory, log)
        reached = []
        while log.cleaned_to < 40:
            await compact(directory, log, memory_bytes=600)
            reached.append(log.cleaned_to)
        assert reached == [3, 6, 9, *range(12, 40, 3), 40]
        assert keys(log) == [*((n, f"k{n % 10}") for n in range(30, 40)), (40, "active")]

    run(main())


def test_young_records_are_left_alone() -> None:
    async def main() -> None:
        directory, log = open_log(PowerLossDisk(1), segment_bytes=1)
        for timestamp in (1_000, 2_000, 3_000):
            await append(log, keyed(("a", "1"), timestamp=timestamp))
        await closed(directory, log)
        found = log.compactable(now_ms=4_000, lag_ms=2_000)
        assert [segment.base_offset for segment in found.segments] == [0, 1]
        assert dirty_bytes(found) == (2 * 70, 2 * 70)

    run(main())


def test_read_in_a_hole_begins_with_the_next_batch() -> None:
    async def main() -> None:
        directory, log = open_log(PowerLossDisk(1))
        await append(log, *(keyed((key, "1")) for key in "aabbbc"))
        await closed(directory, log)
        await compact(directory, log)
        assert [first for first, _, _ in batches(log)] == [1, 4, 5, 6]
        for offset, first in [(0, 1), (1, 1), (2, 4), (3, 4), (4, 4), (5, 5), (6, 6)]:
            assert parse_header(log.read(offset, bytes_max=1)).base_offset == first
            assert log.batches(offset, bytes_max=1).firsts == [first]
        spans = log.batches(0, bytes_max=1 << 20)
        assert (spans.firsts, spans.ends) == ([1, 4, 5], [2, 5, 6])
        assert spans.total_bytes == len(log.read(0, bytes_max=1 << 20))
        assert [spans.size_of(first) for first in (1, 4, 5)] == [spans.total_bytes // 3] * 3
        assert log.read(2, end=4, bytes_max=100) == b""
        assert log.batches(2, end=4, bytes_max=100).firsts == []
        assert log.read_range(2, 5) == log.read(4, bytes_max=1)
        check_listed(log, 0, 7)
        check_listed(log, 2, 5)

    run(main())


def test_records_are_found_by_their_time_across_holes() -> None:
    async def main() -> None:
        directory, log = open_log(PowerLossDisk(1))
        for number, key in enumerate("aabbbc"):
            await append(log, keyed((key, "1"), timestamp=1_000 + number))
        await closed(directory, log)
        await compact(directory, log)
        assert found_at(log, 1_000) == (1_001, 1)
        assert found_at(log, 1_002) == (1_004, 4)

    run(main())


def test_many_batches_with_holes_are_found_from_the_index() -> None:
    async def main() -> None:
        directory, log = open_log(PowerLossDisk(1))
        for number in range(2_000):
            log.append(keyed((f"k{number % 700}", "v" * 20)), now_ms=NOW_MS)
        await closed(directory, log)
        await compact(directory, log, segment_bytes=1 << 30)
        left = list(range(1_300, 2_001))
        assert [first for first, _, _ in batches(log)] == left
        for offset in range(0, 2_000, 37):
            expected = max(offset, 1_300)
            assert parse_header(log.read(offset, bytes_max=1)).base_offset == expected
        check_listed(log, 0, 2_001)

    run(main())


@pytest.mark.parametrize("clean", [True, False])
def test_a_compacted_log_is_the_same_after_a_restart(clean: bool) -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk, segment_bytes=SEGMENT_BYTES)
        for number in range(60):
            await append(log, keyed((f"k{number % 7}", str(number)), ("x", "y")))
        await append(log, transactional(1, producer=3), abort(3))
        await closed(directory, log)
        await compact(directory, log, segment_bytes=1 << 20)
        before = content(log), log.aborted_transactions(0, 122), log.cleaned_to
        if clean:
            await directory.close()
        else:
            await directory.drain()
            directory.abandon()
        disk.cut_power()
        directory, log = open_log(disk, segment_bytes=SEGMENT_BYTES)
        assert (content(log), log.aborted_transactions(0, 122), log.cleaned_to) == before
        await append(log, keyed(("k1", "again")))
        await closed(directory, log)
        await compact(directory, log)
        assert (124, "k1") not in keys(log)[:-3]
        assert [key for _, key in keys(log)].count("k1") == 1

    run(main())


def test_without_its_checkpoints_a_compacted_log_is_read_whole() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk, segment_bytes=SEGMENT_BYTES)
        for number in range(60):
            await append(log, keyed((f"k{number % 7}", str(number))))
        await closed(directory, log)
        await compact(directory, log)
        before = content(log)
        await directory.close()
        for name in ("recovery-point-offset-checkpoint", "cleaner-offset-checkpoint"):
            disk.remove(f"/disk/data/{name}")
        _, log = open_log(disk, segment_bytes=SEGMENT_BYTES)
        assert content(log) == before

    run(main())


def test_compaction_on_a_full_disk_leaves_the_log_unchanged() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk, segment_bytes=SEGMENT_BYTES)
        for number in range(20):
            await append(log, keyed((f"k{number % 3}", str(number))))
        await closed(directory, log)
        before, names = content(log), disk.names(FOLDER)
        disk.fill_up(50)
        with pytest.raises(KafkaStorageError, match="compaction"):
            await compact(directory, log)
        await directory.drain()
        assert (content(log), disk.names(FOLDER)) == (before, names)
        disk.make_room()
        await compact(directory, log)
        assert [key for _, key in keys(log)] == ["k2", "k0", "k1", "active"]

    run(main())


@pytest.mark.parametrize("turns", range(0, 60, 3))
def test_cancelled_compaction_leaves_a_usable_log(turns: int) -> None:
    async def main() -> None:
        disk = PowerLossDisk(turns)
        directory, log = open_log(disk, segment_bytes=SEGMENT_BYTES)
        for number in range(20):
            await append(log, keyed((f"k{number % 3}", str(number))))
        await closed(directory, log)
        cancelled = asyncio.create_task(compact(directory, log))
        for _ in range(turns):
            await asyncio.sleep(0)
            await directory.drain()
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        await directory.drain()
        newest = [(17, "k2"), (18, "k0"), (19, "k1"), (20, "active")]
        assert keys(log)[-4:] == newest
        await append(log, keyed(("last", "1")))
        await directory.close()
        directory, log = open_log(disk, segment_bytes=SEGMENT_BYTES)
        assert keys(log)[-5:] == [*newest, (21, "last")]
        await closed(directory, log)
        await compact(directory, log)
        assert keys(log) == [*newest, (21, "last"), (22, "active")]

    run(main())


def test_failed_sync_after_compaction_loses_only_undurable_records() -> None:
    """The log is cut back to the segment of the last sync, which compaction must not replace."""

    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk)
        await append(log, keyed(("a", "1")), keyed(("a", "2")))
        log.roll()
        await directory.checkpoint()
        await compact(directory, log)
        disk.fail_next_sync(2)
        with pytest.raises(KafkaStorageError):
            await log.append(keyed(("a", "3")), now_ms=NOW_MS)
        assert (log.high_watermark, log.end_offset) == (2, 2)
        assert keys(log)[-1] == (1, "a")

    run(main())


def test_damage_is_not_compacted_away() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk)
        await append(log, keyed(("a", "1")), keyed(("a", "2")))
        await closed(directory, log)
        disk.flip_bit(f"{FOLDER}/{0:020}.log", 65)
        with pytest.raises(CorruptMessage, match="byte 0 is damaged"):
            await compact(directory, log)
        assert log.cleaned_to == 0

    run(main())


@pytest.mark.parametrize("count", [BATCH_RECORDS_MAX + 1, 5], ids=["bomb", "lie"])
def test_batch_that_cannot_be_compacted_is_kept_and_others_are_compacted(count: int) -> None:
    """The attack: a batch of 6 KB with 9 million records took 12 s and 1.5 GB."""

    async def main() -> None:
        directory, log = open_log(PowerLossDisk(1))
        bad = keyed(("a", "2"))[:61]
        bad += compress(ZSTD, bytes.fromhex("0c 00 00 00 00 01 00") * (count if count > 5 else 1))
        bad[8:12] = (len(bad) - 12).to_bytes(4, "big")
        bad[21:23] = ZSTD.to_bytes(2, "big")
        bad[23:27] = (count - 1).to_bytes(4, "big")
        bad[57:61] = count.to_bytes(4, "big")
        bad[17:21] = crc32c(bad[21:]).to_bytes(4, "big")
        written = bytes(bad[16:])
        await append(log, keyed(("a", "1"), ("b", "1")), bad, keyed(("a", "3")))
        await closed(directory, log)
        tracemalloc.start()
        done = await compact(directory, log)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert done.cleaned_to == count + 3
        kept = list(batches(log))
        assert kept[:3] == [(0, 2, 1), (2, count + 2, count), (count + 2, count + 3, 1)]
        assert written in log.read(2, bytes_max=1 << 20)
        assert peak < 10_000_000

    run(main())


def test_large_batch_is_decoded_in_steps() -> None:
    """A batch of 200,000 records kept the interpreter lock, and so the event loop, for 600 ms."""
    count = 10 * STEP_RECORDS
    pauses: list[float] = []

    async def main() -> None:
        directory, log = open_log(PowerLossDisk(1))
        large = keyed(*((f"k{number % (count - 1)}", "1") for number in range(count)))
        await append(log, large, keyed(("other", "1")))
        await closed(directory, log)
        await compact(directory, log, sleep=pauses.append)
        assert next(iter(batches(log))) == (0, count, count - 1)

    run(main())
    assert len(pauses) == 4 * 10, "read through and looked at, to learn and to rewrite"
    assert set(pauses) == {0}


def test_segments_deleted_by_retention_during_compaction_stay_deleted() -> None:
    async def main() -> None:
        directory, log = open_log(PowerLossDisk(1), segment_bytes=1)
        for number in range(10):
            await append(log, keyed((f"k{number % 3}", str(number)), timestamp=1_000 + number))
        await closed(directory, log)
        found = log.compactable(now_ms=NOW_MS, lag_ms=0)
        start = log.retained_from(Retention(ms=1_000), now_ms=2_005)
        await log.delete_before(start)
        limits = CompactionLimits(MEMORY, 0, 1 << 20)
        with pytest.raises(KafkaStorageError):
            await directory.compact(log, found, limits)
        await directory.drain()
        assert [offset for offset, _ in keys(log)] == [5, 6, 7, 8, 9, 10]
        await compact(directory, log, segment_bytes=1 << 20)
        assert [offset for offset, _ in keys(log)] == [7, 8, 9, 10]

    run(main())


def _topic():
    from tests.unit.storage.logs import TOPIC

    return TOPIC, 0
