"""DescribeClientQuotas (48): lists the limits of the users, client ids and addresses that match."""

from __future__ import annotations

from collections.abc import Mapping

from kio.schema.describe_client_quotas.v1.request import DescribeClientQuotasRequest
from kio.schema.describe_client_quotas.v1.response import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import f64

from sharegroup.broker.handler_contract import RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.core.quotas.entities import Entity, QuotaKey, is_match, parse_filter
from sharegroup.errors import KafkaError
from sharegroup.steps import STEP_MASK, Steps


def handle(
    parts: Parts, context: RequestContext, request: DescribeClientQuotasRequest
) -> Steps[DescribeClientQuotasResponse]:
    quotas = parts.topics.catalog.client_quotas
    wanted = parse_filter(
        (component.entity_type, int(component.match_type), component.match)
        for component in request.components
    )
    found = []
    for count, entity in enumerate(quotas.entities(), 1):
        if is_match(entity, wanted, strict=request.strict):
            found.append(_entry(entity, dict(quotas.limits(entity))))
        if count & STEP_MASK == 0:
            yield
    return DescribeClientQuotasResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        entries=tuple(found),
    )


def refuse(request: DescribeClientQuotasRequest, error: KafkaError) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(
        throttle_time=NO_THROTTLE,
        error_code=error_code(error),
        error_message=str(error),
        entries=None,
    )


def _entry(entity: Entity, limits: Mapping[QuotaKey, float]) -> EntryData:
    return EntryData(
        entity=tuple(
            EntityData(entity_type=part.value, entity_name=name) for part, name in entity.parts
        ),
        values=tuple(ValueData(key=str(key), value=f64(value)) for key, value in limits.items()),
    )
