"""Principals: the users that connections belong to. Also the spelling of IP addresses."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
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


def canonical_address(text: str) -> str | None:
    """Return the shortest spelling of an IP address; None if the text is no address.

    ACLs, quotas and limits compare addresses in this spelling.

    An IPv4 address in IPv6 (``::ffff:10.0.0.1``) becomes IPv4.  The zone of a link-local address
    is left out, because it is the name of an interface of this machine.

    >>> canonical_address("0:0:0:0:0:FFFF:10.0.0.1")
    '10.0.0.1'
    >>> canonical_address("FE80::1%eth0")
    'fe80::1'
    """
    try:
        address = ip_address(text.partition("%")[0] if ":" in text else text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)
