"""Records that wait in retry topics: in time, by one owner, over crashes; on either broker."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from sharegroup.client import Producer
from sharegroup.dead_letters.story import RecordOrigin
from sharegroup.dead_letters.story_headers import story_of
from sharegroup.errors import NotLeaderOrFollower
from sharegroup.wire.batches.records import DecodedRecord
from tests.integration.worker.conftest import SETTINGS
from tests.integration.worker.dead import lying_in, make_topics, until_there
from tests.integration.worker.scheduling import (
    WallClock,
    make_tiers,
    postponing,
    process,
    scheduling,
)
from tests.support.chosen_broker import KAFKA, RunningBroker, chosen, running
from tests.support.limits import HANGING_SECONDS

IS_KAFKA = chosen() == KAFKA


def late_ms(record: DecodedRecord) -> int:
    """How long after its time it was written, by the broker's clock, which is ours here."""
    due_ms = story_of(record.headers).due_ms
    assert due_ms is not None
    return int(record.timestamp) - due_ms


def allowed_ms(delay_ms: int) -> int:
    """What is promised: 10 % or 100 ms.  The rest is this machine's, when others use it too."""
    return max(delay_ms // 10, 100) + 150


async def send(bootstrap: str, group: str, *delays_ms: int, key: bool = False) -> None:
    """Records that say in their value what their delay is."""
    async with postponing(bootstrap, group) as postponer:
        now_ms = WallClock().wall_ms()
        writes = [
            postponer.send_later(
                "orders",
                b"%d" % delay_ms,
                key=b"%d" % number if key else None,
                due_ms=now_ms + delay_ms,
            )
            for number, delay_ms in enumerate(delays_ms)
        ]
        for write in writes:
            await write


async def leaders_elected(bootstrap: str, topic: str) -> None:
    """Kafka's port is open before its partitions have leaders."""
    async with asyncio.timeout(HANGING_SECONDS):
        while True:
            try:
                await lying_in(bootstrap, topic)
            except NotLeaderOrFollower:
                await asyncio.sleep(0.2)
            else:
                return


@pytest.mark.slow
def test_records_are_moved_after_their_delays(bootstrap: str, group: str) -> None:
    delays_ms = [50, 150, 200, 450, 1_000, 1_300, 2_500, 3_000]

    async def run() -> None:
        await make_tiers(bootstrap, group)
        async with scheduling(bootstrap, group):
            await send(bootstrap, group, 10)  # The first record waits for metadata.
            await until_there(bootstrap, f"{group}.retry", 1)
            await send(bootstrap, group, *delays_ms)
            records = await until_there(bootstrap, f"{group}.retry", 1 + len(delays_ms))
        late = {
            int(record.value or b""): late_ms(record) for record in records if record.value != b"10"
        }
        assert sorted(late) == delays_ms
        assert all(0 <= late[delay] <= allowed_ms(delay) for delay in late), late

    asyncio.run(run())


def test_odd_delay_walks_down_three_tiers_and_arrives_with_its_story(
    bootstrap: str, group: str
) -> None:
    async def run() -> None:
        await make_tiers(bootstrap, group)
        async with scheduling(bootstrap, group):
            await send(bootstrap, group, 4_330)
            (record,) = await until_there(bootstrap, f"{group}.retry", 1)
        for tier, count in {"3s": 1, "1s": 1, "200ms": 1, "due": 1}.items():
            assert len(await lying_in(bootstrap, f"{group}.retry.{tier}")) == count, tier
        assert 0 <= late_ms(record) <= allowed_ms(4_330)
        origin = story_of(record.headers).origin
        assert origin is not None
        assert origin == RecordOrigin("orders", -1, -1, origin.timestamp_ms)

    asyncio.run(run())


def test_groups_of_one_topic_have_separate_retries(bootstrap: str, group: str, topic: str) -> None:
    async def run() -> None:
        group_one, other = f"{group}.one", f"{group}.other"
        await make_topics(bootstrap, topic)
        await make_tiers(bootstrap, group_one, other)
        async with scheduling(bootstrap, group_one), scheduling(bootstrap, other):
            async with Producer(bootstrap_servers=bootstrap) as producer:
                await producer.send_and_wait(topic, b"original")
            await send(bootstrap, group_one, 300)
            await send(bootstrap, other, 250)
            (first,) = await until_there(bootstrap, f"{group_one}.retry", 1)
            (second,) = await until_there(bootstrap, f"{other}.retry", 1)
        assert (first.value, second.value) == (b"300", b"250")
        assert [record.value for record in await lying_in(bootstrap, topic)] == [b"original"]

    asyncio.run(run())


@pytest.mark.slow
def test_rebalances_repeat_no_record_and_delay_little(bootstrap: str, group: str) -> None:
    delays_ms = list(range(500, 3_500, 10))

    async def run() -> None:
        await make_tiers(bootstrap, group)
        async with scheduling(bootstrap, group):
            await send(bootstrap, group, *delays_ms, key=True)
            async with scheduling(bootstrap, group):
                await asyncio.sleep(0)
            records = await until_there(bootstrap, f"{group}.retry", len(delays_ms))
            await asyncio.sleep(0.3)
            records = await lying_in(bootstrap, f"{group}.retry")
        assert Counter(record.value for record in records).most_common(1)[0][1] == 1
        assert len(records) == len(delays_ms)
        assert min(map(late_ms, records)) >= 0
        assert max(map(late_ms, records)) <= 3_000, "twice a heartbeat and an exchange, at most"

    asyncio.run(run())


async def moved_after_a_kill(
    bootstrap: str, group: str, delays_ms: list[int]
) -> list[DecodedRecord]:
    """Send records to two processes, kill one of them, and return the records that come back."""
    await make_tiers(bootstrap, group)
    with process(bootstrap, group) as victim:
        async with scheduling(bootstrap, group) as scheduler:
            async with asyncio.timeout(HANGING_SECONDS):
                while len(scheduler.snapshot()) != 4:  # It has half of them.
                    await asyncio.sleep(0.02)
            await send(bootstrap, group, *delays_ms, key=True)
            victim.kill()
            return await until_there(bootstrap, f"{group}.retry", len(delays_ms))


@pytest.mark.slow
def test_records_of_a_killed_process_are_moved_within_the_session_timeout(
    bootstrap: str, group: str
) -> None:
    delays_ms = [1_000 + number for number in range(40)]

    async def run() -> None:
        records = await moved_after_a_kill(bootstrap, group, delays_ms)
        counts = Counter(int(record.value or b"") for record in records)
        assert sorted(counts) == delays_ms
        assert max(map(late_ms, records)) <= 2_000, (
            "within 3 s of the kill; they were due after 1 s"
        )

    asyncio.run(run())


@pytest.mark.slow
def test_waiting_records_survive_the_end_of_every_process(tmp_path: Path, group: str) -> None:
    delays_ms = [1_500, 3_000, 4_000]

    async def before(bootstrap: str) -> None:
        await make_tiers(bootstrap, group)
        with process(bootstrap, group) as victim:
            await send(bootstrap, group, *delays_ms)
            await until_there(bootstrap, f"{group}.retry.3s", 2)
            victim.kill()

    async def after(bootstrap: str) -> None:
        async with scheduling(bootstrap, group):
            records = await until_there(bootstrap, f"{group}.retry", len(delays_ms))
        assert sorted(int(record.value or b"") for record in records) == delays_ms
        assert min(map(late_ms, records)) >= 0

    with running(chosen(), tmp_path, SETTINGS) as broker:
        asyncio.run(before(broker.bootstrap_servers))
        broker.kill()
        broker.start()
        asyncio.run(after(broker.bootstrap_servers))


@pytest.mark.slow
def test_scheduler_reconnects_to_a_restarted_broker(tmp_path: Path, group: str) -> None:
    async def run(broker: RunningBroker) -> None:
        bootstrap = broker.bootstrap_servers
        await make_tiers(bootstrap, group)
        async with scheduling(bootstrap, group):
            await send(bootstrap, group, 1_000, 4_000)
            broker.kill()
            await asyncio.sleep(1.5)
            await asyncio.to_thread(broker.start)
            await leaders_elected(bootstrap, f"{group}.retry")
            await until_there(bootstrap, f"{group}.retry", 2)

    with running(chosen(), tmp_path, SETTINGS) as broker:
        asyncio.run(run(broker))


@pytest.mark.slow
def test_session_is_the_shortest_that_a_broker_with_kafkas_defaults_allows(
    tmp_path: Path, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    delays_ms = [1_000 + number for number in range(40)]

    async def run(bootstrap: str) -> None:
        records = await moved_after_a_kill(bootstrap, group, delays_ms)
        assert sorted(int(record.value or b"") for record in records) == delays_ms
        assert max(map(late_ms, records)) <= 7_000, "within 8 s of the kill; due after 1 s"

    caplog.set_level("INFO", logger="sharegroup")
    with running(chosen(), tmp_path, {"group.min.session.timeout.ms": "6000"}) as broker:
        asyncio.run(run(broker.bootstrap_servers))
    assert "session_ms=6000 before=2000 reason=" in caplog.text


@pytest.mark.skipif(IS_KAFKA, reason="the same code, and a topic less is the same there")
def test_tiers_that_are_made_later_are_found(bootstrap: str, group: str) -> None:
    async def run() -> None:
        await make_topics(bootstrap, f"{group}.retry", f"{group}.retry.due")
        async with scheduling(bootstrap, group):
            await make_tiers(bootstrap, group)
            await send(bootstrap, group, 1_000)
            await until_there(bootstrap, f"{group}.retry", 1)

    asyncio.run(run())
