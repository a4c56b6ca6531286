"""AlterShareGroupOffsets (91): start an empty group elsewhere on some partitions."""

from __future__ import annotations

from kio.schema.alter_share_group_offsets.v0.request import AlterShareGroupOffsetsRequest
from kio.schema.alter_share_group_offsets.v0.response import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32

from sharegroup.broker.cluster.catalog import Topic
from sharegroup.broker.dispatch import Context, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.errors import KafkaError, OffsetOutOfRange
from sharegroup.ids import GroupId, TopicName, TopicPartition

Outcomes = dict[tuple[TopicName, int], KafkaError | None]


async def handle(
    parts: Parts, context: Context, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    offsets: dict[TopicPartition, int] = {}
    topics: dict[TopicName, Topic] = {}
    outcomes: Outcomes = {}
    for wanted in request.topics:
        name = TopicName(wanted.topic_name)
        for partition in wanted.partitions:
            where = (name, int(partition.partition_index))
            try:
                topic = _check(parts, name, partition.partition_index, partition.start_offset)
            except KafkaError as error:
                outcomes[where] = error
                continue
            outcomes[where] = None
            topics[name] = topic
            offsets[TopicPartition(topic.topic_id, partition.partition_index)] = (
                partition.start_offset
            )
    # A group that cannot be altered is an error of the whole request, also without partitions.
    await parts.share_group_coordinator.alter_offsets(
        GroupId(request.group_id), offsets, topics.values()
    )
    return AlterShareGroupOffsetsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        responses=_responses(parts, request, outcomes),
    )


def refuse(
    request: AlterShareGroupOffsetsRequest, error: KafkaError
) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(
        throttle_time=NO_THROTTLE,
        error_code=error_code(error),
        error_message=str(error),
        responses=(),
    )


def _check(parts: Parts, name: TopicName, partition: int, start_offset: int) -> Topic:
    topic, log = parts.topics.named(name, partition)
    if not log.start_offset <= start_offset <= log.high_watermark:
        raise OffsetOutOfRange(
            f"{name}-{partition}: offset {start_offset} is outside the log, which holds "
            f"{log.start_offset} to {log.high_watermark}"
        )
    return topic


def _responses(
    parts: Parts, request: AlterShareGroupOffsetsRequest, outcomes: Outcomes
) -> tuple[AlterShareGroupOffsetsResponseTopic, ...]:
    responses = []
    for wanted in request.topics:
        name = TopicName(wanted.topic_name)
        topic = parts.topics.catalog.find(name)
        partitions = tuple(
            _partition(one.partition_index, outcomes[name, int(one.partition_index)])
            for one in wanted.partitions
        )
        responses.append(
            AlterShareGroupOffsetsResponseTopic(
                topic_name=wanted.topic_name,
                topic_id=None if topic is None else topic.topic_id,
                partitions=partitions,
            )
        )
    return tuple(responses)


def _partition(index: i32, error: KafkaError | None) -> AlterShareGroupOffsetsResponsePartition:
    return AlterShareGroupOffsetsResponsePartition(
        partition_index=index,
        error_code=ErrorCode.none if error is None else error_code(error),
        error_message=None if error is None else str(error),
    )
