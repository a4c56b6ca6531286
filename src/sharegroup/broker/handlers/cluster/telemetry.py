"""Requests of clients that push their metrics (71, 72; KIP-714)."""

from __future__ import annotations

from typing import Protocol

from kio.schema.errors import ErrorCode
from kio.schema.get_telemetry_subscriptions.v0.request import GetTelemetrySubscriptionsRequest
from kio.schema.get_telemetry_subscriptions.v0.response import GetTelemetrySubscriptionsResponse
from kio.schema.push_telemetry.v0.request import PushTelemetryRequest
from kio.schema.push_telemetry.v0.response import PushTelemetryResponse
from kio.static.primitive import i8, i32

from sharegroup.broker.client_telemetry import Sender
from sharegroup.broker.handler_contract import (
    NO_THROTTLE,
    ApiHandler,
    Later,
    RequestContext,
    milliseconds,
)
from sharegroup.broker.handlers.parts import HasClientTelemetry, HasConfig, HasSlices
from sharegroup.core.client_telemetry.client_instances import COMPRESSION_TYPES, Push


class TelemetryParts(HasClientTelemetry, HasConfig, HasSlices, Protocol):
    """What these requests touch of the broker."""


def get_telemetry_subscriptions(
    parts: TelemetryParts, context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """GetTelemetrySubscriptions (71): which metrics a client pushes, how often (KIP-714)."""
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


DONE = PushTelemetryResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none)


def push_telemetry(
    parts: TelemetryParts, context: RequestContext, request: PushTelemetryRequest
) -> PushTelemetryResponse | Later[PushTelemetryResponse]:
    """PushTelemetry (72): a client pushes the metrics of its subscription (KIP-714)."""
    sender = Sender(context.connection_id, context.peer, context.client_id, context.limited_user)
    push = Push(
        subscription_id=request.subscription_id,
        compression_type=request.compression_type,
        is_terminating=request.terminating,
        metrics_bytes=len(request.metrics),
    )
    bytes_max = parts.config.server.telemetry_bytes_max
    requested = parts.client_telemetry.check_push(
        sender, request.client_instance_id, push, bytes_max=bytes_max
    )
    if not request.metrics:
        return DONE
    return Later(_store(parts, sender, request, bytes_max, requested.interval_ms))


async def _store(
    parts: TelemetryParts,
    sender: Sender,
    request: PushTelemetryRequest,
    bytes_max: int,
    interval_ms: int,
) -> PushTelemetryResponse:
    assert request.client_instance_id is not None  # Checked before.
    await parts.slices.finish(
        parts.client_telemetry.store(
            sender,
            request.client_instance_id,
            bytes(request.metrics),
            codec=request.compression_type,
            bytes_max=bytes_max,
            interval_ms=interval_ms,
        )
    )
    return DONE


SERVED = {
    71: ApiHandler(get_telemetry_subscriptions),
    72: ApiHandler(push_telemetry),
}
