"""Pausing a share group by its setting ``sharegroup.paused``, on a clock moved by hand."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sharegroup.protocol_enums import AcknowledgeType
from tests.faults.in_process import Broker, ShareMember
from tests.integration.broker.test_metrics import scrape
from tests.integration.broker.test_share_fetch import (
    alter_group,
    produce,
    records,
    request,
    run,
    waiting,
)
from tests.integration.broker.test_share_renewal import (
    acknowledgement,
    free_records,
    outcome,
    renewing_fetch,
)

PAUSED = "sharegroup.paused"


def test_fetch_of_a_paused_group_waits_and_its_resumption_answers_it(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await alter_group(broker, PAUSED, "true")
        await produce(broker)
        task = await waiting(broker, request(member))
        await produce(broker)
        assert not task.done()
        found = await scrape(broker)
        assert found("sharegroup_share_group_delivery_stopped", group="g", reason="paused") == 1
        await alter_group(broker, PAUSED, "false")
        assert records(await task) == [(0, 1, 1)]

    run(scenario, tmp_path)


def test_fetch_of_a_paused_group_ends_with_its_wait_time(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await alter_group(broker, PAUSED, "true")
        await produce(broker)
        task = await waiting(broker, request(member))
        broker.clock.advance(0.5)
        answer = await task
        assert (int(answer.error_code), records(answer)) == (0, [])

    run(scenario, tmp_path)


def test_fetch_for_many_bytes_waits_in_a_paused_group_too(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await alter_group(broker, PAUSED, "true")
        task = await waiting(broker, request(member, min_bytes=200))
        for _ in range(3):
            await produce(broker)
        assert not task.done()
        await alter_group(broker, PAUSED, "false")
        assert records(await task) == [(0, 2, 1)]

    run(scenario, tmp_path)


def test_held_records_are_settled_renewed_and_lost_as_ever(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, 4)
        assert records(await broker.ask(request(member))) == [(0, 3, 1)]
        await alter_group(broker, PAUSED, "true")
        types = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE)
        assert outcome(await broker.ask(acknowledgement(member, 2, (0, 1, types)))) == (0, "")
        broker.clock.advance(29)
        renewed = await broker.ask(renewing_fetch(member, 3, (2, 2, (AcknowledgeType.RENEW,))))
        assert int(renewed.error_code) == 0
        broker.clock.advance(1)  # Offset 3 was not renewed.
        [live] = broker.running.parts.share_partitions
        counts = live.state.snapshot()
        assert (counts.start_offset, counts.available_count, counts.acquired_count) == (1, 2, 1)
        assert await free_records(broker) == []
        await alter_group(broker, PAUSED, "false")
        member_2 = ShareMember("g", "member-3", "orders", 1, connection_id=3)
        assert await member_2.heartbeat(broker) == 0
        taken, _ = await member_2.fetch(broker, records_max=100)
        assert [(record.offset, record.delivery_count) for record in taken] == [(1, 2), (3, 2)]

    run(scenario, tmp_path)


def test_what_members_of_a_paused_group_settle_wakes_nobody(tmp_path: Path) -> None:
    """A thousand waiting members must not look again for each acknowledgement."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, 2)
        other = ShareMember("g", "member-2", "orders", 1, connection_id=2)
        assert await other.heartbeat(broker) == 0
        taken, _ = await other.fetch(broker, records_max=10)
        assert len(taken) == 2
        await alter_group(broker, PAUSED, "true")
        await produce(broker)
        task = await waiting(broker, request(member))
        [live] = broker.running.parts.share_partitions
        looks = live.look_count
        assert await other.acknowledge(broker, {0: [(0, AcknowledgeType.ACCEPT)]}) == {0: 0}
        for _ in range(10):
            await asyncio.sleep(0)
        assert (live.look_count, task.done()) == (looks, False)
        task.cancel()

    run(scenario, tmp_path)


def test_group_stays_paused_when_the_broker_restarts(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = await Broker.start(None, str(tmp_path))
        await broker.create_topic("orders", 1)
        await alter_group(broker, "share.auto.offset.reset", "earliest")
        await alter_group(broker, PAUSED, "true")
        await produce(broker)
        await broker.stop()
        broker = await Broker.start(None, str(tmp_path))
        try:
            assert await free_records(broker) == []
            await alter_group(broker, PAUSED, "false")
            member = ShareMember("g", "member-3", "orders", 1, connection_id=3)
            assert await member.heartbeat(broker) == 0
            taken, _ = await member.fetch(broker, records_max=10)
            assert [record.offset for record in taken] == [0]
        finally:
            await broker.stop()

    asyncio.run(scenario())
