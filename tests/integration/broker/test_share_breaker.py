"""The circuit breaker of a share group (``sharegroup.breaker.*``), on a clock moved by hand."""

from __future__ import annotations

import asyncio
import logging
from asyncio import wait_for
from datetime import timedelta
from pathlib import Path

import pytest

from sharegroup.ids import TopicName
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.storage.disk.folders import folder_name
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.faults.in_process import Broker, ShareMember
from tests.integration.broker.test_dead_letters import damage_batch
from tests.integration.broker.test_metrics import scrape
from tests.integration.broker.test_share_fetch import (
    alter_group,
    produce,
    records,
    request,
    run,
    waiting,
)
from tests.integration.broker.test_share_isolation import transactional, write
from tests.support.limits import HANGING_SECONDS
from tests.unit.storage.logs import commit

PERCENT = "sharegroup.breaker.failure.percent"
STOPPED = "sharegroup_share_group_delivery_stopped"
WINDOW = "sharegroup.breaker.window"
PAUSE_SECONDS = 30.0
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
GAP = AcknowledgeType.GAP


async def set_breaker(broker: Broker) -> None:
    """It opens when two of the last four records failed."""
    await alter_group(broker, WINDOW, "4")
    await alter_group(broker, PERCENT, "50")


async def offsets(broker: Broker, member: ShareMember) -> list[int]:
    """The offsets of what a member gets now."""
    taken, _ = await member.fetch(broker, records_max=10)
    return [record.offset for record in taken]


async def settle(broker: Broker, member: ShareMember, *acks: tuple[int, AcknowledgeType]) -> None:
    assert await member.acknowledge(broker, {0: acks}) == {0: 0}


async def closed(broker: Broker, member: ShareMember) -> None:
    """A breaker whose first probe, of offset 0, was accepted."""
    await set_breaker(broker)
    await produce(broker)
    assert await offsets(broker, member) == [0]
    await settle(broker, member, (0, ACCEPT))


def test_rejected_records_stop_delivery_until_a_probe_is_accepted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await closed(broker, member)
        await produce(broker, 10)
        taken, _ = await member.fetch(broker, records_max=3)
        held = [record.offset for record in taken]
        await settle(broker, member, (held[0], REJECT))

        with caplog.at_level(logging.WARNING):
            await settle(broker, member, (held[1], REJECT))
        assert "event=breaker_opened group='g'" in caplog.text
        for offset in held[2:]:
            await settle(broker, member, (offset, RELEASE))
        assert await offsets(broker, member) == []
        assert (await scrape(broker)).all(STOPPED) == {("g", "breaker"): 1}
        task = await waiting(broker, request(member))
        broker.clock.advance(0.5)
        assert records(await task) == []
        member.session_epoch += 1
        broker.clock.advance(PAUSE_SECONDS)
        (probe,) = await offsets(broker, member)
        assert await offsets(broker, member) == [], "one probe at a time"
        await settle(broker, member, (probe, ACCEPT))
        assert len(await offsets(broker, member)) > 1
        assert (await scrape(broker)).all(STOPPED) == {}

    run(scenario, tmp_path)


def test_probe_that_is_accepted_answers_a_waiting_fetch(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await set_breaker(broker)
        await produce(broker, 4)
        other = ShareMember("g", "member-2", "orders", 1, connection_id=2)
        assert await other.heartbeat(broker) == 0
        assert await offsets(broker, other) == [0], "a new breaker probes"
        task = await waiting(broker, request(member))
        assert not task.done()
        await settle(broker, other, (0, ACCEPT))
        assert records(await task) == [(1, 3, 1)]

    run(scenario, tmp_path)


def test_probe_that_finds_no_record_is_repeated_at_once(tmp_path: Path) -> None:
    """The ends of transactions have offsets, which members get and acknowledge as gaps."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await set_breaker(broker)
        await write(broker, transactional(71), commit(71), commit(71))
        await produce(broker)
        other = ShareMember("g", "member-2", "orders", 1, connection_id=2)
        assert await other.heartbeat(broker) == 0
        assert await offsets(broker, other) == [0]
        assert await other.acknowledge(broker, {0: [(0, RELEASE)]}) == {0: 0}
        broker.clock.advance(PAUSE_SECONDS)
        assert await offsets(broker, other) == [0]
        await settle(broker, other, (0, GAP))
        for marker in (1, 2):
            task = await waiting(broker, request(member))
            assert records(await wait_for(task, HANGING_SECONDS)) == [(marker, marker, 1)]
            member.session_epoch += 1
            await settle(broker, member, (marker, GAP))
        task = await waiting(broker, request(member))
        assert records(await wait_for(task, HANGING_SECONDS)) == [(3, 3, 1)]

    run(scenario, tmp_path)


def test_records_that_exhaust_their_deliveries_count_as_failed(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await alter_group(broker, "share.delivery.count.limit", "2")
        await closed(broker, member)
        await produce(broker, 2)
        await produce(broker, 2)
        for _ in range(2):
            assert {1, 2} <= set(await offsets(broker, member))
            broker.clock.advance(30.001)  # The locks end; the second time for good.
            assert await member.heartbeat(broker) == 0
        assert await offsets(broker, member) == []
        await produce(broker)
        assert await offsets(broker, member) == []
        broker.clock.advance(PAUSE_SECONDS)
        assert len(await offsets(broker, member)) == 1

    run(scenario, tmp_path)


def test_breaker_that_is_turned_off_delivers_again(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await closed(broker, member)
        await produce(broker, 8)
        held = await offsets(broker, member)
        await settle(broker, member, (held[0], REJECT), (held[1], REJECT))
        await produce(broker)
        task = await waiting(broker, request(member))
        assert not task.done()
        await alter_group(broker, PERCENT, "0")
        assert records(await task) == [(9, 9, 1)]
        assert not list(broker.running.parts.share_partitions.breakers)

    run(scenario, tmp_path)


def test_shorter_pause_lets_a_waiting_fetch_probe(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await closed(broker, member)
        await produce(broker, 3)
        await settle(
            broker, member, *((offset, REJECT) for offset in await offsets(broker, member))
        )
        await produce(broker)
        broker.clock.advance(1.0)
        task = await waiting(broker, request(member))
        assert not task.done()
        await alter_group(broker, "sharegroup.breaker.pause.ms", "1000")
        assert records(await wait_for(task, HANGING_SECONDS)) == [(4, 4, 1)]

    run(scenario, tmp_path)


def test_fetch_that_waits_for_long_gets_the_probe_when_the_pause_is_over(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await closed(broker, member)
        await produce(broker, 3)
        await settle(
            broker, member, *((offset, REJECT) for offset in await offsets(broker, member))
        )
        await produce(broker)
        task = await waiting(broker, request(member, max_wait=timedelta(minutes=5)))
        broker.clock.advance(PAUSE_SECONDS - 0.01)
        assert await offsets_of_another(broker) == []
        assert not task.done()
        broker.clock.advance(0.01)
        assert records(await wait_for(task, HANGING_SECONDS)) == [(4, 4, 1)]

    run(scenario, tmp_path)


async def offsets_of_another(broker: Broker) -> list[int]:
    member = ShareMember("g", "member-3", "orders", 1, connection_id=3)
    assert await member.heartbeat(broker) == 0
    return await offsets(broker, member)


def test_partitions_of_a_group_have_one_breaker(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = await Broker.start(None, str(tmp_path))
        try:
            await broker.create_topic("orders", 2)
            await alter_group(broker, "share.auto.offset.reset", "earliest")
            await set_breaker(broker)
            member = ShareMember("g", "member-1", "orders", 2, connection_id=1)
            assert await member.heartbeat(broker) == 0
            batch = encode_batch([SimpleRecord(None, b"x", 1)] * 2)
            for partition in (0, 1):
                assert (await broker.produce("orders", partition, batch))[0] == 0
            taken, _ = await member.fetch(broker, records_max=10)
            assert len(taken) == 1
        finally:
            await broker.stop()

    asyncio.run(scenario())


def test_probe_of_a_group_after_a_restart_is_one_record(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = await Broker.start(None, str(tmp_path))
        await broker.create_topic("orders", 1)
        await alter_group(broker, "share.auto.offset.reset", "earliest")
        member = ShareMember("g", "member-1", "orders", 1, connection_id=1)
        assert await member.heartbeat(broker) == 0
        await closed(broker, member)
        await produce(broker, 5)
        await broker.stop()
        broker = await Broker.start(None, str(tmp_path))
        try:
            member = ShareMember("g", "member-2", "orders", 1, connection_id=2)
            assert await member.heartbeat(broker) == 0
            assert await offsets(broker, member) == [1]
            await settle(broker, member, (1, ACCEPT))
            assert await offsets(broker, member) == [2, 3, 4, 5]
        finally:
            await broker.stop()

    asyncio.run(scenario())


def test_records_that_the_log_cannot_read_neither_open_nor_close_it(tmp_path: Path) -> None:
    """The disk damages the first two of four batches, which are archived after two deliveries."""

    async def scenario() -> None:
        broker = await Broker.start(None, str(tmp_path))
        await broker.create_topic("orders", 1)
        await alter_group(broker, "share.auto.offset.reset", "earliest")
        await alter_group(broker, "share.delivery.count.limit", "2")
        await set_breaker(broker)
        for _ in range(4):
            await produce(broker)
        await broker.running.directory.checkpoint()
        _, log = broker.running.parts.topics.named(TopicName("orders"), 0)
        await broker.crash()
        for number in (0, 1):
            damage_batch(
                tmp_path / folder_name(log.key) / "00000000000000000000.log", number=number
            )
        broker = await Broker.start(None, str(tmp_path))
        member = ShareMember("g", "member-1", "orders", 1, connection_id=1)
        assert await member.heartbeat(broker) == 0
        taken, asked = list[int](), 0
        while not taken:
            taken, asked = await offsets(broker, member), asked + 1
        assert (taken, asked) == ([2], 5), "no pause is waited for"
        assert await offsets(broker, member) == [], "one record, for two that failed say nothing"
        await settle(broker, member, (2, ACCEPT))
        assert await offsets(broker, member) == [3]
        await broker.stop()

    asyncio.run(scenario())
