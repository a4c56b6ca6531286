"""Requests over thousands of partitions: sliced, and in the order of their connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from kio.schema.alter_partition_reassignments.v1 import request as reassign
from kio.schema.alter_replica_log_dirs.v2 import request as move
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_records.v2 import request as delete_records
from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
from kio.schema.describe_log_dirs.v4.request import DescribeLogDirsRequest
from kio.schema.describe_share_group_offsets.v1.request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from kio.schema.describe_topic_partitions.v0 import request as describe
from kio.schema.elect_leaders.v2 import request as elect
from kio.schema.find_coordinator.v5.request import FindCoordinatorRequest
from kio.schema.list_offsets.v8 import request as list_offsets
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.offset_fetch.v9 import request as offset_fetch
from kio.schema.offset_for_leader_epoch.v4 import request as epochs
from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest

from sharegroup.broker.access.peer import Peer
from sharegroup.broker.server.dispatch import Reply, dispatch
from sharegroup.broker.server.handler_table import handler_of
from sharegroup.ids import TopicName
from sharegroup.wire.codec.decoder import decode
from sharegroup.wire.codec.encoder import encode_request
from tests.faults.in_process import SECOND, Broker, HurryingClock
from tests.support.limits import HANGING_SECONDS

PARTITIONS = 3_000


def run(scenario: Callable[[Broker], Awaitable[None]], path: Path) -> None:
    async def main() -> None:
        broker = await Broker.start(None, str(path), clock=HurryingClock())
        try:
            assert await broker.create_topic("wide", PARTITIONS) == 0
            await scenario(broker)
        finally:
            await broker.stop()

    asyncio.run(main())


def send(broker: Broker, message: Any, connection_id: int = 1) -> Reply | asyncio.Future[Reply]:
    frame = memoryview(b"".join(encode_request(1, "test", message))[4:])
    parts = broker.running.parts
    return dispatch(parts, handler_of, frame, connection_id=connection_id, peer=Peer("127.0.0.1"))


METADATA = MetadataRequest(
    topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
)
LIST_OFFSETS = list_offsets.ListOffsetsRequest(
    replica_id=-1,
    isolation_level=0,
    topics=(
        list_offsets.ListOffsetsTopic(
            name="wide",
            partitions=tuple(
                list_offsets.ListOffsetsPartition(partition_index=number, timestamp=-1)
                for number in range(PARTITIONS)
            ),
        ),
    ),
)
LOG_DIRS = DescribeLogDirsRequest(topics=None)
HELLO = ApiVersionsRequest(client_software_name="test", client_software_version="1")


def partitions_of(answer: Any) -> int:
    if hasattr(answer, "results"):
        return sum(len(topic.partitions) for topic in answer.results[0].topics)
    return sum(len(topic.partitions) for topic in answer.topics if topic.name == "wide")


@pytest.mark.parametrize(
    "request_", [METADATA, LIST_OFFSETS, LOG_DIRS], ids=lambda request: request.__class__.__name__
)
def test_answer_over_thousands_of_partitions_is_made_in_slices(
    request_: Any, tmp_path: Path
) -> None:
    async def scenario(broker: Broker) -> None:
        slices = broker.running.parts.slices
        before = slices.slice_count
        async with asyncio.timeout(HANGING_SECONDS):
            answer = await broker.ask(request_)
        assert partitions_of(answer) >= PARTITIONS
        # At most five steps of 64 elements in a slice, for each of handling and encoding.
        assert slices.slice_count - before > PARTITIONS // 64 // 5

    run(scenario, tmp_path)


NUMBERS = tuple(range(PARTITIONS))
OF_REPLICAS: list[Any] = [
    epochs.OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=(
            epochs.OffsetForLeaderTopic(
                topic="wide",
                partitions=tuple(
                    epochs.OffsetForLeaderPartition(partition=number, leader_epoch=0)
                    for number in NUMBERS
                ),
            ),
        ),
    ),
    elect.ElectLeadersRequest(
        election_type=0,
        topic_partitions=(elect.TopicPartitions(topic="wide", partitions=NUMBERS),),
    ),
    reassign.AlterPartitionReassignmentsRequest(
        topics=(
            reassign.ReassignableTopic(
                name="wide",
                partitions=tuple(
                    reassign.ReassignablePartition(partition_index=number, replicas=(2,))
                    for number in NUMBERS
                ),
            ),
        )
    ),
    move.AlterReplicaLogDirsRequest(
        dirs=(
            move.AlterReplicaLogDir(
                path="/elsewhere",
                topics=(move.AlterReplicaLogDirTopic(name="wide", partitions=NUMBERS),),
            ),
        )
    ),
    describe.DescribeTopicPartitionsRequest(
        topics=tuple(describe.TopicRequest(name=f"missing-{number}") for number in NUMBERS)
    ),
]


@pytest.mark.parametrize("request_", OF_REPLICAS, ids=lambda request: request.__class__.__name__)
def test_request_about_thousands_of_replicas_is_answered_in_slices(
    request_: Any, tmp_path: Path
) -> None:
    async def scenario(broker: Broker) -> None:
        slices = broker.running.parts.slices
        before = slices.slice_count
        async with asyncio.timeout(HANGING_SECONDS):
            await broker.ask(request_)
        assert slices.slice_count - before > PARTITIONS // 64 // 5

    run(scenario, tmp_path)


def test_requests_after_a_large_one_are_processed_after_it(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        names = tuple(
            MetadataRequestTopic(topic_id=None, name=f"no-such-topic-{number}")
            for number in range(2_000)
        )
        large = send(
            broker,
            METADATA.__class__(
                topics=names,
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=False,
            ),
        )
        behind = [send(broker, HELLO) for _ in range(3)]
        assert isinstance(large, asyncio.Future)
        assert all(isinstance(reply, asyncio.Future) for reply in behind)
        assert isinstance(send(broker, HELLO, connection_id=2), list)
        async with asyncio.timeout(HANGING_SECONDS):
            await asyncio.gather(large, *behind)  # type: ignore[arg-type]
        assert isinstance(send(broker, HELLO), list)

    run(scenario, tmp_path)


def test_topic_deleted_while_its_metadata_waits_is_created_again(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        assert await broker.create_topic("short", 1) == 0
        catalog = broker.running.parts.topics.catalog
        before = catalog.topic(TopicName("short")).topic_id
        request = MetadataRequest(
            topics=tuple(MetadataRequestTopic(topic_id=None, name=n) for n in ("wide", "short")),
            allow_auto_topic_creation=True,
            include_topic_authorized_operations=False,
        )
        waiting = [send(broker, METADATA, connection_id) for connection_id in range(2, 6)]
        reply = send(broker, request)
        assert isinstance(reply, asyncio.Future)
        catalog.replay({"event": "topic_deleted", "id": before.hex})
        async with asyncio.timeout(HANGING_SECONDS):
            frame = b"".join(await reply)
            await asyncio.gather(*waiting)  # type: ignore[arg-type]
        answer, _ = decode(MetadataResponse, frame, 9)
        (short,) = (topic for topic in answer.topics if topic.name == "short")
        assert (short.error_code, short.topic_id == before) == (0, False)

    run(scenario, tmp_path)


def test_pending_work_of_a_closed_connection_is_cancelled(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        parts = broker.running.parts
        _, writer = await asyncio.open_connection("127.0.0.1", parts.node.port)
        for _ in range(50):
            writer.writelines(encode_request(1, "test", METADATA))
        async with asyncio.timeout(HANGING_SECONDS):
            while len(parts.slices) == 0:
                await asyncio.sleep(0)
            writer.close()
            while len(parts.slices) or parts.late_requests.waiting:
                await asyncio.sleep(0)

    run(scenario, tmp_path)


def _many(prefix: str) -> tuple[str, ...]:
    return tuple(f"{prefix}-{number}" for number in range(PARTITIONS))


LONG = [
    FindCoordinatorRequest(key_type=0, coordinator_keys=_many("group")),
    DescribeGroupsRequest(groups=_many("group"), include_authorized_operations=False),
    ShareGroupDescribeRequest(group_ids=_many("group"), include_authorized_operations=False),
    DescribeShareGroupOffsetsRequest(
        groups=(
            DescribeShareGroupOffsetsRequestGroup(
                group_id="g",
                topics=(
                    DescribeShareGroupOffsetsRequestTopic(
                        topic_name="wide", partitions=tuple(range(PARTITIONS))
                    ),
                ),
            ),
        )
    ),
    offset_fetch.OffsetFetchRequest(
        groups=tuple(
            offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=())
            for group in _many("group")
        ),
        require_stable=False,
    ),
    delete_records.DeleteRecordsRequest(
        topics=(
            delete_records.DeleteRecordsTopic(
                name="wide",
                partitions=tuple(
                    delete_records.DeleteRecordsPartition(partition_index=number, offset=0)
                    for number in range(PARTITIONS)
                ),
            ),
        ),
        timeout=SECOND,
    ),
    DeleteGroupsRequest(groups_names=_many("group")),
]


@pytest.mark.parametrize("request_", LONG, ids=lambda request: type(request).__name__)
def test_long_request_is_served_in_slices(request_: Any, tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        slices = broker.running.parts.slices
        before = slices.slice_count
        async with asyncio.timeout(HANGING_SECONDS):
            await broker.ask(request_)
        # More than decoding and encoding alone take.
        assert slices.slice_count - before > 2 * PARTITIONS // 64 // 5

    run(scenario, tmp_path)
