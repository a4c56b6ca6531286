"""The server's side of PLAIN (RFC 4616): the client sends its name and password as they are."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from sharegroup.core.security.login import LoginRefused

_PARTS = 3


def verify_plain(message: bytes, passwords: Mapping[str, str]) -> str:
    """Return the name of the user; raise LoginRefused unless the message has its password.

    The time does not depend on whether the user exists, nor on how much of the password is right.
    """
    parts = message.split(b"\0")
    if len(parts) != _PARTS:
        found = min(len(parts), _PARTS + 1)
        raise _refused(f"Invalid SASL/PLAIN response: expected {_PARTS} tokens, got {found}")
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
