"""ConsumerGroupHeartbeat (68): refuses members of KIP-848 groups, which this broker does not serve.

The request is advertised so that it can be refused.  If a broker does not know it, librdkafka
looks for another coordinator without end.  If the response is UNSUPPORTED_VERSION, librdkafka stops
with a fatal error.  Kafka sends the same response while `group.version` is 0.
"""

from __future__ import annotations

from typing import NoReturn

from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest
from kio.schema.consumer_group_heartbeat.v1.response import ConsumerGroupHeartbeatResponse
from kio.static.primitive import i32

from sharegroup.broker.handler_contract import RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.errors import KafkaError, UnsupportedVersion

FEATURE = "group.protocol=consumer"


def handle(
    parts: Parts, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> NoReturn:
    parts.unserved.refused(FEATURE, client_id=context.client_id, name=request.group_id)
    raise UnsupportedVersion(
        f"group {request.group_id!r}: this broker does not support the consumer group protocol of "
        "KIP-848; set group.protocol=classic in the consumer"
    )


def refuse(
    request: ConsumerGroupHeartbeatRequest, error: KafkaError
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=error_code(error),
        error_message=str(error),
        member_epoch=i32(0),
        heartbeat_interval=NO_THROTTLE,
    )
