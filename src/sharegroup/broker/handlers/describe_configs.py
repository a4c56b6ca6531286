"""DescribeConfigs (32): returns the settings of topics, groups and brokers with their sources."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8

from sharegroup.broker import loggers
from sharegroup.broker.configuration import settings
from sharegroup.broker.configuration.topic_name import check_topic_name
from sharegroup.broker.handler_contract import RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.broker.security.config_permissions import DESCRIBE_CONFIGS, ConfigPermissions
from sharegroup.errors import InvalidRequest, KafkaError
from sharegroup.ids import GroupId, TopicName
from sharegroup.protocol_enums import ResourceType
from sharegroup.steps import Steps, of_each

RESOURCES_MAX = 200
"""Limit for one request, because the response has dozens of settings for each resource."""

BROKER_WEIGHT = 10
"""Resources for which a broker counts, because it has ten times the settings of a topic."""


def handle(
    parts: Parts, context: RequestContext, request: DescribeConfigsRequest
) -> Steps[DescribeConfigsResponse]:
    brokers = sum(int(found.resource_type) == ResourceType.BROKER for found in request.resources)
    count = len(request.resources) + (BROKER_WEIGHT - 1) * brokers
    if count > RESOURCES_MAX:
        raise InvalidRequest(
            f"{len(request.resources)} resources in one request; {RESOURCES_MAX} are allowed, and "
            f"each of its {brokers} brokers counts as {BROKER_WEIGHT}"
        )
    permissions = ConfigPermissions(context.rights, DESCRIBE_CONFIGS)
    results = []
    for wanted in request.resources:
        denial = permissions.denial(wanted.resource_type, wanted.resource_name)
        results.append(
            _resource(parts, request, wanted) if denial is None else _failed(wanted, denial)
        )
        yield
    return DescribeConfigsResponse(throttle_time=NO_THROTTLE, results=tuple(results))


def refuse(request: DescribeConfigsRequest, error: KafkaError) -> Steps[DescribeConfigsResponse]:
    results = yield from of_each(partial(_failed, error=error), request.resources)
    return DescribeConfigsResponse(throttle_time=NO_THROTTLE, results=results)


def _resource(
    parts: Parts, request: DescribeConfigsRequest, wanted: DescribeConfigsResource
) -> DescribeConfigsResult:
    try:
        found = _settings(parts, wanted)
    except KafkaError as error:
        return _failed(wanted, error)
    names = set(wanted.configuration_keys or ())
    return DescribeConfigsResult(
        error_code=ErrorCode.none,
        error_message=None,
        resource_type=wanted.resource_type,
        resource_name=wanted.resource_name,
        configs=tuple(
            _result(setting, request) for setting in found if not names or setting.name in names
        ),
    )


def _settings(parts: Parts, wanted: DescribeConfigsResource) -> Iterable[settings.Setting]:
    catalog, name = parts.topics.catalog, wanted.resource_name
    if int(wanted.resource_type) == ResourceType.TOPIC:
        check_topic_name(TopicName(name))  # An invalid name is another error than a missing topic.
        return settings.describe_topic(parts.config, catalog.topic(TopicName(name)).settings)
    if int(wanted.resource_type) == ResourceType.GROUP:
        if not name:
            raise InvalidRequest("a group's configuration needs the group's id, not an empty one")
        own = catalog.group_settings(GroupId(name))
        return settings.describe_group(parts.config, own)
    if int(wanted.resource_type) == ResourceType.CLIENT_METRICS:
        if not name:
            raise InvalidRequest("a client metrics resource has a name, not an empty one")
        return settings.describe_client_metrics(catalog.client_metrics.all().get(name, {}))
    if int(wanted.resource_type) == ResourceType.BROKER_LOGGER:
        if not name:
            raise InvalidRequest("the loggers of a broker need its node id, not an empty name")
        settings.check_is_this_broker(name, node_id=parts.node.node_id)
        return settings.describe_loggers(loggers.logger_levels())
    if int(wanted.resource_type) == ResourceType.BROKER:
        settings.check_is_this_broker(name, node_id=parts.node.node_id)
        found = settings.describe_broker(parts.config)
        return found if name else settings.of_all_brokers(found)
    raise InvalidRequest(f"configurations of resource type {wanted.resource_type} are not served")


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


def _failed(wanted: DescribeConfigsResource, error: KafkaError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error_code(error),
        error_message=str(error),
        resource_type=wanted.resource_type,
        resource_name=wanted.resource_name,
        configs=(),
    )
