"""IncrementalAlterConfigs (44): single settings of topics, groups and the broker."""

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

from sharegroup.broker.alteration import alter_each
from sharegroup.broker.configuration.setting_changes import Change
from sharegroup.broker.dispatch import Context, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.errors import KafkaError


async def handle(
    parts: Parts, context: Context, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    outcomes = await alter_each(
        parts, request.resources, _changes, validate_only=request.validate_only
    )
    return IncrementalAlterConfigsResponse(
        throttle_time=NO_THROTTLE, responses=tuple(_response(*outcome) for outcome in outcomes)
    )


def refuse(
    request: IncrementalAlterConfigsRequest, error: KafkaError
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        throttle_time=NO_THROTTLE,
        responses=tuple(_response(one, error) for one in request.resources),
    )


def _changes(resource: AlterConfigsResource, _own: Mapping[str, str]) -> tuple[Change, ...]:
    return tuple(Change(one.name, one.config_operation, one.value) for one in resource.configs)


def _response(
    resource: AlterConfigsResource, error: KafkaError | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=ErrorCode.none if error is None else error_code(error),
        error_message=None if error is None else str(error),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
