"""UnregisterController (94): removes the registration of a controller that has gone (KIP-1312).

The only controller is this broker, and it is running.
"""

from __future__ import annotations

from sharegroup.broker.handler_contract import RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.errors import ControllerIdNotRegistered, InvalidRequest, KafkaError
from sharegroup.wire.messages.unregister_controller_v0 import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)


def handle(
    parts: Parts, context: RequestContext, request: UnregisterControllerRequest
) -> UnregisterControllerResponse:
    node_id = parts.node.node_id
    if request.controller_id == node_id:
        raise InvalidRequest(
            f"controller {node_id} is the only one: it cannot be unregistered while it runs"
        )
    raise ControllerIdNotRegistered(
        f"controller {request.controller_id} is not registered; the only controller is {node_id}"
    )


def refuse(request: UnregisterControllerRequest, error: KafkaError) -> UnregisterControllerResponse:
    return UnregisterControllerResponse(
        throttle_time=NO_THROTTLE, error_code=error_code(error), error_message=str(error)
    )
