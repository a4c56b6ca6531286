"""AlterShareGroupOffsets (91): sets start offsets of an empty share group."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from itertools import islice

from kio.schema.alter_share_group_offsets.v0.request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kio.schema.alter_share_group_offsets.v0.response import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32

from sharegroup.broker.cluster.catalog import Topic
from sharegroup.broker.handler_contract import Later, RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.broker.security import requirements as required
from sharegroup.broker.security.permission import Permission
from sharegroup.core.security.principal import Principal
from sharegroup.errors import KafkaError, OffsetOutOfRange
from sharegroup.ids import GroupId, TopicIdPartition, TopicName
from sharegroup.steps import STEP_MASK, Steps, of_each

Wanted = tuple[AlterShareGroupOffsetsRequestTopic, AlterShareGroupOffsetsRequestPartition]

PartitionErrors = dict[tuple[TopicName, int], KafkaError | None]

PIECE_PARTITIONS = 256
"""Share partitions that are altered together; each piece is written on its own and may fail."""


def handle(
    parts: Parts, context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> Later[AlterShareGroupOffsetsResponse]:
    read = Permission(context.rights, required.READ_TOPICS)
    return Later(_alter(parts, request, read, context.limited_user))


async def _alter(
    parts: Parts,
    request: AlterShareGroupOffsetsRequest,
    read: Permission,
    user: Principal | None,
) -> AlterShareGroupOffsetsResponse:
    group_id, outcomes = GroupId(request.group_id), PartitionErrors()
    wanted = ((topic, partition) for topic in request.topics for partition in topic.partitions)
    # An error of the group fails the whole request, even a request without partitions.
    found = _check_piece(parts, list(islice(wanted, PIECE_PARTITIONS)), outcomes, read)
    await parts.share_group_coordinator.alter_offsets(group_id, *found, user=user)
    while piece := list(islice(wanted, PIECE_PARTITIONS)):
        await parts.slices.turn()
        offsets, topics = _check_piece(parts, piece, outcomes, read)
        if not offsets:
            continue
        try:
            await parts.share_group_coordinator.alter_offsets(group_id, offsets, topics, user=user)
        except KafkaError as error:
            failed = error.with_traceback(None)
            for topic, partition in piece:
                key = (TopicName(topic.topic_name), int(partition.partition_index))
                outcomes[key] = outcomes[key] or failed
    return await parts.slices.finish(_response(parts, request, outcomes, read))


def _check_piece(
    parts: Parts, piece: Sequence[Wanted], outcomes: PartitionErrors, read: Permission
) -> tuple[dict[TopicIdPartition, int], Collection[Topic]]:
    """Return the offsets and topics that can be altered; ``outcomes`` gets the other errors."""
    offsets: dict[TopicIdPartition, int] = {}
    topics: dict[TopicName, Topic] = {}
    for wanted, partition in piece:
        name = TopicName(wanted.topic_name)
        key = (name, int(partition.partition_index))
        try:
            read.require(name)
            topic = _check(parts, name, partition.partition_index, partition.start_offset)
        except KafkaError as error:
            outcomes[key] = error.with_traceback(None)
            continue
        outcomes[key] = None
        topics[name] = topic
        offsets[TopicIdPartition(topic.topic_id, partition.partition_index)] = (
            partition.start_offset
        )
    return offsets, topics.values()


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


def _response(
    parts: Parts,
    request: AlterShareGroupOffsetsRequest,
    outcomes: PartitionErrors,
    read: Permission,
) -> Steps[AlterShareGroupOffsetsResponse]:
    responses = []
    for wanted in request.topics:
        name = TopicName(wanted.topic_name)
        # Kafka also shows the id of a topic that the principal may not read.
        topic = parts.topics.catalog.find(name) if read.allows(name) else None
        indexes = (partition.partition_index for partition in wanted.partitions)
        partitions = yield from of_each(partial(_partition, name, outcomes), indexes)
        responses.append(
            AlterShareGroupOffsetsResponseTopic(
                topic_name=wanted.topic_name,
                topic_id=None if topic is None else topic.topic_id,
                partitions=partitions,
            )
        )
        if len(responses) & STEP_MASK == STEP_MASK:
            yield
    return AlterShareGroupOffsetsResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, responses=tuple(responses)
    )


def _partition(
    name: TopicName, outcomes: PartitionErrors, index: i32
) -> AlterShareGroupOffsetsResponsePartition:
    error = outcomes[name, int(index)]
    return AlterShareGroupOffsetsResponsePartition(
        partition_index=index,
        error_code=ErrorCode.none if error is None else error_code(error),
        error_message=None if error is None else str(error),
    )
