"""Requests about settings (32, 33, 44, 74) of topics, groups and the broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from functools import partial
from typing import Any, Protocol, TypeVar

from kio.schema.alter_configs.v2.request import AlterConfigsRequest, AlterConfigsResource
from kio.schema.alter_configs.v2.response import AlterConfigsResourceResponse, AlterConfigsResponse
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1.request import (
    AlterConfigsResource as IncrementalResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import (
    AlterConfigsResourceResponse as IncrementalResourceResponse,
    IncrementalAlterConfigsResponse,
)
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.schema.list_config_resources.v1.response import ConfigResource, ListConfigResourcesResponse
from kio.static.primitive import i8

from sharegroup.broker import loggers
from sharegroup.broker.access import checks as required
from sharegroup.broker.access.config_permissions import DESCRIBE_CONFIGS, ConfigPermissions
from sharegroup.broker.configuration import settings
from sharegroup.broker.configuration.config_values import check_topic_name
from sharegroup.broker.configuration.setting_changes import SettingChange
from sharegroup.broker.handler_contract import (
    NO_THROTTLE,
    ApiHandler,
    Handling,
    Later,
    RequestContext,
    error_code,
)
from sharegroup.broker.handlers.settings.config_changes import ConfigChangesParts, alter_each
from sharegroup.errors import InvalidRequest, KafkaError, UnsupportedVersion
from sharegroup.ids import GroupId, TopicName
from sharegroup.protocol_enums import ConfigOperation, ResourceType
from sharegroup.steps import Steps

Response = TypeVar("Response")

RESOURCES_MAX = 200
"""Limit for one request, because the response has dozens of settings for each resource."""

BROKER_WEIGHT = 10
"""Resources for which a broker counts, because it has ten times the settings of a topic."""


class ConfigsParts(ConfigChangesParts, Protocol):
    """What these requests touch of the broker."""


def describe_configs(
    parts: ConfigsParts, context: RequestContext, request: DescribeConfigsRequest
) -> Steps[DescribeConfigsResponse]:
    """DescribeConfigs (32): lists the settings of topics, groups, brokers with their sources."""
    brokers = sum(int(entry.resource_type) == ResourceType.BROKER for entry in request.resources)
    count = len(request.resources) + (BROKER_WEIGHT - 1) * brokers
    if count > RESOURCES_MAX:
        raise InvalidRequest(
            f"{len(request.resources)} resources in one request; {RESOURCES_MAX} are allowed, and "
            f"each of its {brokers} brokers counts as {BROKER_WEIGHT}"
        )
    permissions = ConfigPermissions(context.rights, DESCRIBE_CONFIGS)
    results = []
    for resource in request.resources:
        denial = permissions.denial(resource.resource_type, resource.resource_name)
        results.append(
            _resource(parts, request, resource) if denial is None else _failed(resource, denial)
        )
        yield
    return DescribeConfigsResponse(throttle_time=NO_THROTTLE, results=tuple(results))


def _resource(
    parts: ConfigsParts, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    try:
        all_settings = _settings(parts, resource)
    except KafkaError as error:
        return _failed(resource, error)
    names = set(resource.configuration_keys or ())
    return DescribeConfigsResult(
        error_code=ErrorCode.none,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=tuple(
            _result(setting, request)
            for setting in all_settings
            if not names or setting.name in names
        ),
    )


def _settings(parts: ConfigsParts, resource: DescribeConfigsResource) -> Iterable[settings.Setting]:
    catalog, name = parts.topics.catalog, resource.resource_name
    if int(resource.resource_type) == ResourceType.TOPIC:
        check_topic_name(TopicName(name))  # An invalid name is another error than a missing topic.
        return settings.describe_topic(parts.config, catalog.topic(TopicName(name)).settings)
    if int(resource.resource_type) == ResourceType.GROUP:
        if not name:
            raise InvalidRequest("a group's configuration needs the group's id, not an empty one")
        own = catalog.group_settings(GroupId(name))
        return settings.describe_group(parts.config, own)
    if int(resource.resource_type) == ResourceType.CLIENT_METRICS:
        if not name:
            raise InvalidRequest("a client metrics resource has a name, not an empty one")
        return settings.describe_client_metrics(catalog.client_metrics.all().get(name, {}))
    if int(resource.resource_type) == ResourceType.BROKER_LOGGER:
        if not name:
            raise InvalidRequest("the loggers of a broker need its node id, not an empty name")
        settings.check_is_this_broker(name, node_id=parts.node.node_id)
        return settings.describe_loggers(loggers.logger_levels())
    if int(resource.resource_type) == ResourceType.BROKER:
        settings.check_is_this_broker(name, node_id=parts.node.node_id)
        broker_settings = settings.describe_broker(parts.config)
        return broker_settings if name else settings.of_all_brokers(broker_settings)
    raise InvalidRequest(f"configurations of resource type {resource.resource_type} are not served")


def _result(
    setting: settings.Setting, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=setting.name,
        value=None if setting.is_sensitive else setting.value,
        read_only=setting.read_only,
        config_source=i8(setting.source),
        is_sensitive=setting.is_sensitive,
        synonyms=tuple(
            DescribeConfigsSynonym(
                name=name, value=None if setting.is_sensitive else value, source=i8(source)
            )
            for name, value, source in (setting.synonyms if request.include_synonyms else ())
        ),
        config_type=i8(setting.kind),
        documentation=setting.text if request.include_documentation else None,
    )


def _failed(resource: DescribeConfigsResource, error: KafkaError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error_code(error),
        error_message=str(error),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=(),
    )


KNOWN = frozenset(ResourceType)
VERSION_OF_METRICS_ALONE = 0
"""The version without resource types, which asks for the resources of client metrics."""


def list_config_resources(
    parts: ConfigsParts, context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """ListConfigResources (74): lists topics, groups with settings, the broker (KIP-1142)."""
    types: Set[int] = {int(resource_type) for resource_type in request.resource_types} or KNOWN
    if context.api_version == VERSION_OF_METRICS_ALONE:
        types = {ResourceType.CLIENT_METRICS}
    if unknown := sorted(types - KNOWN):
        raise UnsupportedVersion(f"configurations of type {unknown[0]} are not known")
    return ListConfigResourcesResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        config_resources=tuple(
            ConfigResource(resource_name=name, resource_type=i8(kind))
            for kind, name in _resources(parts)
            if kind in types
        ),
    )


def _resources(parts: ConfigsParts) -> Iterator[tuple[int, str]]:
    catalog = parts.topics.catalog
    yield from ((ResourceType.GROUP, group_id) for group_id in catalog.groups_with_settings())
    yield from (
        (ResourceType.CLIENT_METRICS, name) for name in sorted(catalog.client_metrics.all())
    )
    yield ResourceType.BROKER_LOGGER, str(parts.node.node_id)
    yield ResourceType.BROKER, str(parts.node.node_id)
    yield from ((ResourceType.TOPIC, topic.name) for topic in catalog.topics())


def alter_configs(
    parts: ConfigsParts, context: RequestContext, request: AlterConfigsRequest
) -> Later[AlterConfigsResponse]:
    """AlterConfigs (33): replaces all settings of topics, groups or the broker.

    Older clients have no other request for this. Settings that a request does not name return to
    their default values.
    """
    make = partial(AlterConfigsResponse, throttle_time=NO_THROTTLE)
    return Later(_alter(parts, context, request, _replacing, AlterConfigsResourceResponse, make))


def _replacing(resource: AlterConfigsResource, own: Mapping[str, str]) -> tuple[SettingChange, ...]:
    """Return the changes that turn the settings ``own`` into those of the request."""
    if int(resource.resource_type) == ResourceType.BROKER_LOGGER:
        raise InvalidRequest("log levels are changed by IncrementalAlterConfigs, not AlterConfigs")
    named = {config.name for config in resource.configs}
    return (
        *(
            SettingChange(config.name, ConfigOperation.SET, config.value)
            for config in resource.configs
        ),
        *(SettingChange(name, ConfigOperation.DELETE, None) for name in own if name not in named),
    )


def incremental_alter_configs(
    parts: ConfigsParts, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> Later[IncrementalAlterConfigsResponse]:
    """IncrementalAlterConfigs (44): changes single settings of topics, groups and the broker."""
    make = partial(IncrementalAlterConfigsResponse, throttle_time=NO_THROTTLE)
    return Later(_alter(parts, context, request, _changes, IncrementalResourceResponse, make))


def _changes(resource: IncrementalResource, _own: Mapping[str, str]) -> tuple[SettingChange, ...]:
    return tuple(
        SettingChange(config.name, config.config_operation, config.value)
        for config in resource.configs
    )


async def _alter(
    parts: ConfigsParts,
    context: RequestContext,
    request: AlterConfigsRequest | IncrementalAlterConfigsRequest,
    changes_of: Callable[[Any, Mapping[str, str]], tuple[SettingChange, ...]],
    result_class: Callable[..., object],
    make: Callable[..., Response],
) -> Response:
    """Change the settings; ``make`` the response of one result for each resource."""
    outcomes = await alter_each(
        parts, context, request.resources, changes_of, validate_only=request.validate_only
    )
    return make(
        responses=tuple(
            result_class(
                error_code=ErrorCode.none if error is None else error_code(error),
                error_message=None if error is None else str(error),
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, error in outcomes
        )
    )


SERVED = {
    32: ApiHandler(
        describe_configs,
        handling=Handling.READS_IN_STEPS,
        checks=(
            required.DESCRIBE_CONFIGS_OF_TOPICS,
            required.DESCRIBE_CONFIGS_OF_GROUPS,
            required.DESCRIBE_CONFIGS_OF_CLUSTER,
        ),
    ),
    74: ApiHandler(
        list_config_resources,
        gates=(required.DESCRIBE_CONFIGS_OF_CLUSTER,),
    ),
    33: ApiHandler(
        alter_configs,
        checks=(
            required.ALTER_CONFIGS_OF_TOPICS,
            required.ALTER_CONFIGS_OF_GROUPS,
            required.ALTER_CONFIGS_OF_CLUSTER,
        ),
    ),
    44: ApiHandler(
        incremental_alter_configs,
        checks=(
            required.ALTER_CONFIGS_OF_TOPICS,
            required.ALTER_CONFIGS_OF_GROUPS,
            required.ALTER_CONFIGS_OF_CLUSTER,
        ),
    ),
}
