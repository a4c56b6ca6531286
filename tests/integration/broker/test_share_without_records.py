"""ShareFetch without records lists the batches whose bytes an ordinary one has (ADR 0059)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.alter_client_quotas.v1 import request as alter_quotas

from sharegroup.protocol_enums import BatchFlag, ResourceType
from sharegroup.wire.batches.batches import scan
from sharegroup.wire.messages.share_fetch_v2 import ShareFetchRequest
from tests.faults.in_process import Broker, ShareMember
from tests.integration.broker.test_share_fetch import alter, alter_group, records, request, run
from tests.integration.broker.test_share_isolation import transactional, write
from tests.unit.storage.logs import abort, batch, commit

A, B = 71, 72
Listed = list[tuple[int, int, int, int]]


async def acquired(
    broker: Broker, member: ShareMember, *, without_records: bool, **fields: Any
) -> tuple[list[tuple[int, int, int]], bytes, Listed | None]:
    """The acquired ranges, the bytes, and the listed batches of the next fetch."""
    values = {name: getattr(request(member), name) for name in request(member).__slots__}
    values |= {"max_records": 1_000, "batch_size": 1_000, "max_wait": timedelta(0)} | fields
    message = ShareFetchRequest(**values, without_records=without_records)
    answer = await broker.ask(message)
    member.session_epoch += 1
    assert answer.error_code == 0, answer.error_message
    [topic] = answer.responses
    [partition] = topic.partitions
    assert partition.records is not None
    if partition.batches is None:
        return records(answer), bytes(partition.records), None
    listed = [
        (found.first_offset, found.end_offset, found.size, found.flags)
        for found in partition.batches
    ]
    return records(answer), bytes(partition.records), listed


async def another_member(broker: Broker, group: str) -> ShareMember:
    member = ShareMember(group, "member-2", "orders", 1, connection_id=1)
    assert await member.heartbeat(broker) == 0
    assert await member.fetch(broker, records_max=0) == ([], {})
    return member


async def check_like_records(broker: Broker, member: ShareMember) -> Listed:
    """Check an acquisition without records beside one of another group; return its batches."""
    await alter(broker, ResourceType.GROUP, "h", "share.auto.offset.reset", "earliest")
    other = await another_member(broker, "h")
    ranges, data, nothing = await acquired(broker, other, without_records=False)
    assert nothing is None
    without = await acquired(broker, member, without_records=True)
    assert without[:2] == (ranges, b"")
    assert without[2] is not None
    assert [found[:3] for found in without[2]] == [
        (header.base_offset, header.end_offset, header.size) for _, header in scan(data)
    ]
    return without[2]


async def write_transactions(broker: Broker) -> None:
    """A aborts 0 to 1 and 4, B commits 3; 2 and 7 are in no transaction; 5 and 6 are markers."""
    await write(broker, transactional(A, 2), batch(), transactional(B))
    await write(broker, transactional(A, sequence=2), commit(B), abort(A), batch())


def test_probe_of_a_circuit_breaker_has_no_records_either(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await alter_group(broker, "sharegroup.breaker.failure.percent", "50")
        await write(broker, batch(3))
        ranges, data, listed = await acquired(broker, member, without_records=True)
        assert (ranges, data) == ([(0, 0, 1)], b"")
        assert listed is not None
        assert [found[:2] for found in listed] == [(0, 3)]

    run(scenario, tmp_path)


def test_batches_are_those_of_a_fetch_with_records(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await write_transactions(broker)
        listed = await check_like_records(broker, member)
        assert [found[0] for found in listed if found[3] == BatchFlag.CONTROL] == [5, 6]
        assert not any(found[3] & BatchFlag.ABORTED for found in listed)

    run(scenario, tmp_path)


def test_aborted_batches_between_those_of_a_group_that_reads_committed_are_marked(
    tmp_path: Path,
) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        for group in "gh":
            await alter(
                broker, ResourceType.GROUP, group, "share.isolation.level", "read_committed"
            )
        await write_transactions(broker)
        listed = await check_like_records(broker, member)
        assert [(found[0], found[3]) for found in listed] == [
            *((2, 0), (3, 0), (4, BatchFlag.ABORTED)),
            *((5, BatchFlag.CONTROL), (6, BatchFlag.CONTROL), (7, 0)),
        ]

    run(scenario, tmp_path)


def test_batches_of_an_earlier_run_are_checked_before_they_are_listed(tmp_path: Path) -> None:
    """The checksum of the second of three batches is wrong after the restart."""

    async def main() -> None:
        broker = await Broker.start(None, str(tmp_path))
        await broker.create_topic("orders", 1)
        await write(broker, batch(2), batch(3), batch(4))
        await broker.stop()
        [segment] = tmp_path.glob("**/*-0/0*.log")
        content = bytearray(segment.read_bytes())
        content[len(batch(2)) + len(batch(3)) - 1] ^= 1
        segment.write_bytes(content)

        broker = await Broker.start(None, str(tmp_path))
        try:
            await alter_group(broker, "share.auto.offset.reset", "earliest")
            member = await another_member(broker, "g")
            ranges, data, listed = await acquired(broker, member, without_records=True)
            assert (ranges, data) == ([(0, 1, 1), (5, 8, 1)], b"")
            assert listed == [(0, 2, len(batch(2)), 0), (5, 9, len(batch(4)), 0)]
        finally:
            await broker.stop()

    asyncio.run(main())


def test_max_bytes_limits_the_listed_batches(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        size = len(batch(10))
        await write(broker, *[batch(10)] * 5)
        for first, count in ((0, 2), (20, 1), (30, 2)):
            ranges, _, listed = await acquired(
                broker, member, without_records=True, max_bytes=size * count + 1
            )
            assert ranges == [(first, first + count * 10 - 1, 1)]
            assert listed is not None
            assert len(listed) == count

    run(scenario, tmp_path)


@pytest.mark.parametrize("without_records", [True, False])
def test_quota_counts_the_bytes_that_are_sent(tmp_path: Path, without_records: bool) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await limit_everybody(broker, 100.0)
        await write(broker, batch(1, size=50_000), batch(1, size=50_000))
        await acquired(broker, member, without_records=without_records)
        quotas = broker.running.parts.quotas
        assert quotas.is_on
        message = request(member, max_wait=timedelta(0))
        throttle = (await broker.ask(message)).throttle_time
        assert bool(throttle) is not without_records

    run(scenario, tmp_path)


async def limit_everybody(broker: Broker, bytes_per_second: float) -> None:
    entry = alter_quotas.EntryData(
        entity=(alter_quotas.EntityData(entity_type="client-id", entity_name=None),),
        ops=(alter_quotas.OpData(key="consumer_byte_rate", value=bytes_per_second, remove=False),),
    )
    message = alter_quotas.AlterClientQuotasRequest(entries=(entry,), validate_only=False)
    [answer] = (await broker.ask(message)).entries
    assert answer.error_code == 0
