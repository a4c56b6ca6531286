"""IncrementalAlterConfigs (44): changes single settings of topics, groups and the broker."""

from __future__ import annotations

from collections.abc import Mapping

from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1.request import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

from sharegroup.broker.config_changes import alter_each
from sharegroup.broker.configuration.setting_changes import SettingChange
from sharegroup.broker.handler_contract import Later, RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.broker.security.config_permissions import ALTER_CONFIGS, ConfigPermissions
from sharegroup.errors import KafkaError


def handle(
    parts: Parts, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> Later[IncrementalAlterConfigsResponse]:
    return Later(_alter(parts, request, context))


async def _alter(
    parts: Parts,
    request: IncrementalAlterConfigsRequest,
    context: RequestContext,
) -> IncrementalAlterConfigsResponse:
    responses = await alter_each(
        parts,
        request.resources,
        _changes,
        _response,
        permissions=ConfigPermissions(context.rights, ALTER_CONFIGS),
        context=context,
        validate_only=request.validate_only,
    )
    return IncrementalAlterConfigsResponse(throttle_time=NO_THROTTLE, responses=responses)


def refuse(
    request: IncrementalAlterConfigsRequest, error: KafkaError
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        throttle_time=NO_THROTTLE,
        responses=tuple(_response(resource, error) for resource in request.resources),
    )


def _changes(resource: AlterConfigsResource, _own: Mapping[str, str]) -> tuple[SettingChange, ...]:
    return tuple(
        SettingChange(config.name, config.config_operation, config.value)
        for config in resource.configs
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
