"""Principals: the users that connections belong to."""

from __future__ import annotations

from typing import NamedTuple

from sharegroup.errors import InvalidRequest

USER = "User"
"""The only kind of principal that a connection has; others are accepted in ACLs, as in Kafka."""


class Principal(NamedTuple):
    """A user, as ACLs and log lines name it; as text ``User:alice``."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


class Author(NamedTuple):
    """The user who made a setting, and the address that it came from, which ACLs may name."""

    principal: Principal
    host: str


ANONYMOUS = Principal(USER, "ANONYMOUS")
"""The principal of connections without authentication."""


def parse_principal(text: str) -> Principal:
    """Return the principal of a text such as ``User:alice``; raise InvalidRequest if it is none."""
    kind, separator, name = text.partition(":")
    if not (kind and separator and name):
        raise InvalidRequest(f"a principal must be like User:alice, not {text[:200]!r}")
    return Principal(kind, name)
