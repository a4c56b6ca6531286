"""Batches and data directories for the storage tests."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any
from uuid import UUID

from sharegroup.ids import TopicId
from sharegroup.storage.directory.log_directory import LogDirectory
from sharegroup.storage.disk.files import Files
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.storage.parts import Durability
from sharegroup.storage.segment.segment import SegmentLimits
from sharegroup.storage.segment.timestamps import Allowance
from sharegroup.storage.sync.syncer import MakeSyncer, Syncer
from sharegroup.testing.power_loss import PowerLossDisk
from sharegroup.wire.batches.batches import scan
from sharegroup.wire.batches.markers import encode_marker
from sharegroup.wire.batches.record_walk import finish
from sharegroup.wire.batches.records import encode_batch
from tests.support.limits import HANGING_SECONDS

ROOT = "/disk/data"
TOPIC = TopicId(UUID(int=7))
FOLDER = f"{ROOT}/AAAAAAAAAAAAAAAAAAAABw-0"
NOW_MS = 1_700_000_000_000


def batch(count: int = 1, *, size: int = 10, timestamp: int = 1000, **producer: int) -> bytearray:
    """A batch of ``count`` records, each ``size`` bytes, one millisecond apart."""
    return encode_batch(
        [(None, bytes([65 + n % 26]) * size, timestamp + n, ()) for n in range(count)], **producer
    )


def transactional(
    count: int, *, producer: int, sequence: int = 0, epoch: int = 0, size: int = 10
) -> bytearray:
    """A batch of a producer's open transaction."""
    return encode_batch(
        [(b"key", bytes([65 + n % 26]) * size, 1000 + n, ()) for n in range(count)],
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


def commit(producer: int, *, epoch: int = 0, coordinator_epoch: int = 0) -> bytearray:
    """The marker that commits the producer's transaction."""
    return _marker(producer, epoch, coordinator_epoch, is_commit=True)


def abort(producer: int, *, epoch: int = 0, coordinator_epoch: int = 0) -> bytearray:
    """The marker that aborts the producer's transaction."""
    return _marker(producer, epoch, coordinator_epoch, is_commit=False)


def _marker(producer: int, epoch: int, coordinator_epoch: int, *, is_commit: bool) -> bytearray:
    return encode_marker(
        is_commit=is_commit,
        producer_id=producer,
        producer_epoch=epoch,
        timestamp=1000,
        coordinator_epoch=coordinator_epoch,
    )


def probing_at_once(files: Files, root: str) -> Syncer:
    """A syncer under which a fenced log probes its disk at every append."""
    return Syncer(files, root, probe_seconds=0.0)


def open_directory(
    disk: PowerLossDisk,
    durability: Durability = Durability.FSYNC,
    *,
    syncer: MakeSyncer = probing_at_once,
) -> LogDirectory:
    return LogDirectory.open(
        ROOT, durability=durability, wall_ms=lambda: NOW_MS, files=disk, syncer=syncer
    )


def open_log(
    disk: PowerLossDisk,
    durability: Durability = Durability.FSYNC,
    *,
    segment_bytes: int = 1 << 30,
    syncer: MakeSyncer = probing_at_once,
) -> tuple[LogDirectory, PartitionLog]:
    directory = open_directory(disk, durability, syncer=syncer)
    return directory, directory.create(TOPIC, 0, limits=limits(segment_bytes))


def limits(segment_bytes: int, *, ms: int = 604_800_000) -> SegmentLimits:
    return SegmentLimits(bytes=segment_bytes, ms=ms)


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine; one that hangs fails after five seconds."""

    async def limited() -> None:
        async with asyncio.timeout(HANGING_SECONDS):
            await main

    asyncio.run(limited())


def check_listed(log: PartitionLog, first: int, end: int) -> None:
    """Check that the batches listed are those that a read returns."""
    read = [
        (header.base_offset, header.end_offset, header.size, header.is_control)
        for _, header in scan(log.read_range(first, end))
    ]
    assert log.listed(first, end) == read


def found_at(log: PartitionLog, timestamp_ms: int) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record that is not older."""
    return finish(log.times.first_not_older(timestamp_ms, Allowance(2**26)))


def latest(log: PartitionLog) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record with the largest timestamp."""
    return finish(log.times.latest(Allowance(2**26)))
