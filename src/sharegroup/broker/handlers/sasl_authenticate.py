"""SaslAuthenticate (36): refused among other requests; `broker.sasl_login` serves it."""

from __future__ import annotations

from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse

from sharegroup.broker.handler_contract import RequestContext, error_code
from sharegroup.broker.parts import Parts
from sharegroup.errors import IllegalSaslState, KafkaError


def handle(
    parts: Parts, context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    raise IllegalSaslState("SaslAuthenticate request received after successful authentication")


def refuse(request: SaslAuthenticateRequest, error: KafkaError) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=error_code(error), error_message=str(error), auth_bytes=b""
    )
