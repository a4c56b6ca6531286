"""Losses of power under logs and a journal that are being written in ``fsync`` mode.

Three logs with small segments, a journal and checkpoints are busy at the same time on a disk
that loses what was not synced (`PowerLossDisk`).  At an operation drawn from the seed the power
goes, or the process is killed: then the system still has what was not synced, and the next
process must not build on it as if the disk had it.  That happens four times in a life of the
disk.  After each, everything that was promised must be there, byte for byte, at the offset that
was promised, and so must be all that could be read since; a retry of the last batch of an
idempotent producer must be recognised; and offsets must not go back below what was promised.

A failure names its seed; ``pytest -k 'seed[123]'`` runs it again.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from sharegroup.errors import KafkaError
from sharegroup.ids import TopicId
from sharegroup.storage.directory.log_directory import LogDirectory
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.storage.segment.segment import SegmentLimits
from sharegroup.testing.power_loss import PowerLossDisk
from sharegroup.wire.batches.batches import parse_header
from sharegroup.wire.batches.records import encode_batch
from tests.support.limits import ALL_DAMAGE, HANGING_SECONDS
from tests.unit.storage.logs import probing_at_once

SEEDS = 300 if ALL_DAMAGE else 100
ENDS = 4
KILLED = 0.4
"""How many of the ends are those of the process only."""
NEVER = 1 << 60
LOGS = 3
PRODUCER = 77
LIMITS = SegmentLimits(bytes=3000, ms=604_800_000)
TOPICS = [TopicId(UUID(int=number + 1)) for number in range(LOGS)]


@dataclass
class Promised:
    """What was answered as durable, or could be read by anybody."""

    batches: list[dict[int, bytes]] = field(default_factory=lambda: [{} for _ in range(LOGS)])
    starts: list[int] = field(default_factory=lambda: [0] * LOGS)
    payloads: list[bytes] = field(default_factory=list)
    sequences: list[int] = field(default_factory=lambda: [0] * LOGS)
    last: list[tuple[int, bytes] | None] = field(default_factory=lambda: [None] * LOGS)
    """(base offset, batch) that the idempotent producer had confirmed last."""


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_that_was_promised_is_lost(seed: int) -> None:
    async def limited() -> None:
        async with asyncio.timeout(HANGING_SECONDS):
            await live_and_die(seed)

    asyncio.run(limited())


async def live_and_die(seed: int) -> None:
    chance, disk, promised = random.Random(seed), PowerLossDisk(seed), Promised()
    for _ in range(ENDS):
        # Of the first operations many are those of opening.
        disk.cut_power_after(chance.choice((chance.randrange(1, 20), chance.randrange(20, 200))))
        await live(disk, promised, chance)
        if chance.random() < KILLED:
            disk.release_locks()
            disk.cut_power_after(NEVER)  # What came after that operation never happened.
        else:
            disk.cut_power()
    disk.cut_power()
    directory, logs = opened(disk)
    check(promised, logs, directory.journal("catalog").payloads())
    await directory.close()


async def live(disk: PowerLossDisk, promised: Promised, chance: random.Random) -> None:
    """One process, until nothing it does reaches the disk."""
    try:
        directory, logs = opened(disk)
        journal = directory.journal("catalog")
    except (OSError, KafkaError):
        assert not disk.has_power
        return
    if disk.has_power:
        check(promised, logs, journal.payloads())
        await asyncio.gather(
            *(produce(disk, log, number, promised, chance) for number, log in enumerate(logs)),
            keep_journal(disk, journal, promised),
            move_recovery_points(disk, directory, chance),
            delete_records(disk, logs, promised, chance),
        )
    directory.abandon()


def opened(disk: PowerLossDisk) -> tuple[LogDirectory, list[PartitionLog]]:
    directory = LogDirectory.open(
        "/top/data", files=disk, wall_ms=lambda: 1, syncer=probing_at_once
    )
    return directory, [directory.create(topic, 0, limits=LIMITS) for topic in TOPICS]


async def delete_records(
    disk: PowerLossDisk, logs: list[PartitionLog], promised: Promised, chance: random.Random
) -> None:
    """Now and then a log begins where one of its batches does, or at its end."""
    while disk.has_power:
        for _ in range(chance.randrange(1, 20)):
            await asyncio.sleep(0)
        number = chance.randrange(LOGS)
        offsets = [
            batch for batch in promised.batches[number] if batch >= logs[number].start_offset
        ]
        offsets.append(logs[number].high_watermark)
        try:
            promised.starts[number] = await logs[number].delete_before(chance.choice(offsets))
        except KafkaError:
            await asyncio.sleep(0)


async def produce(
    disk: PowerLossDisk, log: PartitionLog, number: int, promised: Promised, chance: random.Random
) -> None:
    """One idempotent producer per log; what fails is sent again as it was."""
    while disk.has_power:
        sequence, count = promised.sequences[number], chance.randrange(1, 4)
        value = chance.randbytes(chance.randrange(900))
        records = [(None, value, 1, ()) for _ in range(count)]
        data = encode_batch(records, producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence)
        for _ in attempts(disk):
            try:
                ticket = log.append(data, now_ms=1)
                await ticket
            except KafkaError:
                await asyncio.sleep(0)
                continue
            promised.batches[number][ticket.base_offset] = bytes(data)
            promised.sequences[number] = sequence + count
            promised.last[number] = (ticket.base_offset, bytes(data))
            break


def attempts(disk: PowerLossDisk) -> Iterator[int]:
    return itertools.takewhile(lambda _: disk.has_power, itertools.count())


async def keep_journal(disk: PowerLossDisk, journal, promised: Promised) -> None:
    for number in attempts(disk):
        payload = b"%d-%d" % (len(promised.payloads), number)
        try:
            await journal.append(payload)
            promised.payloads.append(payload)
        except KafkaError:
            await asyncio.sleep(0)


async def move_recovery_points(
    disk: PowerLossDisk, directory: LogDirectory, chance: random.Random
) -> None:
    while disk.has_power:
        await directory.checkpoint()
        for _ in range(chance.randrange(1, 6)):
            await asyncio.sleep(0)


def check(promised: Promised, logs: list[PartitionLog], payloads: Sequence[bytes]) -> None:
    for number, log in enumerate(logs):
        assert log.start_offset >= promised.starts[number], f"log {number}"
        promised.starts[number] = log.start_offset
        for offset, data in promised.batches[number].items():
            if offset < log.start_offset:
                continue
            assert log.read(offset, bytes_max=1) == data, f"log {number} offset {offset}"
        last = promised.last[number]
        if last is not None:
            base_offset, data = last
            ticket = log.append(bytearray(data), now_ms=1)
            assert (ticket.is_duplicate, ticket.base_offset) == (True, base_offset)
        promised.sequences[number] = next_sequence(log)
        promised.batches[number].update(readable(log))
    # Payloads that were written but not confirmed may stand in between.
    found = iter(payloads)
    assert all(payload in found for payload in promised.payloads), "a journal payload is lost"
    promised.payloads[:] = payloads


def readable(log: PartitionLog) -> Iterator[tuple[int, bytes]]:
    """All batches by their base offsets."""
    offset = log.start_offset
    while offset < log.high_watermark:
        data = log.read(offset, bytes_max=1)
        yield offset, data
        offset = parse_header(data).last_offset + 1


def next_sequence(log: PartitionLog) -> int:
    """What the producer goes on with: a batch it had no answer for may be there after all."""
    for entry in dict(log.producers.items()).values():
        return entry.batches[-1].last_sequence + 1
    return 0
