"""What a request may cost: no answer out of proportion, and nothing kept for who is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from kio.schema.describe_share_group_offsets.v1 import request as describe_offsets
from kio.schema.fetch.v12 import request as fetch
from kio.schema.metadata.v13 import request as metadata
from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest

from sharegroup.broker.handlers.share.share_requests import named_partitions
from sharegroup.core.delivery.delivery import AckBatch
from sharegroup.ids import TopicId, TopicIdPartition
from sharegroup.protocol_enums import GROUPS_DELAY
from sharegroup.steps import run_to_end
from sharegroup.wire.codec.encoder import encode_request
from tests.faults.in_process import Broker, ShareMember
from tests.support.limits import HANGING_SECONDS

Scenario = Callable[[Broker], Awaitable[None]]


def run(scenario: Scenario, path: Path) -> None:
    """A broker with a topic of one partition and a group of one member."""

    async def main() -> None:
        broker = await Broker.start(None, str(path))
        try:
            await broker.create_topic("orders", 1)
            member = ShareMember("g", "member-1", "orders", 1, connection_id=1)
            assert await member.heartbeat(broker) == 0
            await scenario(broker)
        finally:
            await broker.stop()

    asyncio.run(main())


def test_topic_that_is_named_often_is_described_once(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        topic_entry = metadata.MetadataRequestTopic(topic_id=None, name="orders")
        answer = await broker.ask(
            metadata.MetadataRequest(
                topics=(topic_entry,) * 1_000,
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=False,
            )
        )
        assert [topic.name for topic in answer.topics] == ["orders"]

    run(scenario, tmp_path)


def test_group_that_is_named_often_is_described_once(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        answer = await broker.ask(
            ShareGroupDescribeRequest(group_ids=("g",) * 1_000, include_authorized_operations=False)
        )
        assert [group.group_id for group in answer.groups] == ["g"]
        group_entry = describe_offsets.DescribeShareGroupOffsetsRequestGroup(
            group_id="g", topics=None
        )
        answer = await broker.ask(
            describe_offsets.DescribeShareGroupOffsetsRequest(groups=(group_entry,) * 1_000)
        )
        assert [group.group_id for group in answer.groups] == ["g"]

    run(scenario, tmp_path)


def test_long_poll_ends_with_its_connection(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        parts = broker.running.parts
        _, writer = await asyncio.open_connection("127.0.0.1", parts.node.port)
        partition = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = fetch.FetchRequest(
            replica_id=-1,
            max_wait=timedelta(minutes=5),
            min_bytes=1,
            topics=(fetch.FetchTopic(topic="orders", partitions=(partition,)),),
            forgotten_topics_data=(),
        )
        writer.writelines(encode_request(1, "test", request))
        async with asyncio.timeout(HANGING_SECONDS):
            while len(parts.waiting) != 1:
                await asyncio.sleep(0)
            writer.close()
            while len(parts.waiting) != 0:
                await asyncio.sleep(0)

    run(scenario, tmp_path)


def test_acknowledgements_of_a_partition_that_is_named_twice_all_count() -> None:
    class Batch:
        def __init__(self, offset: int) -> None:
            self.first_offset = self.last_offset = offset
            self.acknowledge_types = (1,)
            self.redelivery_delay_ms = GROUPS_DELAY

    class Partition:
        def __init__(self, offset: int) -> None:
            self.partition_index = 3
            self.acknowledgement_batches = (Batch(offset),)

    class Topic:
        topic_id = None
        partitions = (Partition(5), Partition(6))

    class Request:
        __version__ = 2
        share_session_epoch = 1
        topics = (Topic(),)

    partition = TopicIdPartition(TopicId(UUID(int=0)), 3)
    assert run_to_end(named_partitions(Request()))[1] == {
        partition: (AckBatch(5, 6, (1,)), AckBatch(6, 7, (1,)))
    }
