"""DescribeShareGroupOffsets (90): start offset and lag of a group's share partitions."""

from __future__ import annotations

from collections.abc import Iterable

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
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.broker.share_group_coordinator import OffsetListing
from sharegroup.errors import KafkaError
from sharegroup.ids import GroupId, SharePartitionKey, TopicName

NOTHING_KNOWN = OffsetListing(start_offset=-1, leader_epoch=0, lag=-1)


def handle(
    parts: Parts, context: Context, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(
        throttle_time=NO_THROTTLE,
        groups=tuple(_group(parts, group) for group in dict.fromkeys(request.groups)),
    )


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
