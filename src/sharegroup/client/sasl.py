"""Logins by SASL: what each mechanism says, and the conversation that carries it.

    SaslHandshake(mechanism)     ---> is it offered?
    SaslAuthenticate(message)    ---> challenge, error, or the end and the session's lifetime
      ... until the mechanism is content

A mechanism says its first message and then answers challenges until it returns None.  None is
its own judgement: a broker that claims success before it gave its proof has not convinced it.
Passwords and tokens appear in the messages and nowhere else: not in errors, logs or reprs.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import secrets
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Protocol

from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest

from sharegroup.client.config import ClientConfig, TokenProvider
from sharegroup.client.scram import ScramExchange
from sharegroup.errors import NONE, SaslAuthenticationFailed, error_for

ROUNDS_MAX = 8
"""No mechanism here needs more than two; a broker must not keep us talking for ever."""

NONCE_BYTES = 24
_MILLISECOND = timedelta(milliseconds=1)
Ask = Callable[[Any], Awaitable[Any]]
"""Send one message on the connection that is to be authenticated, and get its answer."""


class Mechanism(Protocol):
    """One login."""

    async def first(self) -> bytes: ...

    async def answer(self, challenge: bytes) -> bytes | None:
        """The next message; None when it is over and the server has convinced the client."""


async def log_in(ask: Ask, config: ClientConfig) -> int:
    """Log in by the configured mechanism; how long it lasts in ms, 0 for ever."""
    name = config.sasl_mechanism
    assert name is not None, "config checks that a SASL protocol has its mechanism"
    offered = await ask(SaslHandshakeRequest(mechanism=name))
    if offered.error_code != NONE:
        there_are = ", ".join(offered.mechanisms) or "none"
        raise error_for(offered.error_code, f"SASL {name}: the broker offers {there_are}")
    mechanism = _mechanism(config)
    message = await mechanism.first()
    for _ in range(ROUNDS_MAX):
        response = await ask(SaslAuthenticateRequest(auth_bytes=message))
        if response.error_code != NONE:
            text = response.error_message or "refused without a reason"
            raise error_for(response.error_code, f"SASL {name}: {text}")
        reply = await mechanism.answer(response.auth_bytes)
        if reply is None:
            # Brokers before KIP-368 have no lifetime in their answer: 0.
            return int(response.session_lifetime / _MILLISECOND)
        message = reply
    raise SaslAuthenticationFailed(f"SASL {name}: no end after {ROUNDS_MAX} rounds")


def _mechanism(config: ClientConfig) -> Mechanism:
    name = config.sasl_mechanism
    if name == "OAUTHBEARER":
        assert config.sasl_oauth_token_provider is not None
        return OAuthBearer(config.sasl_oauth_token_provider)
    username, password = config.sasl_plain_username, config.sasl_plain_password
    assert name is not None
    assert username is not None
    assert password is not None
    return Plain(username, password) if name == "PLAIN" else Scram(name, username, password)


class Plain:
    """RFC 4616: the password itself, so only over TLS."""

    __slots__ = ("_message",)

    def __init__(self, username: str, password: str) -> None:
        self._message = b"\0".join((b"", username.encode(), password.encode()))

    async def first(self) -> bytes:
        return self._message

    async def answer(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise SaslAuthenticationFailed(
                f"PLAIN: expected an empty answer from the server, came {len(challenge)} bytes"
            )
        return None


class Scram:
    """See `scram`; the slow step runs beside the event loop."""

    __slots__ = ("_exchange", "_proved")

    def __init__(self, name: str, username: str, password: str) -> None:
        nonce = secrets.token_urlsafe(NONCE_BYTES)
        self._exchange = ScramExchange(name, username, password, nonce=nonce)
        self._proved = False

    async def first(self) -> bytes:
        return self._exchange.first()

    async def answer(self, challenge: bytes) -> bytes | None:
        if self._proved:
            self._exchange.verify(challenge)
            return None
        self._proved = True
        return await asyncio.to_thread(self._exchange.final, challenge)


class OAuthBearer:
    """RFC 7628: a token that the application gets from wherever it gets tokens."""

    __slots__ = ("_provider", "_refused")

    def __init__(self, provider: TokenProvider) -> None:
        self._provider = provider
        self._refused = ""

    async def first(self) -> bytes:
        return f"n,,\x01auth=Bearer {await self._token()}\x01\x01".encode()

    async def answer(self, challenge: bytes) -> bytes | None:
        if self._refused:
            raise SaslAuthenticationFailed(f"OAUTHBEARER: {self._refused}")
        if not challenge:
            return None
        # A refusal comes as a challenge with a reason; it has to be answered to end.
        self._refused = _refusal(challenge)
        return b"\x01"

    async def _token(self) -> str:
        try:
            if inspect.iscoroutinefunction(self._provider):
                token = await self._provider()
            else:
                # It may well ask a server, and must not hold up the event loop for that.
                token = await asyncio.to_thread(self._provider)
                if inspect.isawaitable(token):
                    token = await token
        except Exception as error:  # The application's code: whatever it raises.
            text = f"OAUTHBEARER: sasl_oauth_token_provider raised {type(error).__name__}"
            raise SaslAuthenticationFailed(text) from error
        if not isinstance(token, str) or not token.isprintable() or not token:
            raise SaslAuthenticationFailed(
                "OAUTHBEARER: sasl_oauth_token_provider must return a printable, non-empty str"
            )
        return token


def _refusal(challenge: bytes) -> str:
    try:
        status = json.loads(challenge)["status"]
    except (ValueError, KeyError, TypeError, RecursionError):
        status = f"{len(challenge)} bytes without a status"
    return f"the server refused the token: {str(status)[:80]!r}"
