"""CreateTopics (19): creates topics one by one; a failure does not affect the others."""

from __future__ import annotations

from dataclasses import replace

from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.create_topics.v7.response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8, i16, i32

from sharegroup.broker.configuration.setting_changes import check_length, check_topic
from sharegroup.broker.configuration.settings import describe_topic
from sharegroup.broker.handler_contract import Later, RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE, milliseconds
from sharegroup.broker.parts import Parts
from sharegroup.broker.quotas import Mutations
from sharegroup.broker.security import requirements as required
from sharegroup.broker.security.permission import Permission, is_allowed_on_cluster
from sharegroup.core.security.principal import Principal
from sharegroup.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    KafkaError,
)
from sharegroup.ids import TopicName
from sharegroup.steps import counted

STRICT_VERSION = 6
"""From this version on, clients know the error THROTTLING_QUOTA_EXCEEDED (KIP-599)."""

BROKER_DEFAULT = -1
"""The number of partitions or replicas that stands for the broker's default."""


def handle(
    parts: Parts, context: RequestContext, request: CreateTopicsRequest
) -> Later[CreateTopicsResponse]:
    mutations = parts.quotas.mutations(context, is_strict=context.api_version >= STRICT_VERSION)
    return Later(_create_all(parts, context, request, mutations))


async def _create_all(
    parts: Parts, context: RequestContext, request: CreateTopicsRequest, mutations: Mutations
) -> CreateTopicsResponse:
    rights, user = context.rights, context.limited_user
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
            results.append(_failed(topic, error))
    return CreateTopicsResponse(
        throttle_time=milliseconds(mutations.throttle_ms), topics=tuple(results)
    )


def refuse(request: CreateTopicsRequest, error: KafkaError) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        throttle_time=NO_THROTTLE, topics=tuple(_failed(topic, error) for topic in request.topics)
    )


async def _create(
    parts: Parts,
    wanted: CreatableTopic,
    mutations: Mutations,
    user: Principal | None,
    *,
    validate_only: bool,
) -> CreatableTopicResult:
    name = TopicName(wanted.name)
    partitions = _partitions(parts, wanted)
    settings = _settings(wanted)
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
        name=wanted.name,
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


def _settings(wanted: CreatableTopic) -> dict[str, str]:
    settings: dict[str, str] = {}
    for config in wanted.configs:
        if config.value is None:
            raise InvalidConfig(f"topic {wanted.name!r}: {config.name} has no value")
        check_length(config.name, config.value)
        settings[config.name] = config.value
    check_topic(settings)
    return settings


def _partitions(parts: Parts, wanted: CreatableTopic) -> int:
    """Return the requested number of partitions, which replica assignments may give instead."""
    node_id = parts.node.node_id
    if wanted.replication_factor not in (BROKER_DEFAULT, 1):
        raise InvalidReplicationFactor(
            f"topic {wanted.name!r}: replication factor {wanted.replication_factor}, "
            "but there is one broker; use 1 or -1"
        )
    if wanted.assignments:
        numbers = sorted(int(assignment.partition_index) for assignment in wanted.assignments)
        if wanted.num_partitions != BROKER_DEFAULT or wanted.replication_factor != BROKER_DEFAULT:
            raise InvalidRequest(
                f"topic {wanted.name!r}: a request that assigns replicas must give -1 as number of "
                f"partitions and of replicas, not {wanted.num_partitions} and "
                f"{wanted.replication_factor}"
            )
        if numbers != list(range(len(numbers))):
            raise InvalidReplicaAssignment(
                f"topic {wanted.name!r}: the assigned partitions must be 0 to {len(numbers) - 1}, "
                f"not {numbers[:10]}"
            )
        if any(tuple(assignment.broker_ids) != (node_id,) for assignment in wanted.assignments):
            raise InvalidReplicaAssignment(
                f"topic {wanted.name!r}: replicas can only be assigned to broker {node_id}"
            )
        return len(wanted.assignments)
    if wanted.num_partitions == BROKER_DEFAULT:
        return parts.config.server.partitions_default
    if wanted.num_partitions < 1:
        raise InvalidPartitions(
            f"topic {wanted.name!r}: partitions must be 1 or more, not {wanted.num_partitions}"
        )
    return wanted.num_partitions


def _failed(topic: CreatableTopic, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name,
        topic_id=None,
        error_code=error_code(error),
        error_message=str(error),
        configs=None,
    )
