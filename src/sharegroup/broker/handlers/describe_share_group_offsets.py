"""DescribeShareGroupOffsets (90): returns start offset and lag of share partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

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

from sharegroup.broker.groups.share_group_coordinator import OffsetListing
from sharegroup.broker.handler_contract import Later, RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.broker.security import requirements as required
from sharegroup.broker.security.permission import Permission
from sharegroup.broker.security.rights import Rights
from sharegroup.errors import KafkaError, KafkaStorageError
from sharegroup.ids import GroupId, SharePartitionKey, TopicName
from sharegroup.steps import Steps, of_each
from sharegroup.storage.sync.tickets import Ticket

FEW = 15
"""Bit mask: a step ends after every 16 partitions, topics or groups."""

NOTHING_KNOWN = OffsetListing(start_offset=-1, leader_epoch=0, lag=-1)


def handle(
    parts: Parts, context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse | Later[DescribeShareGroupOffsetsResponse]:
    """Return the offsets once the state that they were read from is durable."""
    answer = parts.slices.run(partial(_answer, parts, context, request), context.connection_id)
    if not isinstance(answer, asyncio.Future) and not answer.tickets:
        return answer.response
    return Later(_when_durable(parts, context, request, answer))


def refuse(
    request: DescribeShareGroupOffsetsRequest, error: KafkaError
) -> Steps[DescribeShareGroupOffsetsResponse]:
    groups = yield from of_each(partial(_failed, error=error), request.groups)
    return DescribeShareGroupOffsetsResponse(throttle_time=NO_THROTTLE, groups=groups)


def _failed(
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
    parts: Parts,
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
    parts: Parts, context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> Steps[_PendingResponse]:
    describe = Permission(context.rights, required.DESCRIBE_GROUPS)
    groups, tickets = [], dict[Ticket, None]()
    for group in dict.fromkeys(request.groups):
        if (denial := describe.denial(group.group_id)) is not None:
            groups.append(_failed(group, denial))
        else:
            groups.append((yield from _group(parts, context.rights, group, tickets)))
        if len(groups) & FEW == FEW:
            yield
    response = DescribeShareGroupOffsetsResponse(throttle_time=NO_THROTTLE, groups=tuple(groups))
    return _PendingResponse(response, tickets)


def _group(
    parts: Parts,
    rights: Rights,
    wanted: DescribeShareGroupOffsetsRequestGroup,
    tickets: dict[Ticket, None],
) -> Steps[DescribeShareGroupOffsetsResponseGroup]:
    group_id = GroupId(wanted.group_id)
    describe = Permission(rights, required.DESCRIBE_TOPICS)
    topics: Iterable[tuple[TopicName, Iterable[int]]]
    if wanted.topics is None:
        topics = parts.share_group_coordinator.initialized(group_id).items()
    else:
        topics = [(TopicName(topic.topic_name), topic.partitions) for topic in wanted.topics]
    described = []
    for name, indexes in topics:
        if (denial := describe.denial(name)) is None:
            described.append((yield from _topic(parts, group_id, name, indexes, tickets)))
        elif wanted.topics is not None:
            described.append((yield from _denied_topic(name, indexes, denial)))
        if len(described) & FEW == FEW:
            yield
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=wanted.group_id, topics=tuple(described), error_code=ErrorCode.none
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


def _topic(
    parts: Parts,
    group_id: GroupId,
    name: TopicName,
    indexes: Iterable[int],
    tickets: dict[Ticket, None],
) -> Steps[DescribeShareGroupOffsetsResponseTopic]:
    topic = parts.topics.catalog.find(name)
    partitions = []
    for index in indexes:
        partitions.append(_partition(parts, group_id, name, index))
        if topic is not None:
            key = SharePartitionKey(group_id, topic.topic_id, index)
            ticket = parts.share_coordinator.last_write(key)
            if ticket is not None and not ticket.done:
                tickets[ticket] = None
        if len(partitions) & FEW == FEW:
            yield
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=WireTopicName(name),
        topic_id=None if topic is None else topic.topic_id,
        partitions=tuple(partitions),
    )


def _partition(
    parts: Parts, group_id: GroupId, name: TopicName, index: int
) -> DescribeShareGroupOffsetsResponsePartition:
    """Return the offsets of a partition; as in Kafka, unknown values are -1 without an error."""
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
