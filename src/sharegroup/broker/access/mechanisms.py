"""The SASL mechanisms of the server: the messages of one login, whatever carries them."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from sharegroup.broker.cluster.scram_credentials import ScramCredentials
from sharegroup.core.security.login import (
    INVALID_TOKEN,
    LoginRefused,
    UnknownKey,
    parse_bearer,
    verify_plain,
)
from sharegroup.core.security.scram import ScramCredential, ScramLogin
from sharegroup.protocol_enums import ScramMechanism

if TYPE_CHECKING:
    # Its libraries are imported only by brokers that accept tokens.
    from sharegroup.broker.access.tokens import TokenVerifier, VerifiedToken

PLAIN = "PLAIN"
OAUTHBEARER = "OAUTHBEARER"
SCRAM: Mapping[str, ScramMechanism] = {
    mechanism.sasl_name: mechanism
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
}
MECHANISMS = (PLAIN, *SCRAM, OAUTHBEARER)
"""The names of the mechanisms that this broker has."""

NONCE_BYTES = 24


class Outcome(NamedTuple):
    """The server's message, and the user once the login is complete."""

    message: bytes
    user: str | None = None
    """None while the login goes on."""
    expires_wall_ms: int | None = None
    """The end of the credential's validity; None if it has no end."""


class Exchange(Protocol):
    """The server's side of one login."""

    def take(self, message: bytes) -> Outcome | Awaitable[Outcome]:
        """Answer a message of the client; raise LoginRefused if the login has failed."""
        ...


class PlainExchange:
    """A login with PLAIN: one message with name and password."""

    __slots__ = ("_passwords",)

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords

    def take(self, message: bytes) -> Outcome:
        return Outcome(b"", verify_plain(message, self._passwords))


class ScramExchange:
    """A login with SCRAM: two messages, with the credentials of the catalog."""

    __slots__ = ("_credentials", "_has_begun", "_login", "_mechanism")

    def __init__(self, mechanism: ScramMechanism, credentials: ScramCredentials) -> None:
        self._mechanism = mechanism
        self._credentials = credentials
        self._login = ScramLogin(mechanism)
        self._has_begun = False

    def take(self, message: bytes) -> Outcome:
        if self._has_begun:
            return Outcome(self._login.final(message), self._login.user)
        self._has_begun = True
        nonce = secrets.token_urlsafe(NONCE_BYTES)
        return Outcome(self._login.first(message, self._find, nonce=nonce))

    def _find(self, user: str) -> tuple[ScramCredential, bool]:
        return self._credentials.find(self._mechanism, user)


class BearerExchange:
    """A login with OAUTHBEARER: one message with a token, and one that ends a failure."""

    __slots__ = ("_refusal", "_tokens")

    def __init__(self, tokens: TokenVerifier) -> None:
        self._tokens = tokens
        self._refusal: LoginRefused | None = None

    def take(self, message: bytes) -> Outcome | Awaitable[Outcome]:
        if self._refusal is not None:
            raise self._refusal
        bearer = parse_bearer(message)
        try:
            return self._accepted(self._tokens.verify(bearer.token), bearer.authzid)
        except UnknownKey as error:
            return self._verify_later(bearer.token, bearer.authzid, str(error))
        except LoginRefused as error:
            return self._refused(error)

    async def _verify_later(self, token: str, authzid: str, reason: str) -> Outcome:
        """Verify a token again when the key set has been read again."""
        if not await self._tokens.keys.read_for_unknown_key():
            return self._refused(LoginRefused(reason))
        try:
            return self._accepted(self._tokens.verify(token), authzid)
        except UnknownKey as error:
            return self._refused(LoginRefused(str(error)))
        except LoginRefused as error:
            return self._refused(error)

    def _accepted(self, verified: VerifiedToken, authzid: str) -> Outcome:
        if authzid and authzid != verified.subject:
            raise LoginRefused("the authorization id is not the subject of the token")
        return Outcome(b"", verified.subject, verified.expires_wall_ms)

    def _refused(self, error: LoginRefused) -> Outcome:
        """Answer a refused token; the client sends a last message, as RFC 7628 wants it."""
        self._refusal = LoginRefused(error.reason, answer=INVALID_TOKEN.decode())
        return Outcome(INVALID_TOKEN)
