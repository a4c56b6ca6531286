"""Requests of a login (17, 36) where none is under way."""

from __future__ import annotations

from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse

from sharegroup.broker.handler_contract import ApiHandler, RequestContext
from sharegroup.broker.parts import Parts
from sharegroup.errors import IllegalSaslState


def sasl_handshake(
    parts: Parts, context: RequestContext, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    """SaslHandshake (17): refused here; `broker.server.sasl_login` serves it in a login."""
    raise IllegalSaslState(
        "the listener has no SASL, the connection is logged in without a limit on its session, or "
        "its last login is less than a second old"
    )


def sasl_authenticate(
    parts: Parts, context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """SaslAuthenticate (36): refused among other requests; `broker.server.sasl_login` serves it."""
    raise IllegalSaslState("SaslAuthenticate request received after successful authentication")


SERVED = {
    17: ApiHandler(sasl_handshake),
    36: ApiHandler(sasl_authenticate),
}
