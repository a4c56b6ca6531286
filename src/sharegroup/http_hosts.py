"""Decides by Host and Origin which HTTP requests a port without a password answers.

A browser sends the requests of any web page to every port that it reaches.  They have the page's
Origin.  If the page's name was bound to this machine's address (DNS rebinding), they have that name
as their Host, and the page may read the answers.  So a port answers only under the names that it
has:

    Host                                   reading                    a change
    an IP address, localhost,              answered                   answered
      a name in SHAREGROUP_HTTP_NAMES,
      the host that it listens on
    another name                           refused on loopback,       refused
                                             answered elsewhere
    none (no browser sends that)           answered                   answered

Other names are answered where others reach the port, because Prometheus and Kubernetes use the
names of services.  A change is refused if its Origin is not the origin of the port itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

NAMES_VARIABLE = "SHAREGROUP_HTTP_NAMES"
"""The environment variable with further names of the ports, separated by commas."""

QUOTED_CHARACTERS_MAX = 100
"""Number of characters of a header that a refusal quotes."""

_AUTHORITY = re.compile(r"(\[[^\[\]]+\]|[^\[\]:@/?#\s]+)(?::\d*)?")


@dataclass(frozen=True, slots=True)
class HttpHosts:
    """The names of one port."""

    names: frozenset[str]
    is_on_loopback: bool

    @classmethod
    def of(cls, host: str, addresses: Sequence[str], environment: Mapping[str, str]) -> HttpHosts:
        """Return the names of a port that listens on ``host``, which is bound to ``addresses``."""
        named = environment.get(NAMES_VARIABLE, "").split(",")
        names = {"localhost", host, *named}
        return cls(
            frozenset(name.strip().lower() for name in names) - {""},
            all(ip_address(address.partition("%")[0]).is_loopback for address in addresses),
        )

    def refusal(self, hosts: Sequence[str], origins: Sequence[str], *, changes: bool) -> str | None:
        """Return why a request with these headers is refused; None if it is answered."""
        if len(hosts) > 1:
            return "expected one Host header"
        # A page that was bound to this address has its own name in Host, never one of ours.
        if hosts and (changes or self.is_on_loopback) and not self._has(hosts[0]):
            return (
                f"this port does not have the name of the header "
                f"Host: {hosts[0][:QUOTED_CHARACTERS_MAX]!r}; use an IP address or localhost, or "
                f"add the name to the environment variable {NAMES_VARIABLE}"
            )
        if changes and any(origin.partition("://")[2] not in hosts for origin in origins):
            return (
                f"a web page of another origin may not change anything here; "
                f"Origin: {origins[0][:QUOTED_CHARACTERS_MAX]!r}"
            )
        return None

    def _has(self, authority: str) -> bool:
        """Return whether a Host header names this port; an IP address cannot be rebound."""
        match = _AUTHORITY.fullmatch(authority.strip())
        if match is None:
            return False
        name = match[1].lower().removesuffix(".")
        if name in self.names:
            return True
        try:
            ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True
