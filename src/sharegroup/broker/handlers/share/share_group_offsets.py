"""Requests about the start offsets of share groups (90, 91, 92): describe, set and delete them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from itertools import chain, islice, repeat
from typing import NamedTuple, Protocol
from uuid import UUID

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
from kio.schema.delete_share_group_offsets.v0.request import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from kio.schema.delete_share_group_offsets.v0.response import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName as WireTopicName
from kio.static.primitive import i32, i64

from sharegroup.broker.access import checks as required
from sharegroup.broker.access.permission import Permission
from sharegroup.broker.access.rights import Rights
from sharegroup.broker.cluster.catalog import Topic
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.groups.share_group_coordinator import OffsetListing
from sharegroup.broker.handler_contract import (
    NO_THROTTLE,
    ApiHandler,
    Later,
    RequestContext,
    error_code,
)
from sharegroup.broker.handlers.parts import HasShareGroups, HasSlices, HasTopics
from sharegroup.broker.handlers.share.described_runs import (
    NOTHING,
    RunParts,
    RunRoom,
    described_runs,
)
from sharegroup.core.security.principal import Principal
from sharegroup.errors import KafkaError, KafkaStorageError, OffsetOutOfRange
from sharegroup.ids import GroupId, SharePartitionKey, TopicIdPartition, TopicName
from sharegroup.steps import Steps, of_each, paced
from sharegroup.storage.sync.tickets import Ticket
from sharegroup.wire.messages.describe_share_group_offsets_v1 import (
    NO_RUNS,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

FEW = 16
"""A step ends after every 16 partitions, topics or groups."""

NOTHING_KNOWN = OffsetListing(start_offset=-1, leader_epoch=0, lag=-1)


class ShareGroupOffsetsParts(RunParts, HasShareGroups, HasSlices, HasTopics, Protocol):
    """What these requests touch of the broker."""


class _Described(NamedTuple):
    """What an answer is made of, and the state writes that must be durable before it is sent."""

    parts: ShareGroupOffsetsParts
    rights: Rights
    tickets: dict[Ticket, None]
    room: RunRoom | None
    """The room for runs; None: the request does not ask for them."""


def describe_share_group_offsets(
    parts: ShareGroupOffsetsParts,
    context: RequestContext,
    request: DescribeShareGroupOffsetsRequest,
) -> DescribeShareGroupOffsetsResponse | Later[DescribeShareGroupOffsetsResponse]:
    """DescribeShareGroupOffsets (90): returns start offset, lag and runs of share partitions.

    Return the offsets once the state that they were read from is durable.
    """
    answer = parts.slices.run(partial(_answer, parts, context, request), context.connection_id)
    if not isinstance(answer, asyncio.Future) and not answer.tickets:
        return answer.response
    return Later(_when_durable(parts, context, request, answer))


def _undescribed(
    group: DescribeShareGroupOffsetsRequestGroup, error: KafkaError
) -> DescribeShareGroupOffsetsResponseGroup:
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=group.group_id,
        topics=(),
        error_code=error_code(error),
        error_message=str(error),
    )


class _PendingResponse(NamedTuple):
    """A response, and the state writes that must be durable before it is sent."""

    response: DescribeShareGroupOffsetsResponse
    tickets: dict[Ticket, None]


async def _when_durable(
    parts: ShareGroupOffsetsParts,
    context: RequestContext,
    request: DescribeShareGroupOffsetsRequest,
    pending: _PendingResponse | asyncio.Future[_PendingResponse],
) -> DescribeShareGroupOffsetsResponse:
    """Wait until the response is durable, and return it.

    A start offset that a client knows must not go back after a crash.
    """
    while True:
        answer = await pending if isinstance(pending, asyncio.Future) else pending
        try:
            for ticket in answer.tickets:
                await ticket
        except KafkaStorageError:
            # A failed write undid the state in this response.
            pending = parts.slices.run(
                partial(_answer, parts, context, request), context.connection_id
            )
        else:
            return answer.response


def _answer(
    parts: ShareGroupOffsetsParts,
    context: RequestContext,
    request: DescribeShareGroupOffsetsRequest,
) -> Steps[_PendingResponse]:
    describe = Permission(context.rights, required.DESCRIBE_GROUPS)
    room = RunRoom(request.runs_max) if request.runs_max > 0 else None
    about = _Described(parts, context.rights, {}, room)
    groups = []
    # A group that is named twice is answered once: a small request must not multiply its answer.
    for group, pause in paced(dict.fromkeys(request.groups), FEW):
        if (denial := describe.denial(group.group_id)) is not None:
            groups.append(_undescribed(group, denial))
        else:
            groups.append((yield from _group(about, group)))
        if pause:
            yield
    response = DescribeShareGroupOffsetsResponse(throttle_time=NO_THROTTLE, groups=tuple(groups))
    return _PendingResponse(response, about.tickets)


def _group(
    about: _Described, group: DescribeShareGroupOffsetsRequestGroup
) -> Steps[DescribeShareGroupOffsetsResponseGroup]:
    group_id = GroupId(group.group_id)
    describe = Permission(about.rights, required.DESCRIBE_TOPICS)
    topics: Iterable[tuple[TopicName, Sequence[int], Sequence[int]]]
    if group.topics is None:
        initialized = about.parts.share_group_coordinator.initialized(group_id)
        topics = [(name, indexes, ()) for name, indexes in initialized.items()]
    else:
        topics = [
            (TopicName(topic.topic_name), topic.partitions, topic.first_offsets)
            for topic in group.topics
        ]
    described = []
    for (name, indexes, firsts), pause in paced(topics, FEW):
        if (denial := describe.denial(name)) is None:
            wanted = zip(indexes, chain(firsts, repeat(0)), strict=False)
            described.append((yield from _described_topic(about, group_id, name, wanted)))
        # Only a topic that the request names is refused: the refusal of another would tell its
        # name.
        elif group.topics is not None:
            described.append((yield from _denied_topic(name, indexes, denial)))
        if pause:
            yield
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=group.group_id, topics=tuple(described), error_code=ErrorCode.none
    )


def _denied_topic(
    name: TopicName, indexes: Iterable[int], denial: KafkaError
) -> Steps[DescribeShareGroupOffsetsResponseTopic]:
    make = partial(_denied_partition, denial=denial)
    partitions = yield from of_each(make, tuple(indexes))
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=WireTopicName(name), topic_id=None, partitions=partitions
    )


def _denied_partition(index: int, denial: KafkaError) -> DescribeShareGroupOffsetsResponsePartition:
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=i32(index),
        start_offset=i64(-1),
        leader_epoch=i32(0),
        lag=i64(-1),
        error_code=error_code(denial),
        error_message=str(denial),
    )


def _described_topic(
    about: _Described, group_id: GroupId, name: TopicName, wanted: Iterable[tuple[int, int]]
) -> Steps[DescribeShareGroupOffsetsResponseTopic]:
    topic = about.parts.topics.catalog.find(name)
    partitions = []
    for (index, first_offset), pause in paced(wanted, FEW):
        if topic is not None:
            key = SharePartitionKey(group_id, topic.topic_id, index)
            ticket = about.parts.share_coordinator.last_write(key)
            # A failed write is done, too: the state that it lost is forgotten when the offsets are
            # read, in this step.
            if ticket is not None and not ticket.done:
                about.tickets[ticket] = None
        partitions.append(
            (yield from _described_partition(about, group_id, name, index, first_offset))
        )
        if pause:
            yield
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=WireTopicName(name),
        topic_id=None if topic is None else topic.topic_id,
        partitions=tuple(partitions),
    )


def _described_partition(
    about: _Described, group_id: GroupId, name: TopicName, index: int, first_offset: int
) -> Steps[DescribeShareGroupOffsetsResponsePartition]:
    """Return the offsets of a partition; as in Kafka, unknown values are -1 without an error."""
    parts, room = about.parts, about.room
    runs = NO_RUNS if room is None else NOTHING
    try:
        topic, log = parts.topics.named(name, index)
    except KafkaError:
        listing = NOTHING_KNOWN
    else:
        key = SharePartitionKey(group_id, topic.topic_id, index)
        listing = parts.share_group_coordinator.offset(key, log)
        if room is not None:
            runs = yield from described_runs(
                parts, key, log,
                start_offset=listing.start_offset, first_offset=first_offset, room=room,
            )  # fmt: skip
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=i32(index),
        start_offset=i64(listing.start_offset),
        leader_epoch=i32(listing.leader_epoch),
        lag=i64(listing.lag),
        error_code=ErrorCode.none,
        runs=runs,
    )


Wanted = tuple[AlterShareGroupOffsetsRequestTopic, AlterShareGroupOffsetsRequestPartition]

PartitionErrors = dict[tuple[TopicName, int], KafkaError | None]

PIECE_PARTITIONS = 256
"""Share partitions that are altered together; each piece is written on its own and may fail."""


def alter_share_group_offsets(
    parts: ShareGroupOffsetsParts, context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> Later[AlterShareGroupOffsetsResponse]:
    """AlterShareGroupOffsets (91): sets start offsets of an empty share group."""
    read = Permission(context.rights, required.READ_TOPICS)
    return Later(_alter(parts, request, read, context.limited_user))


async def _alter(
    parts: ShareGroupOffsetsParts,
    request: AlterShareGroupOffsetsRequest,
    read: Permission,
    user: Principal | None,
) -> AlterShareGroupOffsetsResponse:
    group_id, outcomes = GroupId(request.group_id), PartitionErrors()
    partitions = ((topic, partition) for topic in request.topics for partition in topic.partitions)
    # An error of the group fails the whole request, even a request without partitions.
    first_piece = _check_piece(parts, list(islice(partitions, PIECE_PARTITIONS)), outcomes, read)
    await parts.share_group_coordinator.alter_offsets(group_id, *first_piece, user=user)
    while piece := list(islice(partitions, PIECE_PARTITIONS)):
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
                # A partition that was refused before the write keeps its own, more precise error.
                outcomes[key] = outcomes[key] or failed
    return await parts.slices.finish(_response(parts.topics, request, outcomes, read))


def _check_piece(
    parts: ShareGroupOffsetsParts,
    piece: Sequence[Wanted],
    outcomes: PartitionErrors,
    read: Permission,
) -> tuple[dict[TopicIdPartition, int], Collection[Topic]]:
    """Return the offsets and topics that can be altered; ``outcomes`` gets the other errors."""
    offsets: dict[TopicIdPartition, int] = {}
    topics: dict[TopicName, Topic] = {}
    for wire_topic, partition in piece:
        name = TopicName(wire_topic.topic_name)
        key = (name, int(partition.partition_index))
        try:
            read.require(name)
            topic = _check(parts.topics, name, partition.partition_index, partition.start_offset)
        except KafkaError as error:
            outcomes[key] = error.with_traceback(None)
            continue
        outcomes[key] = None
        topics[name] = topic
        offsets[TopicIdPartition(topic.topic_id, partition.partition_index)] = (
            partition.start_offset
        )
    return offsets, topics.values()


def _check(topics: Topics, name: TopicName, partition: int, start_offset: int) -> Topic:
    topic, log = topics.named(name, partition)
    # Kafka stores any offset, and takes -1 for the reset policy (docs/differences.md).
    if not log.start_offset <= start_offset <= log.high_watermark:
        raise OffsetOutOfRange(
            f"{name}-{partition}: offset {start_offset} is outside the log, which holds "
            f"{log.start_offset} to {log.high_watermark}"
        )
    return topic


def _response(
    topics: Topics,
    request: AlterShareGroupOffsetsRequest,
    outcomes: PartitionErrors,
    read: Permission,
) -> Steps[AlterShareGroupOffsetsResponse]:
    responses = []
    for wire_topic, pause in paced(request.topics):
        name = TopicName(wire_topic.topic_name)
        # Kafka also shows the id of a topic that the principal may not read.
        topic = topics.catalog.find(name) if read.allows(name) else None
        indexes = (partition.partition_index for partition in wire_topic.partitions)
        partitions = yield from of_each(partial(_altered_partition, name, outcomes), indexes)
        responses.append(
            AlterShareGroupOffsetsResponseTopic(
                topic_name=wire_topic.topic_name,
                topic_id=None if topic is None else topic.topic_id,
                partitions=partitions,
            )
        )
        if pause:
            yield
    return AlterShareGroupOffsetsResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, responses=tuple(responses)
    )


def _altered_partition(
    name: TopicName, outcomes: PartitionErrors, index: i32
) -> AlterShareGroupOffsetsResponsePartition:
    error = outcomes[name, int(index)]
    return AlterShareGroupOffsetsResponsePartition(
        partition_index=index,
        error_code=ErrorCode.none if error is None else error_code(error),
        error_message=None if error is None else str(error),
    )


def delete_share_group_offsets(
    parts: ShareGroupOffsetsParts, context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> Later[DeleteShareGroupOffsetsResponse]:
    """DeleteShareGroupOffsets (92): deletes the offsets of topics in an empty share group."""
    read = Permission(context.rights, required.READ_TOPICS)
    return Later(_delete(parts, request, read))


async def _delete(
    parts: ShareGroupOffsetsParts, request: DeleteShareGroupOffsetsRequest, read: Permission
) -> DeleteShareGroupOffsetsResponse:
    group_id = GroupId(request.group_id)
    # An error of the group fails the whole request; the results of topics have only errors of
    # topics.
    parts.share_group_coordinator.check_empty(group_id)
    # Each name is answered once, so that no request multiplies its answer.
    topics = {topic.topic_name: topic for topic in request.topics}
    responses = []
    for wire_topic in topics.values():
        await parts.slices.turn()
        denial = read.denial(wire_topic.topic_name)
        responses.append(
            await _deleted_topic(parts, group_id, wire_topic)
            if denial is None
            else _not_deleted(wire_topic, None, denial)
        )
    return DeleteShareGroupOffsetsResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, responses=tuple(responses)
    )


async def _deleted_topic(
    parts: ShareGroupOffsetsParts,
    group_id: GroupId,
    wire_topic: DeleteShareGroupOffsetsRequestTopic,
) -> DeleteShareGroupOffsetsResponseTopic:
    topic = parts.topics.catalog.find(TopicName(wire_topic.topic_name))
    topic_id = None if topic is None else topic.topic_id
    try:
        existing_topic = parts.topics.catalog.topic(TopicName(wire_topic.topic_name))
        await parts.share_group_coordinator.delete_offsets(group_id, existing_topic)
    except KafkaError as error:
        return _not_deleted(wire_topic, topic_id, error)
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=wire_topic.topic_name, topic_id=topic_id, error_code=ErrorCode.none
    )


def _not_deleted(
    wire_topic: DeleteShareGroupOffsetsRequestTopic, topic_id: UUID | None, error: KafkaError
) -> DeleteShareGroupOffsetsResponseTopic:
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=wire_topic.topic_name,
        topic_id=topic_id,
        error_code=error_code(error),
        error_message=str(error),
    )


SERVED = {
    90: ApiHandler(
        describe_share_group_offsets,
        checks=(required.DESCRIBE_GROUPS, required.DESCRIBE_TOPICS),
    ),
    91: ApiHandler(
        alter_share_group_offsets,
        gates=(required.READ_GROUP,),
        checks=(required.READ_TOPICS,),
    ),
    92: ApiHandler(
        delete_share_group_offsets,
        gates=(required.DELETE_GROUP,),
        checks=(required.READ_TOPICS,),
    ),
}
