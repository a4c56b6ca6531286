"""CreatePartitions (37): increases the number of partitions of topics."""

from __future__ import annotations

from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_partitions.v3.response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from kio.schema.errors import ErrorCode

from sharegroup.broker.handler_contract import Later, RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.broker.security import requirements as required
from sharegroup.broker.security.permission import Permission
from sharegroup.errors import InvalidReplicaAssignment, InvalidTopic, KafkaError
from sharegroup.ids import TopicName


def handle(
    parts: Parts, context: RequestContext, request: CreatePartitionsRequest
) -> Later[CreatePartitionsResponse]:
    alter = Permission(context.rights, required.ALTER_TOPICS)
    return Later(_grow_all(parts, request, alter))


async def _grow_all(
    parts: Parts, request: CreatePartitionsRequest, alter: Permission
) -> CreatePartitionsResponse:
    results = []
    for topic in request.topics:
        await parts.slices.turn()
        try:
            alter.require(topic.name)
            await _grow(parts, topic, validate_only=request.validate_only)
            results.append(CreatePartitionsTopicResult(name=topic.name, error_code=ErrorCode.none))
        except KafkaError as error:
            results.append(_failed(topic, error))
    return CreatePartitionsResponse(throttle_time=NO_THROTTLE, results=tuple(results))


def refuse(request: CreatePartitionsRequest, error: KafkaError) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        throttle_time=NO_THROTTLE, results=tuple(_failed(topic, error) for topic in request.topics)
    )


async def _grow(parts: Parts, wanted: CreatePartitionsTopic, *, validate_only: bool) -> None:
    name = TopicName(wanted.name)
    topic = parts.topics.catalog.topic(name)
    if topic.is_internal:
        raise InvalidTopic(f"{name!r} is internal: its number of partitions is fixed")
    node_id = parts.node.node_id
    if any(tuple(assignment.broker_ids) != (node_id,) for assignment in wanted.assignments or ()):
        raise InvalidReplicaAssignment(
            f"topic {name!r}: replicas can only be assigned to broker {node_id}"
        )
    if validate_only:
        parts.topics.check_growth(name, wanted.count)
    else:
        await parts.topics.grow(name, wanted.count)


def _failed(topic: CreatePartitionsTopic, error: KafkaError) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=topic.name, error_code=error_code(error), error_message=str(error)
    )
