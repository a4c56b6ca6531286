"""A wall clock that jumps ahead deletes nothing; one that stays ahead does, a while later."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from sharegroup.client import AdminClient, Consumer, Producer, TopicPartition as ClientPartition
from sharegroup.testing import TestBroker, broker
from tests.integration.broker.test_cleaning import TOPIC, filled, passed
from tests.integration.broker.test_lock_expiry import WallJumps

YEAR_MS = 365 * 24 * 3_600_000
CHECK_SECONDS = 60.5
SETTINGS = {
    "log.segment.bytes": "1024",
    "log.retention.check.interval.ms": "60000",
    "offsets.retention.check.interval.ms": "60000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "60000",
}
EVERYTHING = {"records": 10, "offset": 7, "producers": 1, "transactional ids": 1}
NOTHING = {"records": 0, "offset": None, "producers": 0, "transactional ids": 0}


async def fill(running: TestBroker) -> None:
    """Records, a committed offset, idempotent producers and a transactional id."""
    log = await filled(running, retention_ms="3600000")
    servers = running.bootstrap_servers
    till = Producer(bootstrap_servers=servers, transactional_id="till-1")
    async with till, till.transaction():
        pass
    async with Consumer(bootstrap_servers=servers, group_id="g") as consumer:
        partition = ClientPartition(TOPIC, 0)
        consumer.assign([partition])
        await consumer.commit({partition: 7})
    assert log.end_offset == 10


async def left(running: TestBroker) -> Mapping[str, int | None]:
    log = running.running.parts.topics.named(TOPIC, 0)[1]
    partition, servers = ClientPartition(TOPIC, 0), running.bootstrap_servers
    async with Consumer(bootstrap_servers=servers, group_id="g") as consumer:
        committed = (await consumer.committed([partition]))[partition]
    async with AdminClient(bootstrap_servers=servers) as admin:
        transactions = await admin.list_transactions()
    return {
        "records": log.end_offset - log.start_offset,
        "offset": None if committed is None else committed.offset,
        "producers": len(log.producers),
        "transactional ids": len(transactions),
    }


def phases(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Of the lines about jumps since the last look, which are warnings that say what to do."""
    texts = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    caplog.clear()
    found = (re.match(r"event=clock_jump phase=(\w+) .*reason='.+'", text) for text in texts)
    return [match[1] for match in found if match is not None]


def test_year_ahead_for_some_checks_deletes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        clock = WallJumps()
        async with broker(SETTINGS, data=str(tmp_path), clock=clock) as running:
            await fill(running)
            await passed(running, clock, CHECK_SECONDS)
            clock.jump_ms = YEAR_MS
            # The check of the producers' states is the rarest one.
            for _ in range(11):
                await passed(running, clock, CHECK_SECONDS)
            assert phases(caplog) == ["began"]
            assert await left(running) == EVERYTHING
            clock.jump_ms = 0
            await passed(running, clock, CHECK_SECONDS)
            assert phases(caplog) == ["over"]
            assert await left(running) == EVERYTHING

    asyncio.run(main())


def test_clock_that_stays_ahead_is_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        clock = WallJumps()
        async with broker(SETTINGS, data=str(tmp_path), clock=clock) as running:
            await fill(running)
            clock.jump_ms = YEAR_MS
            for _ in range(21):
                await passed(running, clock, CHECK_SECONDS)
            assert phases(caplog) == ["began", "believed"]
            assert await left(running) == NOTHING

    asyncio.run(main())


@pytest.mark.parametrize("is_corrected", [True, False])
def test_start_with_a_clock_ahead_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, is_corrected: bool
) -> None:
    """At boot the clock is wrong until a time server answers; else the broker was stopped long."""

    async def main() -> None:
        async with broker(SETTINGS, data=str(tmp_path), clock=WallJumps()) as running:
            await fill(running)
        clock = WallJumps()
        clock.jump_ms = YEAR_MS
        async with broker(SETTINGS, data=str(tmp_path), clock=clock) as running:
            await passed(running, clock, CHECK_SECONDS)
            assert await left(running) == EVERYTHING
            if is_corrected:
                clock.jump_ms = 0
            for _ in range(21):
                await passed(running, clock, CHECK_SECONDS)
            assert phases(caplog) == ["began", "over" if is_corrected else "believed"]
            assert await left(running) == (EVERYTHING if is_corrected else NOTHING)

    asyncio.run(main())
