"""CreatePartitions (37): increases the number of partitions of topics."""

from __future__ import annotations

from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_partitions.v3.response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from kio.schema.errors import ErrorCode

from sharegroup.broker.handler_contract import Later, RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE, milliseconds
from sharegroup.broker.parts import Parts
from sharegroup.broker.quotas import Mutations
from sharegroup.broker.security import requirements as required
from sharegroup.broker.security.permission import Permission
from sharegroup.core.security.principal import Principal
from sharegroup.errors import InvalidReplicaAssignment, InvalidTopic, KafkaError
from sharegroup.ids import TopicName

STRICT_VERSION = 3
"""From this version on, clients know the error THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


def handle(
    parts: Parts, context: RequestContext, request: CreatePartitionsRequest
) -> Later[CreatePartitionsResponse]:
    mutations = parts.quotas.mutations(context, is_strict=context.api_version >= STRICT_VERSION)
    alter = Permission(context.rights, required.ALTER_TOPICS)
    return Later(_grow_all(parts, request, alter, mutations, context.limited_user))


async def _grow_all(
    parts: Parts,
    request: CreatePartitionsRequest,
    alter: Permission,
    mutations: Mutations,
    user: Principal | None,
) -> CreatePartitionsResponse:
    results = []
    for topic in request.topics:
        await parts.slices.turn()
        try:
            alter.require(topic.name)
            await _grow(parts, topic, mutations, user, validate_only=request.validate_only)
            results.append(CreatePartitionsTopicResult(name=topic.name, error_code=ErrorCode.none))
        except KafkaError as error:
            results.append(_failed(topic, error))
    return CreatePartitionsResponse(
        throttle_time=milliseconds(mutations.throttle_ms), results=tuple(results)
    )


def refuse(request: CreatePartitionsRequest, error: KafkaError) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        throttle_time=NO_THROTTLE, results=tuple(_failed(topic, error) for topic in request.topics)
    )


async def _grow(
    parts: Parts,
    wanted: CreatePartitionsTopic,
    mutations: Mutations,
    user: Principal | None,
    *,
    validate_only: bool,
) -> None:
    name = TopicName(wanted.name)
    topic = parts.topics.catalog.topic(name)
    if topic.is_internal:
        raise InvalidTopic(f"{name!r} is internal: its number of partitions is fixed")
    node_id = parts.node.node_id
    if any(tuple(assignment.broker_ids) != (node_id,) for assignment in wanted.assignments or ()):
        raise InvalidReplicaAssignment(
            f"topic {name!r}: replicas can only be assigned to broker {node_id}"
        )
    parts.topics.check_growth(name, wanted.count, user=user)
    if not validate_only:
        mutations.record(wanted.count - topic.partition_count)
        await parts.topics.grow(name, wanted.count, user=user)


def _failed(topic: CreatePartitionsTopic, error: KafkaError) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=topic.name, error_code=error_code(error), error_message=str(error)
    )
