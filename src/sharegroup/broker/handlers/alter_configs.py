"""AlterConfigs (33): settings of topics, groups and the broker, replaced as a whole.

Older clients know only this; what a request does not name goes back to what holds without it.
"""

from __future__ import annotations

from collections.abc import Mapping

from kio.schema.alter_configs.v2.request import AlterConfigsRequest, AlterConfigsResource
from kio.schema.alter_configs.v2.response import (
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from kio.schema.errors import ErrorCode

from sharegroup.broker.alteration import alter_each
from sharegroup.broker.configuration.setting_changes import Change, Operation
from sharegroup.broker.dispatch import Context, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.errors import KafkaError


async def handle(
    parts: Parts, context: Context, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    outcomes = await alter_each(
        parts, request.resources, _replacing, validate_only=request.validate_only
    )
    return AlterConfigsResponse(
        throttle_time=NO_THROTTLE, responses=tuple(_response(*outcome) for outcome in outcomes)
    )


def refuse(request: AlterConfigsRequest, error: KafkaError) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        throttle_time=NO_THROTTLE,
        responses=tuple(_response(one, error) for one in request.resources),
    )


def _replacing(resource: AlterConfigsResource, own: Mapping[str, str]) -> tuple[Change, ...]:
    """What makes of ``own`` what the request says."""
    named = {one.name for one in resource.configs}
    return (
        *(Change(one.name, Operation.SET, one.value) for one in resource.configs),
        *(Change(name, Operation.DELETE, None) for name in own if name not in named),
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
