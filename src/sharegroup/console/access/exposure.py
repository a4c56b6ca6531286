"""Where a console may listen: on loopback, or elsewhere with encryption and a login.

    listens on    TLS or a proxy    login    starts
    loopback      any               any      yes
    elsewhere     no                any      no
    elsewhere     yes               no       no
    elsewhere     yes               yes      yes

A port on loopback is reached by every user of the machine, and from outside if a proxy leads to it;
``--behind-proxy`` says so, and then a login is needed there, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """Where a console listens, and what protects it."""

    host: str
    has_tls: bool = False
    is_behind_proxy: bool = False
    has_login: bool = False

    @property
    def is_on_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host.partition("%")[0]).is_loopback
        except ValueError:
            return False

    def refusal(self) -> str | None:
        """Return why the console must not start like this, and what to do; None if it may."""
        if self.is_on_loopback and not self.is_behind_proxy:
            return None
        if not (self.has_tls or self.is_behind_proxy):
            return (
                f"on {self.host} others could read passwords and records on their way: give "
                "--tls-cert and --tls-key, or --behind-proxy ADDRESS if a proxy encrypts, or "
                "listen on 127.0.0.1"
            )
        if not self.has_login:
            return (
                f"on {self.host} everybody who reaches the port would see the cluster: give "
                "--token-file FILE or --cluster-login MECHANISM"
            )
        return None
