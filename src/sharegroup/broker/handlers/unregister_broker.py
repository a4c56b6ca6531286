"""UnregisterBroker (64): removes the registration of a broker that has gone.

The only broker is this one, and it is running.
"""

from __future__ import annotations

from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest
from kio.schema.unregister_broker.v0.response import UnregisterBrokerResponse

from sharegroup.broker.handler_contract import RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.errors import BrokerIdNotRegistered, InvalidRequest, KafkaError


def handle(
    parts: Parts, context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    node_id = parts.node.node_id
    if request.broker_id == node_id:
        raise InvalidRequest(
            f"broker {node_id} is the whole cluster: it cannot be unregistered while it runs"
        )
    raise BrokerIdNotRegistered(
        f"broker {request.broker_id} is not registered; the only broker is {node_id}"
    )


def refuse(request: UnregisterBrokerRequest, error: KafkaError) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(
        throttle_time=NO_THROTTLE, error_code=error_code(error), error_message=str(error)
    )
