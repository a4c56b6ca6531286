"""Batches and data directories for the storage tests."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any
from uuid import UUID

from sharegroup.ids import TopicId
from sharegroup.storage.log_directory import LogDirectory
from sharegroup.storage.partition_log import PartitionLog
from sharegroup.storage.parts import Durability
from sharegroup.storage.segment import SegmentLimits
from sharegroup.testing.power_loss import PowerLossDisk
from sharegroup.wire.markers import encode_marker
from sharegroup.wire.records import encode_batch

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


def open_directory(disk: PowerLossDisk, durability: Durability = Durability.FSYNC) -> LogDirectory:
    return LogDirectory.open(ROOT, durability=durability, wall_ms=lambda: NOW_MS, files=disk)


def open_log(
    disk: PowerLossDisk,
    durability: Durability = Durability.FSYNC,
    *,
    segment_bytes: int = 1 << 30,
) -> tuple[LogDirectory, PartitionLog]:
    directory = open_directory(disk, durability)
    return directory, directory.create(TOPIC, 0, limits=limits(segment_bytes))


def limits(segment_bytes: int, *, ms: int = 604_800_000) -> SegmentLimits:
    return SegmentLimits(bytes=segment_bytes, ms=ms)


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine; one that hangs fails after five seconds."""

    async def limited() -> None:
        async with asyncio.timeout(5):
            await main

    asyncio.run(limited())
