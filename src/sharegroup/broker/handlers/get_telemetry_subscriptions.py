"""GetTelemetrySubscriptions (71): tells a client which metrics to push, and how often (KIP-714)."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.get_telemetry_subscriptions.v0.request import GetTelemetrySubscriptionsRequest
from kio.schema.get_telemetry_subscriptions.v0.response import GetTelemetrySubscriptionsResponse
from kio.static.primitive import i8, i32

from sharegroup.broker.client_telemetry import Sender
from sharegroup.broker.handler_contract import RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE, milliseconds
from sharegroup.broker.parts import Parts
from sharegroup.core.client_telemetry.client_instances import COMPRESSION_TYPES
from sharegroup.errors import KafkaError


def handle(
    parts: Parts, context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    sender = Sender(context.connection_id, context.peer, context.client_id, context.limited_user)
    instance_id, subscription_id, requested = parts.client_telemetry.subscribe(
        sender, request.client_instance_id
    )
    return GetTelemetrySubscriptionsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        client_instance_id=instance_id,
        subscription_id=i32(subscription_id),
        accepted_compression_types=tuple(map(i8, COMPRESSION_TYPES)),
        push_interval=milliseconds(requested.interval_ms),
        telemetry_max_bytes=i32(parts.config.server.telemetry_bytes_max),
        # Totals: a push that is lost then loses nothing.
        delta_temporality=False,
        requested_metrics=requested.metrics,
    )


def refuse(
    request: GetTelemetrySubscriptionsRequest, error: KafkaError
) -> GetTelemetrySubscriptionsResponse:
    return GetTelemetrySubscriptionsResponse(
        throttle_time=NO_THROTTLE,
        error_code=error_code(error),
        client_instance_id=None,
        subscription_id=i32(0),
        accepted_compression_types=(),
        push_interval=NO_THROTTLE,
        telemetry_max_bytes=i32(0),
        delta_temporality=False,
        requested_metrics=(),
    )
