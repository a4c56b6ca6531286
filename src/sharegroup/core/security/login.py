"""The refusal of a login, and the server's side of PLAIN and of OAUTHBEARER's first message.

The server's side of SCRAM is in `scram`.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import NamedTuple

from sharegroup.errors import SaslAuthenticationFailed


class LoginRefused(Exception):
    """A login that failed: a reason for the broker's log, and a text for the client.

    Neither may contain a password, a token or a proof.  The text for the client must not tell
    whether a user exists; without one, the client gets a text that is the same for every reason.
    """

    def __init__(self, reason: str, *, answer: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.answer = answer

    def for_client(self, mechanism: str, *, again: bool) -> SaslAuthenticationFailed:
        """Return the error that the client gets; ``again`` says that it was logged in before."""
        if self.answer is not None:
            return SaslAuthenticationFailed(self.answer)
        process = "re-authentication" if again else "authentication"
        return SaslAuthenticationFailed(
            f"Authentication failed during {process} due to invalid credentials with SASL "
            f"mechanism {mechanism}"
        )


class UnknownKey(Exception):
    """No key fits the token; a newer key set may have it."""


# PLAIN (RFC 4616): the client sends its name and password as they are.


_PARTS = 3


def verify_plain(message: bytes, passwords: Mapping[str, str]) -> str:
    """Return the name of the user; raise LoginRefused unless the message has its password.

    The time does not depend on whether the user exists, nor on how much of the password is right.
    """
    parts = message.split(b"\0")
    if len(parts) != _PARTS:
        count = min(len(parts), _PARTS + 1)
        raise _refused(f"Invalid SASL/PLAIN response: expected {_PARTS} tokens, got {count}")
    try:
        authzid, user, password = (part.decode() for part in parts)
    except UnicodeDecodeError:
        raise _refused("Authentication failed: Invalid username or password") from None
    if not user:
        raise _refused("Authentication failed: username not specified")
    if not password:
        raise _refused("Authentication failed: password not specified")
    expected = passwords.get(user)
    # Digests have one length; the time of a comparison would tell that of the password.
    is_right = hmac.compare_digest(_digest(password), _digest(expected or ""))
    if not is_right or not expected:
        reason = "wrong password" if expected else "unknown user"
        raise LoginRefused(reason, answer="Authentication failed: Invalid username or password")
    if authzid and authzid != user:
        raise _refused(
            "Authentication failed: Client requested an authorization id that is different from "
            "username"
        )
    return user


def _digest(password: str) -> bytes:
    return hashlib.sha256(password.encode()).digest()


def _refused(text: str) -> LoginRefused:
    return LoginRefused(text, answer=text)


# OAUTHBEARER (RFC 7628): the first message has the token.


_NAME = r"(?:[^=,\0]|=2C|=3D)+"
_HEADER = re.compile(rf"n,(?:a=(?P<authzid>{_NAME}))?,")
_AUTH = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
_PAIR = re.compile(r"(?P<key>[A-Za-z]+)=(?P<value>[!-~ \t\r\n]+)")
_SEPARATOR = "\x01"

INVALID_TOKEN = b'{"status":"invalid_token"}'
"""The challenge after a token that is not accepted; the client answers it, and then is refused."""


class Bearer(NamedTuple):
    """The content of the first message."""

    token: str
    authzid: str
    """The authorization id, empty if the client names none."""


def parse_bearer(message: bytes) -> Bearer:
    """Return token and authorization id; raise LoginRefused if the message has another form."""
    try:
        text = message.decode()
    except UnicodeDecodeError:
        text = ""
    header, *pairs = text.split(_SEPARATOR)
    match = _HEADER.fullmatch(header)
    if match is None or pairs[-2:] != ["", ""]:
        raise LoginRefused("the first message is not that of OAUTHBEARER")
    auth = None
    for pair in pairs[:-2]:  # Others than `auth` are extensions, which have no meaning here.
        pair_match = _PAIR.fullmatch(pair)
        if pair_match is None:
            raise LoginRefused("the first message has a malformed attribute")
        if pair_match["key"] == "auth":
            auth = _AUTH.fullmatch(pair_match["value"])
    if auth is None or auth["scheme"].lower() != "bearer":
        raise LoginRefused("the first message has no bearer token")
    authzid = (match["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
    return Bearer(auth["token"], authzid)
