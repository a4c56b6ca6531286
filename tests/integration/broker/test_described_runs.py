"""DescribeShareGroupOffsets with our tag lists the runs of share partitions, in bounded pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_records.v2 import request as delete
from kio.schema.describe_share_group_offsets.v1 import response as kafka_response

from sharegroup.broker.access.peer import Peer
from sharegroup.broker.handlers.share.described_runs import RUNS_MAX, RunRoom, described_runs
from sharegroup.core.delivery.delivery import Delta, RecordState, StateBatch
from sharegroup.core.security.principal import Principal
from sharegroup.ids import GroupId, SharePartitionKey, TopicName
from sharegroup.steps import STEP_ELEMENTS
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from sharegroup.wire.codec.convert import upgrade
from sharegroup.wire.codec.encoder import encode
from sharegroup.wire.messages import describe_share_group_offsets_v1 as describe
from tests.faults.in_process import ACCEPT, REJECT, RELEASE, SECOND, Broker, ShareMember
from tests.integration.broker import test_acl_requests as acl_scene
from tests.integration.broker.test_share_fetch import produce, run

MANY_RUNS = 20_000
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED, DELAYED = range(6)


async def ask(
    broker: Broker,
    wanted: dict[str, dict[int, int]] | None,
    *,
    group: str = "g",
    runs_max: int = 100,
    **options: Any,
) -> Any:
    """The answer about a group; ``wanted`` has a first offset by topic and partition."""
    topics = None
    if wanted is not None:
        topics = tuple(
            describe.DescribeShareGroupOffsetsRequestTopic(
                topic_name=name, partitions=tuple(firsts), first_offsets=tuple(firsts.values())
            )
            for name, firsts in wanted.items()
        )
    asked = describe.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=topics)
    request = describe.DescribeShareGroupOffsetsRequest(groups=(asked,), runs_max=runs_max)
    return (await broker.ask(request, **options)).groups[0]


async def page(broker: Broker, first: int = 0, **options: Any) -> describe.PartitionRuns:
    answer = await ask(broker, {"orders": {0: first}}, **options)
    found: describe.PartitionRuns = answer.topics[0].partitions[0].runs
    return found


def shown(runs: Sequence[describe.OffsetRun]) -> list[tuple[object, ...]]:
    return [
        (run.first_offset, run.last_offset, run.state, run.delivery_count, run.member_id)
        for run in runs
    ]


async def half_settled(broker: Broker, member: ShareMember) -> None:
    """Six records: 1 accepted, 2 released, 3 rejected, and 0 and 4 held; 5 not delivered."""
    await produce(broker, 5)
    taken, _ = await member.fetch(broker, records_max=5)
    assert len(taken) == 5
    acks = {0: [(1, ACCEPT), (2, RELEASE), (3, REJECT)]}
    assert await member.acknowledge(broker, acks) == {0: 0}
    await produce(broker)


def test_runs_have_state_delivery_count_member_and_lock(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await half_settled(broker, member)
        broker.clock.advance(10)
        found = await page(broker)
        assert shown(found.runs) == [
            (0, 0, ACQUIRED, 1, "member-1"),
            (1, 1, ACKNOWLEDGED, 1, None),
            (2, 2, AVAILABLE, 1, None),
            (3, 3, ARCHIVED, 1, None),
            (4, 4, ACQUIRED, 1, "member-1"),
        ]
        assert [run.lock_ms_left for run in found.runs] == [20_000, -1, -1, -1, 20_000]
        assert (found.end_offset, found.high_watermark, found.run_count) == (5, 6, 5)
        assert found.next_offset == -1

    run(scenario, tmp_path)


def test_share_partition_out_of_use_has_its_stored_runs(tmp_path: Path) -> None:
    """A member that left holds nothing, and offsets between stored ones are available."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await half_settled(broker, member)
        [live] = broker.running.parts.share_partitions
        broker.running.parts.share_partitions.unload(live.key)
        found = await page(broker)
        assert shown(found.runs) == [
            (0, 0, AVAILABLE, 0, None),
            (1, 1, ACKNOWLEDGED, 1, None),
            (2, 2, AVAILABLE, 1, None),
            (3, 3, ARCHIVED, 1, None),
        ]
        assert (found.end_offset, found.high_watermark) == (4, 6)

    run(scenario, tmp_path)


def test_stored_delay_is_shown_until_it_is_over(tmp_path: Path) -> None:
    async def scenario(broker: Broker, _: ShareMember) -> None:
        broker.running.parts.share_partitions.unload_group(GroupId("g"))
        await produce(broker, 3)
        due_ms = broker.running.parts.clock.wall_ms() + 10_000
        batches = [
            StateBatch(0, 1, RecordState.AVAILABLE, 1, due_ms),
            StateBatch(1, 2, RecordState.AVAILABLE, 1),
            StateBatch(2, 3, RecordState.ARCHIVING, 1, 0, 1),
        ]
        await store(broker, "g", "orders", 0, batches)
        states = [run.state for run in (await page(broker)).runs]
        assert states == [DELAYED, AVAILABLE, ARCHIVING]
        broker.clock.advance(10)
        assert [run.state for run in (await page(broker)).runs] == [AVAILABLE, AVAILABLE, ARCHIVING]

    run(scenario, tmp_path)


def test_stored_state_of_offsets_that_the_log_lost_is_not_listed(tmp_path: Path) -> None:
    async def scenario(broker: Broker, _: ShareMember) -> None:
        broker.running.parts.share_partitions.unload_group(GroupId("g"))
        await produce(broker, 5)
        await store(broker, "g", "orders", 0, [StateBatch(2, 10, RecordState.AVAILABLE, 1)])
        found = await page(broker)
        assert shown(found.runs) == [(0, 1, AVAILABLE, 0, None), (2, 4, AVAILABLE, 1, None)]
        assert (found.end_offset, found.next_offset) == (5, -1)

    run(scenario, tmp_path)


def test_request_without_the_tag_gets_the_answer_of_kafkas_schema(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await half_settled(broker, member)
        for runs_max in (0, -1):
            group = await ask(broker, {"orders": {0: 0}}, runs_max=runs_max)
            assert group.topics[0].partitions[0].runs == describe.NO_RUNS
        kafkas = upgrade(group, kafka_response.DescribeShareGroupOffsetsResponseGroup)
        assert encode(group) == encode(kafkas)

    run(scenario, tmp_path)


async def store(
    broker: Broker, group: str, topic: str, partition: int, batches: Sequence[StateBatch]
) -> SharePartitionKey:
    """Write the state of a share partition that is not in use."""
    parts = broker.running.parts
    topic_id = parts.topics.catalog.topic(TopicName(topic)).topic_id
    key = SharePartitionKey(GroupId(group), topic_id, partition)
    state_epoch = parts.share_coordinator.read(key).state_epoch
    await parts.share_coordinator.write(key, state_epoch, Delta(0, 0, tuple(batches)))
    return key


async def many_runs(broker: Broker) -> SharePartitionKey:
    """Of 20,000 offsets every second one is acknowledged, the others are available again."""
    for _ in range(4):
        await produce(broker, MANY_RUNS // 4)
    states = (RecordState.AVAILABLE, RecordState.ACKNOWLEDGED)
    numbers = range(MANY_RUNS)
    batches = [StateBatch(offset, offset + 1, states[offset % 2], 1) for offset in numbers]
    return await store(broker, "g", "orders", 0, batches)


@pytest.mark.parametrize("in_use", [False, True], ids=["stored", "live"])
def test_many_runs_come_in_bounded_pages(in_use: bool, tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        broker.running.parts.share_partitions.unload_group(GroupId("g"))
        key = await many_runs(broker)
        if in_use:
            broker.running.parts.share_partitions.get(key)
        offsets, first = list[int](), 0
        while first != -1:
            found = await page(broker, first, runs_max=1_000_000)
            assert len(found.runs) <= RUNS_MAX
            assert found.run_count == MANY_RUNS
            offsets += [run.first_offset for run in found.runs]
            first = found.next_offset
        assert offsets == list(range(MANY_RUNS))
        _, log = broker.running.parts.topics.named(TopicName("orders"), 0)
        steps = described_runs(
            broker.running.parts, key, log,
            start_offset=0, first_offset=0, room=RunRoom(1_000_000),
        )  # fmt: skip
        assert sum(1 for _ in steps) == RUNS_MAX // STEP_ELEMENTS, "other requests come between"

    run(scenario, tmp_path)


def test_runs_of_all_partitions_share_the_limit(tmp_path: Path) -> None:
    async def scenario(broker: Broker, _: ShareMember) -> None:
        assert await broker.create_topic("wide", 1_000) == 0
        wide = ShareMember("w", "member-2", "wide", 1_000, connection_id=2)
        assert await wide.heartbeat(broker) == 0
        for number in range(20):
            batch = encode_batch([SimpleRecord(None, b"x", 1)])
            assert (await broker.produce("wide", number, batch))[0] == 0
            await store(broker, "w", "wide", number, [StateBatch(0, 1, RecordState.AVAILABLE, 1)])
        group = await ask(broker, None, group="w", runs_max=7)
        runs = [partition.runs for partition in group.topics[0].partitions]
        assert [len(partition.runs) for partition in runs] == [1] * 7 + [0] * 993
        assert [partition.next_offset for partition in runs] == [-1] * 7 + [0] * 13 + [-1] * 980

    run(scenario, tmp_path)


@pytest.mark.parametrize("in_use", [False, True], ids=["stored", "live"])
def test_deleted_records_have_no_runs(in_use: bool, tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await half_settled(broker, member)
        if not in_use:
            broker.running.parts.share_partitions.unload_group(GroupId("g"))
        for before, firsts in ((2, [2]), (6, [])):
            partition = delete.DeleteRecordsPartition(partition_index=0, offset=before)
            topic = delete.DeleteRecordsTopic(name="orders", partitions=(partition,))
            answer = await broker.ask(delete.DeleteRecordsRequest(topics=(topic,), timeout=SECOND))
            assert int(answer.topics[0].partitions[0].error_code) == 0
            found = await page(broker)
            assert [run.first_offset for run in found.runs][:1] == firsts
            assert (found.end_offset >= before, found.next_offset) == (True, -1)

    run(scenario, tmp_path)


@pytest.mark.parametrize("first", [-(2**63), -1, 2, 2**63 - 1])
def test_any_first_offset_is_answered(first: int, tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await half_settled(broker, member)
        found = await page(broker, first)
        expected = [number for number in range(5) if number >= first]
        assert [run.first_offset for run in found.runs] == expected

    run(scenario, tmp_path)


def test_unknown_places_and_deleted_groups_have_no_runs(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await half_settled(broker, member)
        answer = await ask(broker, {"orders": {7: 0}, "no\u202esuch\n": {0: 0}})
        places = [partition.runs for topic in answer.topics for partition in topic.partitions]
        assert [(place.run_count, place.runs) for place in places] == [(0, ()), (0, ())]
        nobody = await ask(broker, {"orders": {0: 0}}, group="nobody")
        assert nobody.topics[0].partitions[0].runs.end_offset == -1
        broker.clock.advance(60)  # The member's session ends.
        deleted = await broker.ask(DeleteGroupsRequest(groups_names=("g",)))
        assert [int(result.error_code) for result in deleted.results] == [0]
        found = await page(broker)
        assert (found.end_offset, found.run_count, found.runs) == (-1, 0, ())

    run(scenario, tmp_path)


def test_runs_need_describe_on_the_group_and_the_topic(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        await broker.create_topic("orders", 1)
        member = ShareMember("g", "member-1", "orders", 1, connection_id=1)
        assert await member.heartbeat(broker) == 0
        assert await member.fetch(broker, records_max=10) == ([], {})
        await half_settled(broker, member)
        alice = Peer("127.0.0.1", principal=Principal("User", "alice"))
        codes = []
        of_group = (3, 3, "g", "User:alice", "*", 8, 3)
        of_topic = (2, 3, "orders", "User:alice", "*", 8, 3)
        for row in (None, of_group, of_topic):
            if row is not None:
                assert await acl_scene.create(broker, row) == [0]
            alice.rights = broker.running.parts.rights_of(alice)
            group = await ask(broker, {"orders": {0: 0}}, peer=alice)
            part = group.topics[0].partitions[0] if group.topics else None
            codes.append(
                (int(group.error_code), part and (int(part.error_code), len(part.runs.runs)))
            )
        assert codes == [(30, None), (0, (29, 0)), (0, (0, 5))]

    acl_scene.run(scenario, tmp_path)
