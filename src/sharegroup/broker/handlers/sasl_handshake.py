"""SaslHandshake (17): refused among other requests; `broker.sasl_login` serves it in a login."""

from __future__ import annotations

from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse

from sharegroup.broker.handler_contract import RequestContext, error_code
from sharegroup.broker.parts import Parts
from sharegroup.errors import IllegalSaslState, KafkaError


def handle(
    parts: Parts, context: RequestContext, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    raise IllegalSaslState(
        "the listener has no SASL, the connection is logged in without a limit on its session, or "
        "its last login is less than a second old"
    )


def refuse(request: SaslHandshakeRequest, error: KafkaError) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=error_code(error), mechanisms=())
