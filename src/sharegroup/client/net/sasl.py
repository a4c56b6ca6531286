"""Logs in with SASL: the mechanisms and the exchange of their messages.

    SaslHandshake(mechanism)     ---> is it offered?
    SaslAuthenticate(message)    ---> challenge, error, or the end and the session's lifetime
      ... until the mechanism returns None

A mechanism makes a first message and then answers challenges until it returns None.  The
mechanism itself decides that the login is complete: a broker that claims success without its
proof is refused.  Passwords and tokens are only in messages, never in errors, logs or reprs.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import inspect
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import ip_address
from typing import Any, Protocol

from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest

from sharegroup.client.settings.client_config import ClientConfig, TokenProvider
from sharegroup.errors import NONE, SaslAuthenticationFailed, error_for
from sharegroup.wire.codec.schema import MILLISECOND

log = logging.getLogger(__name__)


ROUNDS_MAX = 8
"""Maximum number of messages in a login; the mechanisms here need at most two.

A broker must not be able to keep a login going for ever.
"""

SECRET_IN_MESSAGE = ("PLAIN", "OAUTHBEARER")
"""Mechanisms that send the password or the token itself."""

NONCE_BYTES = 24
Ask = Callable[[Any], Awaitable[Any]]
"""A function that sends a message on the connection to authenticate, and returns the answer."""


def warn_of_plaintext(config: ClientConfig, address: tuple[str, int]) -> bool:
    """Log a warning if a password or token is sent unencrypted; return whether it was logged.

    SCRAM does not send the password.  A loopback address is this machine, so it is no risk.
    """
    sends_secret = config.sasl_mechanism in SECRET_IN_MESSAGE
    if config.security_protocol != "SASL_PLAINTEXT" or not sends_secret or _is_loopback(address[0]):
        return False
    log.warning(
        "event=credentials_unencrypted broker=%r mechanism=%s action='set "
        "security_protocol=SASL_SSL, or a SCRAM sasl_mechanism: anyone on the network path to the "
        "broker can read the %s'",
        f"{address[0]}:{address[1]}",
        config.sasl_mechanism,
        "password" if config.sasl_mechanism == "PLAIN" else "token",
    )
    return True


def _is_loopback(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return host.rstrip(".").lower() in ("localhost", "ip6-localhost")
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


class Mechanism(Protocol):
    """A SASL mechanism in one login."""

    async def first(self) -> bytes:
        """Return the client's first message."""

    async def answer(self, challenge: bytes) -> bytes | None:
        """Return the next message, or None if the login is complete and the server is verified."""


async def log_in(ask: Ask, config: ClientConfig) -> int:
    """Log in with the configured mechanism; return the lifetime in ms, 0 if it has no limit."""
    name = config.sasl_mechanism
    assert name is not None, "config checks that a SASL protocol has its mechanism"
    offered = await ask(SaslHandshakeRequest(mechanism=name))
    if offered.error_code != NONE:
        mechanisms = ", ".join(offered.mechanisms) or "none"
        raise error_for(offered.error_code, f"SASL {name}: the broker offers {mechanisms}")
    mechanism = _mechanism(config)
    message = await mechanism.first()
    for _ in range(ROUNDS_MAX):
        response = await ask(SaslAuthenticateRequest(auth_bytes=message))
        if response.error_code != NONE:
            text = response.error_message or "refused without a reason"
            raise error_for(response.error_code, f"SASL {name}: {text}")
        reply = await mechanism.answer(response.auth_bytes)
        if reply is None:
            # Answers of brokers before KIP-368 have no lifetime, which gives 0.
            return int(response.session_lifetime / MILLISECOND)
        message = reply
    raise SaslAuthenticationFailed(f"SASL {name}: not complete after {ROUNDS_MAX} rounds")


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
    """The PLAIN mechanism (RFC 4616), which sends the password itself, so use TLS."""

    __slots__ = ("_message",)

    def __init__(self, username: str, password: str) -> None:
        self._message = b"\0".join((b"", username.encode(), password.encode()))

    async def first(self) -> bytes:
        return self._message

    async def answer(self, challenge: bytes) -> bytes | None:
        """Accept an empty challenge as the end; raise SaslAuthenticationFailed for any other."""
        if challenge:
            raise SaslAuthenticationFailed(
                f"PLAIN: expected an empty response from the server, got {len(challenge)} bytes"
            )
        return None


class Scram:
    """The SCRAM mechanisms; the slow computation of `ScramExchange` runs in a thread."""

    __slots__ = ("_exchange", "_proved")

    def __init__(self, name: str, username: str, password: str) -> None:
        nonce = secrets.token_urlsafe(NONCE_BYTES)
        self._exchange = ScramExchange(name, username, password, nonce=nonce)
        self._proved = False

    async def first(self) -> bytes:
        return self._exchange.first()

    async def answer(self, challenge: bytes) -> bytes | None:
        """Answer the first challenge with the proof; verify the server's proof in the second.

        Raises SaslAuthenticationFailed if the server's proof is wrong.
        """
        if self._proved:
            self._exchange.verify(challenge)
            return None
        self._proved = True
        return await asyncio.to_thread(self._exchange.final, challenge)


class OAuthBearer:
    """The OAUTHBEARER mechanism (RFC 7628), with a token from the application's provider."""

    __slots__ = ("_provider", "_refused")

    def __init__(self, provider: TokenProvider) -> None:
        self._provider = provider
        self._refused = ""

    async def first(self) -> bytes:
        return f"n,,\x01auth=Bearer {await self._token()}\x01\x01".encode()

    async def answer(self, challenge: bytes) -> bytes | None:
        """Accept an empty challenge as the end; any other is a refusal, which has to be answered.

        The answer after a refusal raises SaslAuthenticationFailed with the server's reason.
        """
        if self._refused:
            raise SaslAuthenticationFailed(f"OAUTHBEARER: {self._refused}")
        if not challenge:
            return None
        # The server sends a refusal as a challenge with a reason, and ends after an answer.
        self._refused = _refusal(challenge)
        return b"\x01"

    async def _token(self) -> str:
        try:
            if inspect.iscoroutinefunction(self._provider):
                token = await self._provider()
            else:
                # The provider may ask a server, which must not block the event loop.
                token = await asyncio.to_thread(self._provider)
                if inspect.isawaitable(token):
                    token = await token
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # The provider awaited something that was cancelled; this task goes on.
            raise SaslAuthenticationFailed(
                "OAUTHBEARER: sasl_oauth_token_provider was cancelled"
            ) from error
        except Exception as error:  # The application's code may raise any exception.
            text = f"OAUTHBEARER: sasl_oauth_token_provider raised {type(error).__name__}"
            raise SaslAuthenticationFailed(text) from error
        # A control character, such as the one behind the token, would change the message.
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


# SCRAM (RFC 5802, RFC 7677): proves that both sides know a password without sending it.
#
#     client                                           server
#       n,,n=user,r=nonce           ------------------>
#                   <-------------- r=nonce+more,s=salt,i=iterations
#       c=biws,r=nonce+more,p=proof ------------------>
#                   <-------------- v=signature
#
# The exchange does no I/O, and the nonce is an argument. The signature at the end is the server's
# proof. A login succeeds only after it, so a broker that does not know the password is refused. The
# iterations are limited: too many would cost the client too much time. Fewer than Kafka's minimum
# are refused too, because the password would be cheap to guess from the proof. Names and passwords
# are encoded as UTF-8 without SASLprep, as in Kafka.


HASHES: Mapping[str, str] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MIN = 4_096
ITERATIONS_MAX = 1_000_000
"""Maximum number of iterations, about a second of one core; Kafka stores at most 16,384."""

_NO_CHANNEL_BINDING = "n,,"
_QUOTED_BYTES_MAX = 80


class ScramExchange:
    """One SCRAM login: call `first`, `final` and `verify` once each, in this order."""

    __slots__ = ("_bare", "_expected", "_hash", "_mechanism", "_nonce", "_password")

    def __init__(self, mechanism: str, username: str, password: str, *, nonce: str) -> None:
        assert "," not in nonce, "a comma ends the nonce"
        # RFC 5802, 5.1.  The equals sign first, or that of "=2C" would be escaped again.
        escaped = username.replace("=", "=3D").replace(",", "=2C")
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        self._bare = f"n={escaped},r={nonce}"
        self._expected = b""

    def first(self) -> bytes:
        """Return the client's first message."""
        return (_NO_CHANNEL_BINDING + self._bare).encode()

    def final(self, challenge: bytes) -> bytes:
        """Return the proof that answers the server's first message; it is slow to compute."""
        fields = self._fields(challenge, "r", "s", "i")
        nonce, salt = fields["r"], self._decoded(fields["s"])
        # RFC 5802, 5.1: otherwise the messages of an earlier login could be played back.
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise self._failed("the server's nonce does not continue the client's")
        iterations = self._iterations(fields["i"])
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        # RFC 5802, 7: the proof signs the header of the first message, so nobody on the way can
        # change it.
        binding = base64.b64encode(_NO_CHANNEL_BINDING.encode()).decode()
        without_proof = f"c={binding},r={nonce}"
        signed = b",".join((self._bare.encode(), challenge, without_proof.encode()))
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = hmac.digest(stored_key, signed, self._hash)
        proof = bytes(
            key_byte ^ signature_byte
            for key_byte, signature_byte in zip(client_key, signature, strict=True)
        )
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        # Computed here, because `signed` and the salted password are not kept.
        self._expected = hmac.digest(server_key, signed, self._hash)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, outcome: bytes) -> None:
        """Check the server's proof; raise SaslAuthenticationFailed if it is wrong."""
        assert self._expected, "verify comes after final"
        if outcome.startswith(b"e="):
            raise self._failed(f"the server answered {_quoted(outcome)}")
        signature = self._decoded(self._fields(outcome, "v")["v"])
        if not hmac.compare_digest(signature, self._expected):
            raise self._failed("the server's signature is wrong: it does not know the password")

    def _fields(self, message: bytes, *names: str) -> dict[str, str]:
        """Return the named attributes, which must come first and in order; others are ignored."""
        try:
            parts = message.decode().split(",")
        except UnicodeDecodeError:
            parts = []
        if [part[:2] for part in parts[: len(names)]] != [f"{name}=" for name in names]:
            expected = ",".join(f"{name}=..." for name in names)
            raise self._failed(f"expected {expected} from the server, got {_quoted(message)}")
        return {name: part[2:] for name, part in zip(names, parts, strict=False)}

    def _decoded(self, text: str) -> bytes:
        try:
            decoded = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            decoded = b""
        if not decoded:
            raise self._failed(f"expected base64 from the server, got {_quoted(text.encode())}")
        return decoded

    def _iterations(self, text: str) -> int:
        # Check the length first: converting a million digits would take seconds.
        iterations = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise self._failed(
                f"the server asks for {_quoted(text.encode())} iterations; "
                f"expected {ITERATIONS_MIN} to {ITERATIONS_MAX}"
            )
        return iterations

    def _failed(self, why: str) -> SaslAuthenticationFailed:
        return SaslAuthenticationFailed(f"{self._mechanism}: {why}")


def _quoted(message: bytes) -> str:
    """Quote a server's message for an error text, shortened to one line."""
    text = message[:_QUOTED_BYTES_MAX].decode("utf-8", "replace")
    return repr(text) + (f" ({len(message)} bytes)" if len(message) > _QUOTED_BYTES_MAX else "")
