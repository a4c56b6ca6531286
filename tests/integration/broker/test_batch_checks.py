"""Share groups pass over a batch that nobody can read, however many records it claims, at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from sharegroup.broker.share.batch_checks import LARGE_BATCH_RECORDS, THIN_BATCH_RECORDS
from sharegroup.errors import CorruptMessage
from sharegroup.ids import TopicName
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.wire.batches.batches import Writable
from sharegroup.wire.batches.compression import ZSTD, compress
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.faults.in_process import REJECT, Broker, ShareMember
from tests.integration.broker.test_produce_checks import lying_batch
from tests.integration.broker.test_record_jobs import KEYED, sealed
from tests.integration.broker.test_share_fetch import run
from tests.support.observed_calls import observed_calls

Scenario = Callable[[Broker, ShareMember], Awaitable[None]]
CLAIMED = 2**31 - 1
SOUND = [SimpleRecord(None, b"sound", 0)]


async def append(broker: Broker, batch: Writable) -> None:
    """Write a batch to the log as a broker did that did not look at claims."""
    log = broker.running.parts.topics.named(TopicName("orders"), 0)[1]
    await log.append(batch, now_ms=0)


def repeated(count: int) -> bytearray:
    """A compressed batch that holds what it claims, but all its records have the same offset."""
    batch = lying_batch(count, compress(ZSTD, KEYED * count))
    batch[21:23] = ZSTD.to_bytes(2, "big")
    return sealed(batch)


def cut_off(count: int) -> bytearray:
    """A compressed batch of sound records whose last bytes are missing."""
    batch = encode_batch([SimpleRecord(None, b"v", 0)] * count, codec=ZSTD)
    return sealed(batch[:-20])


async def take_sound(broker: Broker, member: ShareMember, offset: int) -> None:
    """Take the one sound record with few fetches."""
    for _ in range(5):
        taken, _ = await member.fetch(broker, records_max=500, wait_ms=0)
        if taken:
            assert [(record.offset, record.value) for record in taken] == [(offset, b"sound")]
            return
        await idle(broker)
    raise AssertionError("five fetches did not find the sound record")


async def idle(broker: Broker) -> None:
    """Wait until no batch is being checked."""
    checks = broker.running.parts.share_partitions.batch_checks
    while checks._tasks:
        await asyncio.wait(tuple(checks._tasks))


@pytest.mark.parametrize(
    "bad",
    [
        lambda: lying_batch(CLAIMED),
        lambda: lying_batch(CLAIMED, bytes(100_000)),
        lambda: repeated(50_000),
        lambda: cut_off(LARGE_BATCH_RECORDS + 1),
        lambda: cut_off(THIN_BATCH_RECORDS + 1),
    ],
    ids=["69 bytes", "100 KB", "equal offsets", "cut off", "thin"],
)
def test_unreadable_batch_is_passed_over_in_few_fetches(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, bad: Callable[[], bytearray]
) -> None:
    """The attack: a 69-byte batch that claims 2^31-1 records stood before its partition for 329
    days, 75 offsets a second."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        batch = bad()
        await append(broker, batch)
        count = int.from_bytes(batch[57:61], "big")
        await append(broker, encode_batch(SOUND))
        with caplog.at_level(logging.WARNING):
            await take_sound(broker, member, count)
        events = [
            record for record in caplog.records if "event=records_unreadable" in record.getMessage()
        ]
        assert len(events) == 1
        assert f"first=0 end={count} " in events[0].getMessage()
        [live] = broker.running.parts.share_partitions
        assert live.state.start_offset == count
        assert live.state.snapshot().run_count == 1
        checks = broker.running.parts.share_partitions.batch_checks
        assert (checks.unreadable_count, checks.archived_count) == (1, count)

    run(scenario, tmp_path)


def test_batches_before_an_unreadable_one_are_delivered_first(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await append(broker, encode_batch(SOUND))
        await append(broker, lying_batch(CLAIMED))
        await append(broker, encode_batch(SOUND))
        await take_sound(broker, member, 0)
        await take_sound(broker, member, CLAIMED + 1)

    run(scenario, tmp_path)


def test_large_sound_batch_is_delivered(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await append(
            broker, encode_batch([SimpleRecord(None, b"v", 0)] * (LARGE_BATCH_RECORDS + 1))
        )
        assert await member.fetch(broker, records_max=500) == ([], {})
        await idle(broker)
        taken, _ = await member.fetch(broker, records_max=500)
        assert [record.offset for record in taken] == list(range(2_000))
        await member.acknowledge(broker, {0: [(offset, REJECT) for offset in range(2_000)]})
        taken, _ = await member.fetch(broker, records_max=500)
        assert taken[0].offset == 2_000
        assert broker.running.parts.record_jobs.job_count == 1, "it is read once"

    run(scenario, tmp_path)


def test_batch_with_more_bytes_than_records_is_delivered_unchecked(tmp_path: Path) -> None:
    """Batches of so many records are common under load; to read one takes 10 ms."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await append(broker, encode_batch([SimpleRecord(None, b"v", 0)] * LARGE_BATCH_RECORDS))
        taken, _ = await member.fetch(broker, records_max=500)
        assert taken[0].offset == 0
        assert broker.running.parts.record_jobs.job_count == 0

    run(scenario, tmp_path)


def test_each_batch_is_checked_once(tmp_path: Path) -> None:
    looked_at: list[int] = []
    count = THIN_BATCH_RECORDS + 1

    async def scenario(broker: Broker, member: ShareMember) -> None:
        for _ in range(2):
            await append(broker, encode_batch([SimpleRecord(None, b"v", 0)] * count))
        for number in range(3):
            taken, _ = await member.fetch(broker, records_max=500)
            assert taken
            await member.acknowledge(broker, {0: [(record.offset, REJECT) for record in taken]})
            if number == 1:
                await append(broker, encode_batch([SimpleRecord(None, b"v", 0)] * count))

    def note(arguments: Mapping[str, Any]) -> None:
        looked_at.append(arguments["offset"])

    with observed_calls(PartitionLog.bytes_from, note):
        run(scenario, tmp_path)
    assert looked_at == [0, count, 2 * count]


def test_group_in_the_middle_of_an_unreadable_batch_continues(tmp_path: Path) -> None:
    """Its members rejected parts of the batch before, under a broker without the check."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        checks = broker.running.parts.share_partitions.batch_checks
        jobs, checks.jobs = checks.jobs, None
        await append(broker, lying_batch(CLAIMED))
        await append(broker, encode_batch(SOUND))
        [live] = broker.running.parts.share_partitions
        with pytest.raises(CorruptMessage):
            await member.fetch(broker, records_max=500)  # The test's member decodes the answer.
        assert live.state.snapshot().acquired_count == 2_000
        await member.acknowledge(broker, {0: [(offset, REJECT) for offset in range(2_000)]})
        assert live.state.start_offset == 2_000
        checks.jobs = jobs
        await take_sound(broker, member, CLAIMED)

    run(scenario, tmp_path)
