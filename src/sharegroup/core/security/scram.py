"""The server's side of SCRAM (RFC 5802, RFC 7677): verifies that a client knows a password.

    client                                           server
      n,,n=user,r=nonce           ------------------>
                  <-------------- r=nonce+more,s=salt,i=iterations
      c=biws,r=nonce+more,p=proof ------------------>
                  <-------------- v=signature

The server stores two keys that are derived from the password, and never sees the password.  The
thousands of iterations are computed by the client at each login, and once when a credential is
made; the server's part of a login costs a few hashes.

An unknown user gets a salt and iterations like those of a known user, and is refused only when the
proof is wrong.  So the messages do not tell whether a user exists.  Nonces are arguments.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sharegroup.core.security.login import LoginRefused
from sharegroup.protocol_enums import ScramMechanism

HASHES: Mapping[ScramMechanism, str] = {
    ScramMechanism.SCRAM_SHA_256: "sha256",
    ScramMechanism.SCRAM_SHA_512: "sha512",
}

ITERATIONS_MIN = 4_096
ITERATIONS_MAX = 16_384
"""Kafka's limits for new credentials."""

USER_BYTES_MAX = 1_024
"""Maximum length of the name of a user; PLAIN must accept 255 bytes (RFC 4616)."""

_NAME = r"(?:[^=,\0]|=2C|=3D)+"
_FIRST = re.compile(
    rf"(?P<header>n,(?:a=(?P<authzid>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>[!-+\--~]+)(?P<extensions>(?:,[A-Za-z]+=[^,\0]+)*))"
)
_FINAL = re.compile(
    r"(?P<signed>c=(?P<binding>[A-Za-z0-9/+]+=*),r=(?P<nonce>[!-+\--~]+)"
    r"(?:,[A-Za-z]+=[^,\0]+)*?),p=(?P<proof>[A-Za-z0-9/+]+=*)"
)
_DELEGATION_TOKEN = "tokenauth=true"  # noqa: S105  The extension of clients that use a token.


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What the broker stores of a password: it verifies a proof, and reveals no password."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def salted_password(
    mechanism: ScramMechanism, password: str, *, salt: bytes, iterations: int
) -> bytes:
    """Return the salted password; it takes milliseconds to compute."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def credential_of(
    mechanism: ScramMechanism, salted: bytes, *, salt: bytes, iterations: int
) -> ScramCredential:
    """Return the credential of a salted password."""
    name = HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", name)
    stored_key = hashlib.new(name, client_key).digest()
    return ScramCredential(salt, stored_key, hmac.digest(salted, b"Server Key", name), iterations)


class ScramLogin:
    """One SCRAM login at the server: call `first`, then `final`, once each."""

    __slots__ = ("_bare", "_challenge", "_find", "_found", "_hash", "_header", "_is_user", "user")

    def __init__(self, mechanism: ScramMechanism) -> None:
        self._hash = HASHES[mechanism]
        self._header = b""
        self._bare = b""
        self._challenge = b""
        self._is_user = True
        self._find: Callable[[str], tuple[ScramCredential, bool]] | None = None
        self._found: tuple[ScramCredential, bool] | None = None
        self.user = ""
        """The name of the user; verified only when `final` has returned."""

    def first(
        self,
        message: bytes,
        find: Callable[[str], tuple[ScramCredential, bool]],
        *,
        nonce: str,
    ) -> bytes:
        """Answer the client's first message with salt and iterations.

        ``find`` returns the credential of a user and True, or a decoy and False.  `final` calls it
        again, because the user may be deleted or get another password in between.
        """
        match = _FIRST.fullmatch(_text(message))
        if match is None:
            raise LoginRefused("the first message is not that of SCRAM without channel binding")
        self.user = _unescaped(match["name"])
        if len(self.user.encode()) > USER_BYTES_MAX:
            raise LoginRefused(f"the name of the user is longer than {USER_BYTES_MAX} bytes")
        authzid = match["authzid"]
        if authzid is not None and _unescaped(authzid) != self.user:
            raise LoginRefused(
                "the authorization id is not the name of the user",
                answer="Authentication failed: Client requested an authorization id that is "
                "different from username",
            )
        self._find, self._found = find, find(self.user)
        # Otherwise the name is the id of a token, and there are no tokens.
        self._is_user = _DELEGATION_TOKEN not in match["extensions"].split(",")
        credential, _ = self._found
        self._header, self._bare = match["header"].encode(), match["bare"].encode()
        salt = base64.b64encode(credential.salt).decode()
        self._challenge = f"r={match['nonce']}{nonce},s={salt},i={credential.iterations}".encode()
        return self._challenge

    def final(self, message: bytes) -> bytes:
        """Verify the client's proof and return the server's; raise LoginRefused if it is wrong."""
        assert self._find is not None, "final comes after first"
        assert self._found is not None, "final comes after first"
        match = _FINAL.fullmatch(_text(message))
        if match is None:
            raise LoginRefused("the final message is not that of SCRAM")
        nonce = self._challenge[2:].partition(b",")[0]
        if not hmac.compare_digest(match["nonce"].encode(), nonce):
            raise LoginRefused("the final message has another nonce")
        if _decoded(match["binding"]) != self._header:
            raise LoginRefused("the final message has another channel binding")
        signed = b",".join((self._bare, self._challenge, match["signed"].encode()))
        credential, is_known = self._found
        signature = hmac.digest(credential.stored_key, signed, self._hash)
        client_key = _xor(_decoded(match["proof"]), signature)
        stored_key = hashlib.new(self._hash, client_key).digest()
        is_right = hmac.compare_digest(stored_key, credential.stored_key)
        # Only here, after the same work for every name: neither answer nor time tells whether the
        # user exists.
        if not (is_right and is_known and self._is_user):
            is_unknown = not (is_known and self._is_user)
            raise LoginRefused("unknown user" if is_unknown else "wrong password")
        if self._find(self.user) != self._found:
            raise LoginRefused("the user was deleted, or the password changed, during the login")
        proof = hmac.digest(credential.server_key, signed, self._hash)
        return b"v=" + base64.b64encode(proof)


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        return ""


def _unescaped(name: str) -> str:
    # In this order: `=3D2C` stands for the text `=2C`.
    return name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""


def _xor(proof: bytes, signature: bytes) -> bytes:
    """Return the client's key; a proof of another length gives a key that matches nothing."""
    if len(proof) != len(signature):
        return b""
    return bytes(left ^ right for left, right in zip(proof, signature, strict=True))
