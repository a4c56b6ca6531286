"""Requests that change topics (19, 20, 37): create and delete them, and add partitions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_partitions.v3.response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.create_topics.v7.response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName as WireTopicName
from kio.static.primitive import i8, i16, i32

from sharegroup.broker.access import checks as required
from sharegroup.broker.access.permission import Permission, is_allowed_on_cluster
from sharegroup.broker.access.quotas import Mutations
from sharegroup.broker.access.rights import UNLIMITED, Rights
from sharegroup.broker.cluster.catalog import Topic
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.broker.configuration.setting_changes import check_length, check_topic
from sharegroup.broker.configuration.settings import describe_topic
from sharegroup.broker.handler_contract import (
    ApiHandler,
    Later,
    RequestContext,
    error_code,
    milliseconds,
)
from sharegroup.broker.handlers.parts import HasConfig, HasNode, HasQuotas, HasSlices, HasTopics
from sharegroup.core.security.principal import Principal
from sharegroup.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    KafkaError,
    PolicyViolation,
    UnknownTopicId,
)
from sharegroup.ids import TopicId, TopicName
from sharegroup.steps import counted

STRICT_CREATION = 6
"""From this version on, clients know the error THROTTLING_QUOTA_EXCEEDED (KIP-599)."""

BROKER_DEFAULT = -1
"""The number of partitions or replicas that stands for the broker's default."""


class TopicsParts(HasConfig, HasNode, HasQuotas, HasSlices, HasTopics, Protocol):
    """What these requests touch of the broker."""


def create_topics(
    parts: TopicsParts, context: RequestContext, request: CreateTopicsRequest
) -> Later[CreateTopicsResponse]:
    """CreateTopics (19): creates topics one by one; a failure does not affect the others."""
    mutations = parts.quotas.mutations(context, is_strict=context.api_version >= STRICT_CREATION)
    return Later(_create_all(parts, context, request, mutations))


async def _create_all(
    parts: TopicsParts, context: RequestContext, request: CreateTopicsRequest, mutations: Mutations
) -> CreateTopicsResponse:
    rights, user = context.rights, context.limited_user
    # CREATE on the cluster or on the topic: that the first is missing is no denial yet.
    may_create_all = is_allowed_on_cluster(rights, required.CREATE_IN_CLUSTER, is_audited=False)
    create = Permission(rights, required.CREATE_TOPICS)
    read_configs = Permission(rights, required.DESCRIBE_CONFIGS_OF_TOPICS, is_audited=False)
    named = await parts.slices.finish(counted(topic.name for topic in request.topics))
    results = []
    for topic in request.topics:
        await parts.slices.turn()
        try:
            if named[topic.name] > 1:
                raise InvalidRequest(f"topic {topic.name!r} is named twice in one request")
            if not may_create_all:
                create.require(topic.name)
            created = await _create(
                parts, topic, mutations, user, validate_only=request.validate_only
            )
            is_shown = read_configs.allows(topic.name)
            results.append(created if is_shown else _without_configs(created))
        except KafkaError as error:
            results.append(_not_created(topic, error))
    return CreateTopicsResponse(
        throttle_time=milliseconds(mutations.throttle_ms), topics=tuple(results)
    )


async def _create(
    parts: TopicsParts,
    topic: CreatableTopic,
    mutations: Mutations,
    user: Principal | None,
    *,
    validate_only: bool,
) -> CreatableTopicResult:
    name = TopicName(topic.name)
    partitions = _partitions(parts, topic)
    settings = _settings(topic)
    if validate_only or parts.quotas.is_on:  # A topic that cannot be created does not count.
        parts.topics.check_new(name, partitions=partitions, settings=settings, user=user)
    if validate_only:
        topic_id = None
    else:
        mutations.record(partitions)
        created = await parts.topics.create(
            name, partitions=partitions, settings=settings, user=user
        )
        topic_id = created.topic_id
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_code=ErrorCode.none,
        error_message=None,
        num_partitions=i32(partitions),
        replication_factor=i16(1),
        configs=tuple(
            CreatableTopicConfigs(
                name=setting.name,
                value=setting.value,
                read_only=False,
                config_source=i8(setting.source),
                is_sensitive=False,
            )
            for setting in describe_topic(parts.config, settings)
        ),
    )


def _without_configs(created: CreatableTopicResult) -> CreatableTopicResult:
    """Return the result for a principal that may not see the configuration of the topic."""
    return replace(
        created,
        topic_config_error_code=i16(ErrorCode.topic_authorization_failed),
        num_partitions=i32(-1),
        replication_factor=i16(-1),
        configs=(),
    )


def _settings(topic: CreatableTopic) -> dict[str, str]:
    settings: dict[str, str] = {}
    for config in topic.configs:
        if config.value is None:
            raise InvalidConfig(f"topic {topic.name!r}: {config.name} has no value")
        check_length(config.name, config.value)
        settings[config.name] = config.value
    check_topic(settings)
    return settings


def _partitions(parts: TopicsParts, topic: CreatableTopic) -> int:
    """Return the requested number of partitions, which replica assignments may give instead."""
    node_id = parts.node.node_id
    if topic.replication_factor not in (BROKER_DEFAULT, 1):
        raise InvalidReplicationFactor(
            f"topic {topic.name!r}: replication factor {topic.replication_factor}, "
            "but there is one broker; use 1 or -1"
        )
    if topic.assignments:
        numbers = sorted(int(assignment.partition_index) for assignment in topic.assignments)
        if topic.num_partitions != BROKER_DEFAULT or topic.replication_factor != BROKER_DEFAULT:
            raise InvalidRequest(
                f"topic {topic.name!r}: a request that assigns replicas must give -1 as number of "
                f"partitions and of replicas, not {topic.num_partitions} and "
                f"{topic.replication_factor}"
            )
        if numbers != list(range(len(numbers))):
            raise InvalidReplicaAssignment(
                f"topic {topic.name!r}: the assigned partitions must be 0 to {len(numbers) - 1}, "
                f"not {numbers[:10]}"
            )
        if any(tuple(assignment.broker_ids) != (node_id,) for assignment in topic.assignments):
            raise InvalidReplicaAssignment(
                f"topic {topic.name!r}: replicas can only be assigned to broker {node_id}"
            )
        return len(topic.assignments)
    if topic.num_partitions == BROKER_DEFAULT:
        return parts.config.server.partitions_default
    if topic.num_partitions < 1:
        raise InvalidPartitions(
            f"topic {topic.name!r}: partitions must be 1 or more, not {topic.num_partitions}"
        )
    return topic.num_partitions


def _not_created(topic: CreatableTopic, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name,
        topic_id=None,
        error_code=error_code(error),
        error_message=str(error),
        configs=None,
    )


STRICT_DELETION = 5
"""From this version on, clients know the error THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


def delete_topics(
    parts: TopicsParts, context: RequestContext, request: DeleteTopicsRequest
) -> Later[DeleteTopicsResponse]:
    """DeleteTopics (20): deletes topics by name, or by id from version 6 on."""
    mutations = parts.quotas.mutations(context, is_strict=context.api_version >= STRICT_DELETION)
    return Later(_delete_all(parts, context.rights, request, mutations))


async def _delete_all(
    parts: TopicsParts, rights: Rights, request: DeleteTopicsRequest, mutations: Mutations
) -> DeleteTopicsResponse:
    # DELETE on the cluster allows every topic, as in Kafka's `ControllerApis`.
    if is_allowed_on_cluster(rights, required.DELETE_IN_CLUSTER, is_audited=False):
        rights = UNLIMITED
    describe = Permission(rights, required.DESCRIBE_TOPICS)
    delete = Permission(rights, required.DELETE_TOPICS)
    responses = []
    for wire_topic in request.topics:
        await parts.slices.turn()
        try:
            topic = _find(parts.topics, wire_topic, describe)
            delete.require(topic.name, wire_topic.topic_id)
            _check(parts.config, topic)
            # After the checks: a deletion that is refused does not count for the quota.
            mutations.record(topic.partition_count)
            await parts.topics.delete(topic)
            responses.append(
                DeletableTopicResult(
                    name=WireTopicName(topic.name),
                    topic_id=topic.topic_id,
                    error_code=ErrorCode.none,
                )
            )
        except KafkaError as error:
            responses.append(_not_deleted(wire_topic, error))
    return DeleteTopicsResponse(
        throttle_time=milliseconds(mutations.throttle_ms), responses=tuple(responses)
    )


def upgrade_delete_topics(request: Any, newest: type[DeleteTopicsRequest]) -> DeleteTopicsRequest:
    """Convert a request from before version 6, which has only the names of topics."""
    return newest(
        topics=tuple(DeleteTopicState(name=name, topic_id=None) for name in request.topic_names),
        timeout=request.timeout,
    )


def _find(topics: Topics, wire_topic: DeleteTopicState, describe: Permission) -> Topic:
    catalog = topics.catalog
    if wire_topic.name is not None and wire_topic.topic_id is not None:
        raise InvalidRequest("name a topic by its name or by its id, not by both")
    if wire_topic.name is not None:
        describe.require(wire_topic.name)
        return catalog.topic(TopicName(wire_topic.name))
    # No DESCRIBE is needed: an error about an id never shows the name of its topic.
    topic = None if wire_topic.topic_id is None else catalog.by_id(TopicId(wire_topic.topic_id))
    if topic is None:
        raise UnknownTopicId(f"there is no topic with id {wire_topic.topic_id}")
    return topic


def _check(config: LiveConfig, topic: Topic) -> None:
    """Raise unless the topic can be deleted."""
    if topic.is_internal:
        raise InvalidTopic(f"{topic.name!r} is internal and cannot be deleted")
    if not config.server.delete_topics:
        raise PolicyViolation("delete.topic.enable is false")


def _not_deleted(wire_topic: DeleteTopicState, error: KafkaError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=wire_topic.name,
        topic_id=wire_topic.topic_id,
        error_code=error_code(error),
        error_message=str(error),
    )


STRICT_GROWTH = 3
"""From this version on, clients know the error THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


def create_partitions(
    parts: TopicsParts, context: RequestContext, request: CreatePartitionsRequest
) -> Later[CreatePartitionsResponse]:
    """CreatePartitions (37): increases the number of partitions of topics."""
    mutations = parts.quotas.mutations(context, is_strict=context.api_version >= STRICT_GROWTH)
    alter = Permission(context.rights, required.ALTER_TOPICS)
    return Later(_grow_all(parts, request, alter, mutations, context.limited_user))


async def _grow_all(
    parts: TopicsParts,
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
            results.append(_not_grown(topic, error))
    return CreatePartitionsResponse(
        throttle_time=milliseconds(mutations.throttle_ms), results=tuple(results)
    )


async def _grow(
    parts: TopicsParts,
    growth: CreatePartitionsTopic,
    mutations: Mutations,
    user: Principal | None,
    *,
    validate_only: bool,
) -> None:
    name = TopicName(growth.name)
    topic = parts.topics.catalog.topic(name)
    if topic.is_internal:
        raise InvalidTopic(f"{name!r} is internal: its number of partitions is fixed")
    node_id = parts.node.node_id
    if any(tuple(assignment.broker_ids) != (node_id,) for assignment in growth.assignments or ()):
        raise InvalidReplicaAssignment(
            f"topic {name!r}: replicas can only be assigned to broker {node_id}"
        )
    parts.topics.check_growth(name, growth.count, user=user)
    if not validate_only:
        mutations.record(growth.count - topic.partition_count)
        await parts.topics.grow(name, growth.count, user=user)


def _not_grown(topic: CreatePartitionsTopic, error: KafkaError) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=topic.name, error_code=error_code(error), error_message=str(error)
    )


SERVED = {
    19: ApiHandler(
        create_topics,
        checks=(
            required.CREATE_IN_CLUSTER,
            required.CREATE_TOPICS,
            required.DESCRIBE_CONFIGS_OF_TOPICS,
        ),
        refused={"num_partitions": -1, "replication_factor": -1, "configs": None},
    ),
    20: ApiHandler(
        delete_topics,
        checks=(required.DELETE_IN_CLUSTER, required.DELETE_TOPICS, required.DESCRIBE_TOPICS),
        from_older=upgrade_delete_topics,
    ),
    37: ApiHandler(
        create_partitions,
        checks=(required.ALTER_TOPICS,),
    ),
}
