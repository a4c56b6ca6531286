"""What becomes of records in flight when the log, the topic or the state changes under them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

from kio.schema.create_partitions.v3 import request as create_partitions
from kio.schema.delete_records.v2 import request as delete_records
from kio.schema.delete_topics.v6 import request as delete_topics
from kio.schema.share_fetch.v2.request import AcknowledgementBatch, FetchPartition, FetchTopic

from sharegroup.ids import GroupId, TopicIdPartition, TopicName
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.faults.in_process import SECOND, Broker, ShareMember
from tests.integration.broker.test_share_fetch import (
    alter_group,
    produce,
    records,
    request,
    run,
    waiting,
)
from tests.support.limits import HANGING_SECONDS


def partitions(answer: Any) -> list[tuple[int, int, int]]:
    """Partition, error code of the fetch, error code of the acknowledgements."""
    assert answer.error_code == 0
    return [
        (
            partition.partition_index,
            int(partition.error_code),
            int(partition.acknowledge_error_code),
        )
        for topic in answer.responses
        for partition in topic.partitions
    ]


async def delete_topic(broker: Broker) -> None:
    state = delete_topics.DeleteTopicState(name="orders", topic_id=None)
    message = delete_topics.DeleteTopicsRequest(topics=(state,), timeout=SECOND)
    [answer] = (await broker.ask(message)).responses
    assert answer.error_code == 0


async def delete_before(broker: Broker, offset: int) -> None:
    partition = delete_records.DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = delete_records.DeleteRecordsTopic(name="orders", partitions=(partition,))
    message = delete_records.DeleteRecordsRequest(topics=(topic,), timeout=SECOND)
    [[answer]] = [topic.partitions for topic in (await broker.ask(message)).topics]
    assert (answer.error_code, answer.low_watermark) == (0, offset)


async def held_by_another(broker: Broker, count: int) -> ShareMember:
    """A second member that holds the first ``count`` records."""
    holder = ShareMember("g", "member-2", "orders", 1, connection_id=2)
    assert await holder.heartbeat(broker) == 0
    taken, _ = await holder.fetch(broker, records_max=count)
    assert [record.offset for record in taken] == list(range(count))
    return holder


def test_parked_fetch_is_answered_when_its_topic_is_deleted(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker)
        holder = await held_by_another(broker, 1)
        task = await waiting(broker, request(member))
        await delete_topic(broker)
        assert partitions(await asyncio.wait_for(task, HANGING_SECONDS)) == [(0, 100, 0)]
        assert await holder.acknowledge(broker, {0: [(0, AcknowledgeType.ACCEPT)]}) == {0: 100}

    run(scenario, tmp_path)


def test_fetch_with_a_missing_partition_waits_for_the_others(tmp_path: Path) -> None:
    """Otherwise the member would fetch in a loop. A fetch of it alone is answered immediately."""

    def both(*numbers: int) -> tuple[FetchTopic, ...]:
        named = tuple(
            FetchPartition(partition_index=number, acknowledgement_batches=()) for number in numbers
        )
        return (FetchTopic(topic_id=member_topic, partitions=named),)

    async def scenario(broker: Broker, member: ShareMember) -> None:
        nonlocal member_topic
        member_topic = member.topic_id
        task = await waiting(broker, request(member, topics=both(1)))
        assert not task.done()
        broker.clock.advance(0.5)
        assert partitions(await asyncio.wait_for(task, HANGING_SECONDS)) == [(1, 3, 0)]
        task = await waiting(broker, request(member, share_session_epoch=2, min_bytes=2))
        assert not task.done()
        await produce(broker)
        answer = await asyncio.wait_for(task, HANGING_SECONDS)
        assert (sorted(partitions(answer)), records(answer)) == (
            [(0, 0, 0), (1, 3, 0)],
            [(0, 0, 1)],
        )
        alone = request(member, share_session_epoch=0, topics=both(1))
        assert partitions((await waiting(broker, alone)).result()) == [(1, 3, 0)]

    member_topic = None
    run(scenario, tmp_path)


def test_recreated_topic_is_another_topic(tmp_path: Path) -> None:
    """The old session gets an error for the old id; new records are read from the start."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await alter_group(broker, "share.auto.offset.reset", "earliest")
        await produce(broker, 3)
        await held_by_another(broker, 3)
        old = member.topic_id
        await delete_topic(broker)
        assert await broker.create_topic("orders", 1) == 0
        await produce(broker)
        assert partitions(await broker.ask(request(member))) == [(0, 100, 0)]
        member.topic_id, member.session_epoch = None, 0
        assert await member.heartbeat(broker) == 0
        taken, _ = await member.fetch(broker, records_max=10)
        assert [(record.offset, record.delivery_count) for record in taken] == [(0, 1)]
        assert member.topic_id != old

    run(scenario, tmp_path)


def test_new_partition_is_fetched_from_its_first_record(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        topic = FetchTopic(
            topic_id=member.topic_id,
            partitions=(FetchPartition(partition_index=1, acknowledgement_batches=()),),
        )
        named = request(member, topics=(topic,), max_wait=timedelta(0))
        assert partitions(await broker.ask(named)) == [(1, 3, 0)]
        more = create_partitions.CreatePartitionsTopic(name="orders", count=2, assignments=None)
        message = create_partitions.CreatePartitionsRequest(
            topics=(more,), timeout=SECOND, validate_only=False
        )
        [answer] = (await broker.ask(message)).results
        assert answer.error_code == 0
        assert (await broker.produce("orders", 1, encode_batch([SimpleRecord(None, b"x", 1)])))[
            0
        ] == 0
        assert await member.heartbeat(broker) == 0
        assert records(await broker.ask(request(member, share_session_epoch=2))) == [(0, 0, 1)]

    run(scenario, tmp_path)


def test_deleted_records_are_settled_even_if_a_member_holds_them(tmp_path: Path) -> None:
    """Ten records are held and the first six deleted. To acknowledge these is no error."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        for _ in range(10):
            await produce(broker)
        holder = await held_by_another(broker, 10)
        await delete_before(broker, 6)
        acks = {0: [(offset, AcknowledgeType.RELEASE) for offset in (0, 5, 6)]}
        assert await holder.acknowledge(broker, acks) == {0: 0}
        assert await holder.acknowledge(broker, {0: [(3, AcknowledgeType.ACCEPT)]}) == {0: 0}
        assert records(await broker.ask(request(member))) == [(6, 6, 2)]
        assert await broker.group_offsets("g", "orders", 1) == [(6, 4)]
        [live] = broker.running.parts.share_partitions
        live.state.check()

    run(scenario, tmp_path)


def test_deleted_records_make_room_for_a_parked_fetch(tmp_path: Path) -> None:
    """The group may hold 100 records and does; 20 of them are deleted, so 20 more may be held."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await alter_group(broker, "share.partition.max.record.locks", "100")
        for _ in range(12):
            await produce(broker, 10)
        await held_by_another(broker, 100)
        task = await waiting(broker, request(member, max_records=50))
        assert not task.done()
        await delete_before(broker, 20)
        assert records(await asyncio.wait_for(task, HANGING_SECONDS)) == [
            (100, 109, 1),
            (110, 119, 1),
        ]

    run(scenario, tmp_path)


def test_deleting_all_records_ends_every_lock(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, 5)
        holder = await held_by_another(broker, 5)
        await delete_before(broker, 5)
        task = await waiting(broker, request(member))
        assert await holder.acknowledge(broker, {0: [(4, AcknowledgeType.RELEASE)]}) == {0: 0}
        broker.clock.advance(0.4)
        assert not task.done()
        await produce(broker)
        assert records(await asyncio.wait_for(task, HANGING_SECONDS)) == [(5, 5, 1)]

    run(scenario, tmp_path)


def test_holder_of_locks_from_before_a_reset_is_refused(tmp_path: Path) -> None:
    """The group has no members but a session, and its offsets are altered.

    Until the next fetch the share partition is not loaded; then the records are not held.
    """

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, 3)
        member.session_epoch = 1
        assert records(await broker.ask(request(member))) == [(0, 2, 1)]
        member.session_epoch, member.member_epoch = 2, -1
        assert await member.heartbeat(broker) == 0
        parts = broker.running.parts
        topic = parts.topics.catalog.topic(TopicName("orders"))
        partition = TopicIdPartition(topic.topic_id, 0)
        coordinator = parts.share_group_coordinator
        await coordinator.alter_offsets(GroupId("g"), {partition: 1}, [topic], user=None)
        assert await member.acknowledge(broker, {0: [(1, AcknowledgeType.ACCEPT)]}) == {0: 3}
        again = ShareMember("g", "member-3", "orders", 1, connection_id=3)
        assert await again.heartbeat(broker) == 0
        taken, _ = await again.fetch(broker, records_max=10)
        assert [(record.offset, record.delivery_count) for record in taken] == [(1, 1), (2, 1)]
        assert await member.acknowledge(broker, {0: [(1, AcknowledgeType.ACCEPT)]}) == {0: 121}

    run(scenario, tmp_path)


def test_write_of_a_fenced_state_sends_members_to_the_leader(tmp_path: Path) -> None:
    """The state was made anew behind the share partition's back: 6, and who leads, by both
    requests; the fetch after it reads the new state."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        parts = broker.running.parts
        await produce(broker, 3)
        assert records(await broker.ask(request(member))) == [(0, 2, 1)]
        [live] = parts.share_partitions
        epoch = parts.share_coordinator.summary(live.key).state_epoch + 1
        parts.share_coordinator.initialize(live.key, state_epoch=epoch, start_offset=0)
        accept = acknowledging(member, 2)
        answer = await broker.ask(accept)
        assert partitions(answer) == [(0, 0, 6)]
        [[response]] = [topic.partitions for topic in answer.responses]
        assert (response.current_leader.leader_id, response.current_leader.leader_epoch) == (
            parts.node.node_id,
            0,
        )
        assert "state epoch" in response.acknowledge_error_message
        assert [(node.node_id, node.host, node.port) for node in answer.node_endpoints] == [
            (parts.node.node_id, parts.node.host, parts.node.port)
        ]
        await asyncio.sleep(0)
        assert records(await broker.ask(request(member, share_session_epoch=3))) == [(0, 2, 1)]

    run(scenario, tmp_path)


def acknowledging(member: ShareMember, epoch: int) -> Any:
    """A fetch of nothing that accepts offset 0."""
    batch = AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=(1,))
    partition = FetchPartition(partition_index=0, acknowledgement_batches=(batch,))
    topic = FetchTopic(topic_id=member.topic_id, partitions=(partition,))
    return request(member, share_session_epoch=epoch, topics=(topic,), max_records=0)


def test_fetch_of_a_group_without_state_is_an_unexpected_error(tmp_path: Path) -> None:
    """As in Kafka: the state of a group is initialized by its first join."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        topic = FetchTopic(
            topic_id=member.topic_id,
            partitions=(FetchPartition(partition_index=0, acknowledgement_batches=()),),
        )
        stranger = request(member, group_id="h", share_session_epoch=0, topics=(topic,))
        answer = await broker.ask(stranger)
        assert partitions(answer) == [(0, -1, 0)]
        [[response]] = [topic.partitions for topic in answer.responses]
        assert "never initialized" in response.error_message

    run(scenario, tmp_path)
