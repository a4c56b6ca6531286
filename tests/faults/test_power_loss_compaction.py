"""The power goes at every operation of compaction and of retention, one after the other.

So does the process alone, whose writes all stay, and so does the room on the disk.

A log of keyed records with transactions is compacted twice, the second time after its tombstones'
time, and loses its oldest segments to retention.  After every cut:

- what is read was written, at that offset, and offsets ascend;
- of each key the newest record is there, unless it is a tombstone whose time has come;
- no record is there again that a later one of its key, a tombstone too, had replaced for good;
- nothing aborted is there that the log does not name as aborted;
- compaction goes on, and leads to what it leads to without a cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from sharegroup.errors import KafkaError
from sharegroup.ids import TopicId, TopicIdPartition
from sharegroup.storage.directory.log_directory import LogDirectory
from sharegroup.storage.log.compaction import CompactionLimits
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.storage.segment.segment import SegmentLimits
from sharegroup.testing.power_loss import PowerLossDisk
from sharegroup.wire.batches.batches import scan
from sharegroup.wire.batches.markers import encode_marker
from sharegroup.wire.batches.records import SimpleRecord, batch_records, encode_batch

SEEDS = int(os.environ.get("SHAREGROUP_COMPACTION_SEEDS", "1"))
TOPIC = TopicId(UUID(int=5))
KEY = TopicIdPartition(TOPIC, 0)
SEGMENT_BYTES = 400
DELETE_RETENTION_MS = 1_000
PRODUCER = 31
RETAINED_FROM = 9
KEYS = 5
FOR_EVER = 1 << 60
RECORDS = 40


@dataclass
class Written:
    """What is in the log when compaction begins; by offset."""

    records: dict[int, tuple[bytes, bytes | None]] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)
    end: int = 0

    def newest(self) -> dict[bytes, tuple[int, bytes | None]]:
        found: dict[bytes, tuple[int, bytes | None]] = {}
        for offset, (key, value) in sorted(self.records.items()):
            if offset not in self.aborted:
                found[key] = (offset, value)
        return found


class Life:
    """One disk from the first write to the last look."""

    def __init__(self, seed: int) -> None:
        self.disk = PowerLossDisk(seed)
        self.now_ms = 1_000_000
        self.written = Written()

    def open(self) -> tuple[LogDirectory, PartitionLog]:
        directory = LogDirectory.open("/top/data", files=self.disk, wall_ms=lambda: self.now_ms)
        limits = SegmentLimits(bytes=SEGMENT_BYTES, ms=1 << 40)
        return directory, directory.create(TOPIC, 0, limits=limits)

    async def write(self, directory: LogDirectory, log: PartitionLog) -> None:
        """Values, tombstones, and in between what an aborted transaction wrote."""
        sequence = 0
        for number in range(RECORDS):
            key = b"key-%d" % (number % KEYS)
            # The first key ends with a tombstone.
            is_deleted = number % KEYS == 0 and number >= RECORDS - KEYS
            value = None if is_deleted else b"value-%d" % number
            is_aborted = number % 8 in (5, 6)
            batch = encode_batch(
                [SimpleRecord(key, value, self.now_ms)],
                **(transactional(sequence) if is_aborted else {}),
            )
            sequence += is_aborted
            ticket = log.append(batch, now_ms=self.now_ms)
            self.written.records[ticket.base_offset] = (key, value)
            if is_aborted:
                self.written.aborted.add(ticket.base_offset)
            if number % 8 == 7:
                marker = encode_marker(
                    is_commit=False, producer_id=PRODUCER, producer_epoch=0, timestamp=self.now_ms
                )
                await log.append(marker, now_ms=self.now_ms)
            await ticket
        self.written.end = log.end_offset
        log.roll()
        await log.append(encode_batch([SimpleRecord(b"z", b"z", 1)]), now_ms=self.now_ms)
        self.written.records[self.written.end] = (b"z", b"z")
        await directory.checkpoint()

    async def clean(self, directory: LogDirectory, log: PartitionLog) -> None:
        """Two passes and a look of retention; what fails is left for the next time."""
        for later_ms in (0, DELETE_RETENTION_MS + 1):
            self.now_ms += later_ms
            found = log.compactable(now_ms=self.now_ms, lag_ms=0)
            await directory.compact(log, found, LIMITS)
        await directory.delete_before({KEY: RETAINED_FROM})
        await directory.drain()

    def check(self, log: PartitionLog, *, tombstones_may_go: bool) -> dict[int, bytes | None]:
        """The records that a reader of committed records gets, by offset."""
        start = log.start_offset
        assert start in (0, RETAINED_FROM)
        assert log.end_offset == log.last_stable_offset == self.written.end + 1
        found = committed(log)
        for offset, (key, value) in found.items():
            assert self.written.records[offset] == (key, value)
            assert offset not in self.written.aborted
        newest = self.written.newest()
        for key, (offset, value) in newest.items():
            if value is not None or not tombstones_may_go:
                assert offset in found, f"{key!r} at {offset} is lost"
            elif offset not in found:
                there = [other for other, (name, _) in found.items() if name == key]
                assert not there, f"{key!r} is back at {there}"
        return {offset: value for offset, (_, value) in found.items()}


LIMITS = CompactionLimits(
    memory_bytes=1 << 20, delete_retention_ms=DELETE_RETENTION_MS, segment_bytes=3 * SEGMENT_BYTES
)


def transactional(sequence: int) -> dict[str, int]:
    return {
        "producer_id": PRODUCER,
        "producer_epoch": 0,
        "base_sequence": sequence,
        "is_transactional": True,
    }


def committed(log: PartitionLog) -> dict[int, tuple[bytes | None, bytes | None]]:
    """As a reader of committed records does it, with the list of aborted transactions."""
    found: dict[int, tuple[bytes | None, bytes | None]] = {}
    offset = log.start_offset
    while offset < log.high_watermark:
        data = log.read(offset, bytes_max=1 << 20)
        aborted = log.aborted_transactions(offset, log.last_stable_offset)
        for position, header in scan(data):
            assert header.end_offset > offset
            is_aborted = any(
                producer == header.producer_id and first <= header.base_offset < last
                for producer, first, last in aborted
            )
            if not header.is_control and not (header.is_transactional and is_aborted):
                for record in batch_records(data, position, header, check_crc=True):
                    if record.offset >= log.start_offset:
                        found[record.offset] = (record.key, record.value)
            offset = header.end_offset
    return found


async def lived(seed: int, power_left: int | None, *, is_killed: bool = False) -> tuple[Life, int]:
    """A life whose power goes after so many operations of cleaning; how many there were.

    ``is_killed``: the process is killed then, and what it wrote stays.
    """
    life = Life(seed)
    directory, log = life.open()
    await life.write(directory, log)
    before = life.disk.operations
    if power_left is not None:
        life.disk.cut_power_after(power_left)
    try:
        await life.clean(directory, log)
    except (KafkaError, OSError):
        assert power_left is not None
    operations = life.disk.operations - before
    directory.abandon()
    if is_killed:
        life.disk.cut_power_after(FOR_EVER)
        life.disk.release_locks()
    else:
        life.disk.cut_power()
    return life, operations


@pytest.mark.slow
@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_power_loss_does_not_damage_a_compacted_log(seed: int, is_killed: bool) -> None:
    async def main() -> None:
        life, operations = await lived(seed, None)
        _, log = life.open()
        expected = life.check(log, tombstones_may_go=True)
        assert log.start_offset == RETAINED_FROM
        for power_left in range(operations):
            life, _ = await lived(seed, power_left, is_killed=is_killed)
            directory, log = life.open()
            life.check(log, tombstones_may_go=True)
            for _ in range(2):
                life.now_ms += DELETE_RETENTION_MS + 1
                await life.clean(directory, log)
            assert life.check(log, tombstones_may_go=True) == expected, power_left
            await directory.close()

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(2 * SEEDS))
def test_power_loss_during_recovery_damages_nothing(seed: int) -> None:
    async def main() -> None:
        _, operations = await lived(seed, None)
        for power_left in range(seed % 3, operations, 3):
            life, _ = await lived(seed, power_left)
            for recovery_left in range(12):
                life.disk.cut_power_after(recovery_left)
                with contextlib.suppress(KafkaError, OSError):
                    directory, _ = life.open()
                    directory.abandon()
                life.disk.cut_power()
            _, log = life.open()
            life.check(log, tombstones_may_go=True)

    asyncio.run(main())


@pytest.mark.slow
def test_disk_failure_does_not_damage_a_log_that_is_compacted_again() -> None:
    """The disk fails at one operation and works again, and the same process continues."""

    async def main() -> None:
        _, operations = await lived(1, None)
        expected = None
        for works_for in range(operations, -1, -1):
            life = Life(1)
            directory, log = life.open()
            await life.write(directory, log)
            life.disk.cut_power_after(works_for)
            with contextlib.suppress(KafkaError):
                await life.clean(directory, log)
            await directory.drain()
            life.disk.cut_power_after(FOR_EVER)
            life.check(log, tombstones_may_go=True)
            for _ in range(2):
                life.now_ms += DELETE_RETENTION_MS + 1
                await life.clean(directory, log)
            await directory.close()
            life.disk.cut_power()
            _, log = life.open()
            found = life.check(log, tombstones_may_go=True)
            expected = found if expected is None else expected
            assert found == expected, works_for

    asyncio.run(main())


def test_full_disk_does_not_damage_a_compacted_log() -> None:
    async def main() -> None:
        life, _ = await lived(1, None)
        _, log = life.open()
        expected = life.check(log, tombstones_may_go=True)
        for room_bytes in range(0, 3_000, 61):
            life = Life(1)
            directory, log = life.open()
            await life.write(directory, log)
            life.disk.fill_up(room_bytes)
            with contextlib.suppress(KafkaError):
                await life.clean(directory, log)
            await directory.drain()
            life.check(log, tombstones_may_go=True)
            life.disk.make_room()
            for _ in range(2):
                life.now_ms += DELETE_RETENTION_MS + 1
                await life.clean(directory, log)
            assert life.check(log, tombstones_may_go=True) == expected, room_bytes
            await directory.close()

    asyncio.run(main())
