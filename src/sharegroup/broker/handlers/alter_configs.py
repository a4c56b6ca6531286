"""AlterConfigs (33): replaces all settings of topics, groups or the broker.

Older clients have no other request for this.  Settings that a request does not name return to their
default values.
"""

from __future__ import annotations

from collections.abc import Mapping

from kio.schema.alter_configs.v2.request import AlterConfigsRequest, AlterConfigsResource
from kio.schema.alter_configs.v2.response import (
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from kio.schema.errors import ErrorCode

from sharegroup.broker.config_changes import alter_each
from sharegroup.broker.configuration.setting_changes import SettingChange
from sharegroup.broker.handler_contract import Later, RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.broker.security.config_permissions import ALTER_CONFIGS, ConfigPermissions
from sharegroup.errors import InvalidRequest, KafkaError
from sharegroup.protocol_enums import ConfigOperation, ResourceType


def handle(
    parts: Parts, context: RequestContext, request: AlterConfigsRequest
) -> Later[AlterConfigsResponse]:
    return Later(_alter(parts, request, context))


async def _alter(
    parts: Parts,
    request: AlterConfigsRequest,
    context: RequestContext,
) -> AlterConfigsResponse:
    responses = await alter_each(
        parts,
        request.resources,
        _replacing,
        _response,
        permissions=ConfigPermissions(context.rights, ALTER_CONFIGS),
        context=context,
        validate_only=request.validate_only,
    )
    return AlterConfigsResponse(throttle_time=NO_THROTTLE, responses=responses)


def refuse(request: AlterConfigsRequest, error: KafkaError) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        throttle_time=NO_THROTTLE,
        responses=tuple(_response(resource, error) for resource in request.resources),
    )


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


def _response(
    resource: AlterConfigsResource, error: KafkaError | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=ErrorCode.none if error is None else error_code(error),
        error_message=None if error is None else str(error),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
