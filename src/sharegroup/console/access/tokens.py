"""Tokens of users, from a file: one ``name:token`` a line.

Tokens are kept as digests, which are compared in constant time; a token is never in a URL, a log or
an error.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path

from sharegroup.console.access.bounded_file import read_bounded
from sharegroup.console.access.roles import User
from sharegroup.errors import InvalidConfig

TOKEN_CHARACTERS_MIN = 16
TOKEN_CHARACTERS_MAX = 1_000
TOKENS_MAX = 1_000
FILE_BYTES_MAX = TOKENS_MAX * (TOKEN_CHARACTERS_MAX + 300)
HOW = 'make one with: echo "ada:$(openssl rand -hex 24)"'


class Tokens:
    """The tokens that let users in."""

    __slots__ = ("_digests",)

    def __init__(self, tokens: Mapping[str, str]) -> None:
        """Keep the digests of tokens; the keys are names of users."""
        self._digests = {name: digest_of(token) for name, token in tokens.items()}

    def user_of(self, token: str) -> User | None:
        """Return the user of a token; None if it is nobody's."""
        digest = digest_of(token)
        found = None
        # All of them are compared, so the time says nothing about which one it was.
        for name, own in self._digests.items():
            if hmac.compare_digest(own, digest):
                found = User(name)
        return found

    def knows(self, name: str, digest: bytes) -> bool:
        """Whether this is still the digest of a user's token."""
        own = self._digests.get(name)
        return own is not None and hmac.compare_digest(own, digest)


def digest_of(token: str) -> bytes:
    """Return what is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def read_tokens(path: Path) -> Tokens:
    """Read a file of tokens; InvalidConfig names the line that is wrong, never its token."""
    subject = f"the file of tokens {path}"
    content = read_bounded(path, FILE_BYTES_MAX, subject=subject)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise InvalidConfig(
            f"{subject}: byte {error.start} is not UTF-8"
        ) from None  # The cause has the content.
    tokens: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, token = _parts(line, f"{subject}, line {number}")
        if name in tokens:
            raise InvalidConfig(f"{subject}, line {number}: {name!r} has two")
        tokens[name] = token
    if not tokens or len(tokens) > TOKENS_MAX:
        raise InvalidConfig(
            f"{subject}: expected 1 to {TOKENS_MAX} lines name:token, found {len(tokens)}; {HOW}"
        )
    if len(set(tokens.values())) < len(tokens):
        raise InvalidConfig(f"{subject}: two users have the same token; {HOW}")
    return Tokens(tokens)


def _parts(line: str, where: str) -> tuple[str, str]:
    name, separator, token = (part.strip() for part in line.partition(":"))
    if not (name and separator) or not name.isprintable():
        raise InvalidConfig(f"{where}: expected name:token; {HOW}")
    if not TOKEN_CHARACTERS_MIN <= len(token) <= TOKEN_CHARACTERS_MAX:
        raise InvalidConfig(
            f"{where}: expected a token of {TOKEN_CHARACTERS_MIN} to {TOKEN_CHARACTERS_MAX} "
            f"characters, found {len(token)}; {HOW}"
        )
    return name, token
