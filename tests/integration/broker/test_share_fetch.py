"""ShareFetch as raw requests on a clock moved by hand: what is answered at once, what waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.incremental_alter_configs.v1 import request as alter_configs
from kio.schema.share_fetch.v2.request import (
    AcknowledgementBatch,
    FetchPartition as WirePartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from kio.static.primitive import i8

from sharegroup.broker.access.peer import Peer
from sharegroup.broker.cluster.catalog import SHARE_GROUP_STATE
from sharegroup.broker.server.dispatch import dispatch
from sharegroup.broker.server.handler_table import handler_of
from sharegroup.ids import GroupId, SharePartitionKey, TopicId, TopicName, share_state_partition
from sharegroup.protocol_enums import AcknowledgeType, ResourceType
from sharegroup.wire.batches.records import SimpleRecord, decode_records, encode_batch
from sharegroup.wire.codec.encoder import encode_request
from tests.faults.in_process import Broker, ShareMember
from tests.support.limits import HANGING_SECONDS

Scenario = Callable[[Broker, ShareMember], Awaitable[None]]


def run(scenario: Scenario, path: Path, **settings: str) -> None:
    """A broker, a topic of one partition, a member that has joined and opened its session."""

    async def main() -> None:
        broker = await Broker.start(None, str(path), **settings)
        try:
            await broker.create_topic("orders", 1)
            member = ShareMember("g", "member-1", "orders", 1, connection_id=1)
            assert await member.heartbeat(broker) == 0
            assert await member.fetch(broker, records_max=10) == ([], {})
            await scenario(broker, member)
        finally:
            await broker.stop()

    asyncio.run(main())


def request(member: ShareMember, **fields: Any) -> ShareFetchRequest:
    """The next fetch of a member, which may wait for half a second."""
    values: dict[str, Any] = {
        "group_id": member.group,
        "member_id": member.member_id,
        "share_session_epoch": member.session_epoch,
        "max_wait": timedelta(milliseconds=500),
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "max_records": 10,
        "batch_size": 10,
        "topics": (),
        "forgotten_topics_data": (),
    }
    return ShareFetchRequest(**(values | fields))


async def waiting(broker: Broker, message: ShareFetchRequest) -> asyncio.Task[Any]:
    """The request under way, for as long as the clock stands still."""
    task = asyncio.create_task(broker.ask(message))
    for _ in range(5):
        await asyncio.sleep(0)
    return task


def records(answer: Any) -> list[tuple[int, int, int]]:
    return [
        (record.first_offset, record.last_offset, record.delivery_count)
        for topic in answer.responses
        for partition in topic.partitions
        for record in partition.acquired_records
    ]


async def alter_group(broker: Broker, key: str, value: str) -> None:
    """Set one key of group g."""
    await alter(broker, ResourceType.GROUP, "g", key, value)


async def alter(broker: Broker, kind: int, name: str, key: str, value: str) -> None:
    """Set one key of a group or of all brokers."""
    change = alter_configs.AlterableConfig(name=key, config_operation=i8(0), value=value)
    resource = alter_configs.AlterConfigsResource(
        resource_type=i8(kind), resource_name=name, configs=(change,)
    )
    message = alter_configs.IncrementalAlterConfigsRequest(
        resources=(resource,), validate_only=False
    )
    [answer] = (await broker.ask(message)).responses
    assert answer.error_code == 0, answer.error_message


async def produce(broker: Broker, count: int = 1) -> None:
    batch = encode_batch([SimpleRecord(None, b"x" * 100, 1)] * count)
    assert (await broker.produce("orders", 0, batch))[0] == 0


def test_waiting_fetch_is_answered_when_a_record_is_durable(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        task = await waiting(broker, request(member))
        assert not task.done()
        await produce(broker)
        assert records(await task) == [(0, 0, 1)]

    run(scenario, tmp_path)


def test_fetch_of_no_records_is_answered_at_once(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker)
        task = await waiting(broker, request(member, max_records=0))
        assert records(task.result()) == []

    run(scenario, tmp_path)


def test_fetch_waiting_for_min_bytes_locks_no_records(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker)
        task = await waiting(broker, request(member, min_bytes=100_000))
        assert not task.done()
        [live] = broker.running.parts.share_partitions
        assert live.state.snapshot().acquired_count == 0
        broker.clock.advance(0.5)
        assert records(await task) == [(0, 0, 1)]

    run(scenario, tmp_path)


def test_fetch_for_min_bytes_ends_with_the_batch_that_reaches_them(tmp_path: Path) -> None:
    """Batches of 170 bytes: two are more than 200, though only one fits into them."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        task = await waiting(broker, request(member, min_bytes=200))
        await produce(broker)
        assert not task.done()
        await produce(broker)
        assert records(await task) == [(0, 1, 1)]

    run(scenario, tmp_path)


def test_more_bytes_than_an_answer_may_have_are_not_waited_for(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker)
        task = await waiting(broker, request(member, min_bytes=1 << 20, max_bytes=100))
        assert records(task.result()) == [(0, 0, 1)]

    run(scenario, tmp_path)


def test_fetch_for_min_bytes_starts_at_the_new_log_start(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker)
        await produce(broker)
        _, log = broker.running.parts.topics.named(TopicName("orders"), 0)
        await log.delete_before(1)
        task = await waiting(broker, request(member, min_bytes=100_000))
        assert not task.done(), "the available records were not counted from the log start"
        broker.clock.advance(0.5)
        assert records(await task) == [(1, 1, 1)]

    run(scenario, tmp_path)


@pytest.mark.parametrize(
    ("kind", "name", "key"),
    [
        (ResourceType.GROUP, "g", "share.partition.max.record.locks"),
        (ResourceType.BROKER, "", "group.share.partition.max.record.locks"),
    ],
    ids=["the group's", "everybody's"],
)
def test_raised_lock_limit_completes_a_waiting_fetch(
    tmp_path: Path, kind: int, name: str, key: str
) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await alter(broker, kind, name, key, "100")
        await produce(broker, 100)
        await produce(broker)
        taken = await broker.ask(request(member, max_records=200, batch_size=200))
        assert records(taken) == [(0, 99, 1)]
        task = await waiting(broker, request(member, share_session_epoch=2))
        assert not task.done()
        await alter(broker, kind, name, key, "200")
        assert records(await asyncio.wait_for(task, HANGING_SECONDS)) == [(100, 100, 1)]

    run(scenario, tmp_path)


def test_locks_of_a_group_end_with_its_last_session(tmp_path: Path) -> None:
    """A member forgets a partition of which it holds a record, and closes its session.

    The next member gets the record immediately; the former deadline must not release it again.
    """

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker)
        assert records(await broker.ask(request(member))) == [(0, 0, 1)]
        forgotten = ForgottenTopic(topic_id=member.topic_id, partitions=(0,))
        message = request(member, share_session_epoch=2, forgotten_topics_data=(forgotten,))
        await broker.ask(message)
        await broker.ask(request(member, share_session_epoch=-1))
        broker.clock.advance(20)
        late = ShareMember("g", "member-2", "orders", 1, connection_id=2)
        assert await late.heartbeat(broker) == 0
        taken, _ = await late.fetch(broker, records_max=10)
        assert [(record.offset, record.delivery_count) for record in taken] == [(0, 1)]
        assert late.topic_id is not None
        key = SharePartitionKey(GroupId("g"), TopicId(late.topic_id), 0)
        _, state_log = broker.running.parts.topics.named(
            SHARE_GROUP_STATE, share_state_partition(key, 50)
        )
        written = state_log.end_offset
        broker.clock.advance(20)
        assert state_log.end_offset == written

    run(scenario, tmp_path)


def test_released_record_wakes_another_members_fetch(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker)
        holder = ShareMember("g", "member-2", "orders", 1, connection_id=2)
        assert await holder.heartbeat(broker) == 0
        taken, _ = await holder.fetch(broker, records_max=10)
        assert [record.offset for record in taken] == [0]
        task = await waiting(broker, request(member))
        assert not task.done()
        assert await holder.acknowledge(broker, {0: [(0, AcknowledgeType.RELEASE)]}) == {0: 0}
        assert records(await task) == [(0, 0, 2)]

    run(scenario, tmp_path)


def test_no_record_is_locked_for_a_closed_connection(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        task = await waiting(broker, request(member))
        broker.running.parts.share_sessions.release_connection("1")
        await produce(broker)
        broker.clock.advance(0.5)
        assert records(await task) == []
        late = ShareMember("g", "member-2", "orders", 1, connection_id=2)
        assert await late.heartbeat(broker) == 0
        taken, _ = await late.fetch(broker, records_max=10)
        assert [(record.offset, record.delivery_count) for record in taken] == [(0, 1)]

    run(scenario, tmp_path)


def test_full_broker_refuses_a_session_when_the_wait_is_over(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        topic = FetchTopic(
            topic_id=member.topic_id,
            partitions=(WirePartition(partition_index=0, acknowledgement_batches=()),),
        )
        message = request(member, member_id="other", share_session_epoch=0, topics=(topic,))
        task = await waiting(broker, message)
        assert not task.done()
        broker.clock.advance(0.5)
        assert (await task).error_code == 133

    run(scenario, tmp_path, group_share_max_share_sessions="1", group_share_max_size="1")


def test_strict_number_of_records_holds_over_all_partitions(tmp_path: Path) -> None:
    """Batches of four in two partitions: six records are six, and the reply has whole batches."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await broker.create_topic("twins", 2)
        twin = ShareMember("h", "member-2", "twins", 2, connection_id=1)
        assert await twin.heartbeat(broker) == 0
        assert await twin.fetch(broker, records_max=1) == ([], {})
        batch = encode_batch([SimpleRecord(None, b"x" * 100, 1)] * 4)
        for partition in (0, 1):
            assert (await broker.produce("twins", partition, batch))[0] == 0
        message = request(twin, share_acquire_mode=1, max_records=6, batch_size=6)
        answer = await broker.ask(message)
        assert sorted(records(answer)) == [(0, 1, 1), (0, 3, 1)]
        [topic] = answer.responses
        assert [len(decode_records(partition.records)) for partition in topic.partitions] == [4, 4]
        again = request(twin, share_session_epoch=2, share_acquire_mode=1, max_records=6)
        assert records(await broker.ask(again)) == [(2, 3, 1)]

    run(scenario, tmp_path)


def test_large_window_is_returned_in_one_response_and_settled_by_one_range(tmp_path: Path) -> None:
    """A group that permits 200,000 locks fetches as many records: 40 batches of 5,000."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await alter_group(broker, "share.partition.max.record.locks", "200000")
        batch = encode_batch([SimpleRecord(None, b"", 1)] * 5_000)
        for _ in range(41):
            assert (await broker.produce("orders", 0, batch))[0] == 0
        wanted = {"max_records": 300_000, "batch_size": 300_000, "max_bytes": 50 << 20}
        answer = await broker.ask(request(member, **wanted))
        assert records(answer) == [(0, 199_999, 1)]
        [live] = broker.running.parts.share_partitions
        assert live.state.snapshot().run_count == 1
        accept = AcknowledgementBatch(
            first_offset=0, last_offset=199_999, acknowledge_types=(AcknowledgeType.ACCEPT,)
        )
        partition = WirePartition(partition_index=0, acknowledgement_batches=(accept,))
        topic = FetchTopic(topic_id=member.topic_id, partitions=(partition,))
        message = request(member, share_session_epoch=2, topics=(topic,), **wanted)
        assert records(await broker.ask(message)) == [(200_000, 204_999, 1)]
        assert live.state.start_offset == 200_000

    run(scenario, tmp_path)


def test_unknown_acquire_mode_is_an_invalid_request(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        for mode in (2, -1, 127):
            answer = await broker.ask(request(member, share_acquire_mode=mode))
            assert answer.error_code == 42
            assert f"ShareAcquireMode is {mode}" in answer.error_message

    run(scenario, tmp_path)


@pytest.mark.parametrize(("durability", "at_once"), [("os", True), ("fsync", False)])
def test_acknowledgement_that_is_durable_at_once_is_answered_at_once(
    durability: str, at_once: bool, tmp_path: Path
) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await broker.produce("orders", 0, encode_batch([SimpleRecord(None, b"a", 0)]))
        assert records(await broker.ask(request(member))) == [(0, 0, 1)]
        member.session_epoch += 1
        accept = AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=(i8(1),))
        named = WirePartition(partition_index=0, acknowledgement_batches=(accept,))
        topic = FetchTopic(topic_id=await broker.topic_id("orders"), partitions=(named,))
        message = request(member, topics=(topic,), max_wait=timedelta(0))
        frame = memoryview(b"".join(encode_request(1, "test", message))[4:])
        parts = broker.running.parts
        reply = dispatch(parts, handler_of, frame, connection_id=1, peer=Peer("127.0.0.1"))
        assert isinstance(reply, list) == at_once
        if isinstance(reply, asyncio.Future):
            await reply

    run(scenario, tmp_path, sharegroup_durability=durability)
