"""ListConfigResources (74): lists groups with settings, all topics, and the broker (KIP-1142)."""

from __future__ import annotations

from collections.abc import Iterator, Set

from kio.schema.errors import ErrorCode
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.schema.list_config_resources.v1.response import (
    ConfigResource,
    ListConfigResourcesResponse,
)
from kio.static.primitive import i8

from sharegroup.broker.handler_contract import RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.errors import KafkaError, UnsupportedVersion
from sharegroup.protocol_enums import ResourceType

KNOWN = frozenset(ResourceType)
VERSION_OF_METRICS_ALONE = 0
"""The version without resource types, which asks for the resources of client metrics."""


def handle(
    parts: Parts, context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    wanted: Set[int] = {int(resource_type) for resource_type in request.resource_types} or KNOWN
    if context.api_version == VERSION_OF_METRICS_ALONE:
        wanted = {ResourceType.CLIENT_METRICS}
    if unknown := sorted(wanted - KNOWN):
        raise UnsupportedVersion(f"configurations of type {unknown[0]} are not known")
    return ListConfigResourcesResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        config_resources=tuple(
            ConfigResource(resource_name=name, resource_type=i8(kind))
            for kind, name in _resources(parts)
            if kind in wanted
        ),
    )


def refuse(request: ListConfigResourcesRequest, error: KafkaError) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(
        throttle_time=NO_THROTTLE, error_code=error_code(error), config_resources=()
    )


def _resources(parts: Parts) -> Iterator[tuple[int, str]]:
    catalog = parts.topics.catalog
    yield from ((ResourceType.GROUP, group_id) for group_id in catalog.groups_with_settings())
    yield from (
        (ResourceType.CLIENT_METRICS, name) for name in sorted(catalog.client_metrics.all())
    )
    yield ResourceType.BROKER_LOGGER, str(parts.node.node_id)
    yield ResourceType.BROKER, str(parts.node.node_id)
    yield from ((ResourceType.TOPIC, topic.name) for topic in catalog.topics())
