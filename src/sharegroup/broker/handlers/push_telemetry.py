"""PushTelemetry (72): a client pushes the metrics of its subscription (KIP-714)."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.push_telemetry.v0.request import PushTelemetryRequest
from kio.schema.push_telemetry.v0.response import PushTelemetryResponse

from sharegroup.broker.client_telemetry import Sender
from sharegroup.broker.handler_contract import Later, RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.core.client_telemetry.client_instances import Push
from sharegroup.errors import KafkaError

DONE = PushTelemetryResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none)


def handle(
    parts: Parts, context: RequestContext, request: PushTelemetryRequest
) -> PushTelemetryResponse | Later[PushTelemetryResponse]:
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
    parts: Parts,
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


def refuse(request: PushTelemetryRequest, error: KafkaError) -> PushTelemetryResponse:
    return PushTelemetryResponse(throttle_time=NO_THROTTLE, error_code=error_code(error))
