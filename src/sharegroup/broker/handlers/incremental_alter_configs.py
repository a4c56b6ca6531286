"""IncrementalAlterConfigs (44): single settings of topics, groups and the broker."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1.request import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

from sharegroup.broker.alteration import NamedOnce, alter
from sharegroup.broker.dispatch import Context, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.broker.setting_changes import Change
from sharegroup.errors import KafkaError


async def handle(
    parts: Parts, context: Context, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    responses = []
    named_once = NamedOnce(request.resources)
    for resource in request.resources:
        try:
            named_once.check(resource)
            await alter(
                parts,
                resource.resource_type,
                resource.resource_name,
                partial(_changes, resource),
                validate_only=request.validate_only,
            )
            responses.append(_response(resource, ErrorCode.none, None))
        except KafkaError as error:
            responses.append(_response(resource, error_code(error), str(error)))
    return IncrementalAlterConfigsResponse(throttle_time=NO_THROTTLE, responses=tuple(responses))


def refuse(
    request: IncrementalAlterConfigsRequest, error: KafkaError
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        throttle_time=NO_THROTTLE,
        responses=tuple(_response(one, error_code(error), str(error)) for one in request.resources),
    )


def _changes(resource: AlterConfigsResource, _own: Mapping[str, str]) -> tuple[Change, ...]:
    return tuple(Change(one.name, one.config_operation, one.value) for one in resource.configs)


def _response(
    resource: AlterConfigsResource, code: ErrorCode, message: str | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
