"""DescribeShareGroupOffsets (90): start offset and lag of a group's share partitions."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable

from kio.schema.describe_share_group_offsets.v1.request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kio.schema.describe_share_group_offsets.v1.response import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName as WireTopicName
from kio.static.primitive import i32, i64

from sharegroup.broker.dispatch import Context, error_code
from sharegroup.broker.groups.share_group_coordinator import OffsetListing
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.errors import KafkaError, KafkaStorageError
from sharegroup.ids import GroupId, SharePartitionKey, TopicId, TopicName
from sharegroup.storage.tickets import Ticket

NOTHING_KNOWN = OffsetListing(start_offset=-1, leader_epoch=0, lag=-1)


def handle(
    parts: Parts, context: Context, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse | Awaitable[DescribeShareGroupOffsetsResponse]:
    answer = _answer(parts, request)
    tickets = _on_the_way(parts, answer)
    return _when_durable(parts, request, answer, tickets) if tickets else answer


def refuse(
    request: DescribeShareGroupOffsetsRequest, error: KafkaError
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(
        throttle_time=NO_THROTTLE,
        groups=tuple(
            DescribeShareGroupOffsetsResponseGroup(
                group_id=group.group_id,
                topics=(),
                error_code=error_code(error),
                error_message=str(error),
            )
            for group in request.groups
        ),
    )


async def _when_durable(
    parts: Parts,
    request: DescribeShareGroupOffsetsRequest,
    answer: DescribeShareGroupOffsetsResponse,
    tickets: list[Ticket],
) -> DescribeShareGroupOffsetsResponse:
    """Tell what is durable: a start offset that was told must not go back after a crash."""
    while tickets:
        try:
            for ticket in tickets:
                await ticket
        except KafkaStorageError:
            answer = _answer(parts, request)  # What would have been told never happened.
            tickets = _on_the_way(parts, answer)
        else:
            break
    return answer


def _answer(
    parts: Parts, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(
        throttle_time=NO_THROTTLE,
        groups=tuple(_group(parts, group) for group in dict.fromkeys(request.groups)),
    )


def _on_the_way(parts: Parts, answer: DescribeShareGroupOffsetsResponse) -> list[Ticket]:
    """The state writes that must be durable before this may be told."""
    last_writes = (
        parts.share_coordinator.last_write(
            SharePartitionKey(
                GroupId(group.group_id), TopicId(topic.topic_id), int(one.partition_index)
            )
        )
        for group in answer.groups
        for topic in group.topics
        for one in topic.partitions
        if topic.topic_id is not None
    )
    return [one for one in dict.fromkeys(last_writes) if one is not None and not one.done]


def _group(
    parts: Parts, wanted: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    group_id = GroupId(wanted.group_id)
    topics: Iterable[tuple[TopicName, Iterable[int]]]
    if wanted.topics is None:
        topics = parts.share_group_coordinator.initialized(group_id).items()
    else:
        topics = [(TopicName(one.topic_name), one.partitions) for one in wanted.topics]
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=wanted.group_id,
        topics=tuple(_topic(parts, group_id, name, indexes) for name, indexes in topics),
        error_code=ErrorCode.none,
    )


def _topic(
    parts: Parts, group_id: GroupId, name: TopicName, partitions: Iterable[int]
) -> DescribeShareGroupOffsetsResponseTopic:
    topic = parts.topics.catalog.find(name)
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=WireTopicName(name),
        topic_id=None if topic is None else topic.topic_id,
        partitions=tuple(_partition(parts, group_id, name, index) for index in partitions),
    )


def _partition(
    parts: Parts, group_id: GroupId, name: TopicName, index: int
) -> DescribeShareGroupOffsetsResponsePartition:
    """What is not known is -1 without an error, as in Kafka."""
    try:
        topic, log = parts.topics.named(name, index)
    except KafkaError:
        found = NOTHING_KNOWN
    else:
        key = SharePartitionKey(group_id, topic.topic_id, index)
        found = parts.share_group_coordinator.offset(key, log)
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=i32(index),
        start_offset=i64(found.start_offset),
        leader_epoch=i32(found.leader_epoch),
        lag=i64(found.lag),
        error_code=ErrorCode.none,
    )
