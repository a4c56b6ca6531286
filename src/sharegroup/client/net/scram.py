"""SCRAM (RFC 5802, RFC 7677): proves that both sides know a password without sending it.

    client                                           server
      n,,n=user,r=nonce           ------------------>
                  <-------------- r=nonce+more,s=salt,i=iterations
      c=biws,r=nonce+more,p=proof ------------------>
                  <-------------- v=signature

The module does no I/O, and the nonce is an argument.  The signature at the end is the server's
proof.  A login succeeds only after it, so a broker that does not know the password is refused.
The iterations are limited: too many would cost the client too much time.  Fewer than Kafka's
minimum are refused too, because the password would be cheap to guess from the proof.  Names and
passwords are encoded as UTF-8 without SASLprep, as in Kafka.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping

from sharegroup.errors import SaslAuthenticationFailed

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
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise self._failed("the server's nonce does not continue the client's")
        iterations = self._iterations(fields["i"])
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
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
