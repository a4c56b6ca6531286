"""Where a console may listen: on loopback, or elsewhere with encryption and a login.

    listens on    TLS or a proxy    login    starts
    loopback      neither           any      yes
    loopback      TLS               any      yes
    loopback      a proxy           no       no
    elsewhere     neither           any      no
    elsewhere     one of them       no       no
    elsewhere     one of them       yes      yes

A port on loopback is reached by every user of the machine, and from outside if a proxy leads to it.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path

from sharegroup.errors import InvalidConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """Where a console listens, and what protects the way to it."""

    host: str = "127.0.0.1"
    port: int = 8080
    """0 means a free one."""
    tls_cert: Path | None = None
    """A PEM file with the certificate, and the key unless ``tls_key`` has that."""
    tls_key: Path | None = None
    proxies: tuple[str, ...] = ()
    """Addresses and networks of the proxies that encrypt; none: browsers come by themselves."""
    names: tuple[str, ...] = ()
    """Further names of the port, for the Host header."""

    def __post_init__(self) -> None:
        if self.tls_key is not None and self.tls_cert is None:
            raise InvalidConfig("--tls-key needs --tls-cert")
        for proxy in self.proxies:
            try:
                ip_network(proxy)
            except ValueError as error:
                raise InvalidConfig(
                    f"--behind-proxy {proxy!r}: expected an address or a network of the proxy, as "
                    f"10.0.0.5 or 10.0.0.0/24 ({error})"
                ) from None
        if self.tls_cert is not None:
            _check_certificate(self.tls_cert, self.tls_key)

    @property
    def is_on_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host.partition("%")[0]).is_loopback
        except ValueError:
            return False

    def refusal(self, *, has_login: bool) -> str | None:
        """Return why the console must not start like this, and what to do; None if it may."""
        if self.is_on_loopback and not self.proxies:
            return None
        if self.tls_cert is None and not self.proxies:
            return (
                f"on {self.host} others could read passwords and records on their way: give "
                "--tls-cert and --tls-key, or --behind-proxy ADDRESS if a proxy encrypts, or "
                "listen on 127.0.0.1"
            )
        if not has_login:
            place = "behind a proxy" if self.proxies else f"on {self.host}"
            return (
                f"{place} everybody who reaches the port would see the cluster: give "
                "--token-file FILE or --cluster-login MECHANISM"
            )
        return None


def _check_certificate(cert: Path, key: Path | None) -> None:
    """Raise InvalidConfig unless a server can use these files."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Without a password, OpenSSL would ask the terminal for one.
        context.load_cert_chain(cert, key, password="")
    except ssl.SSLError as error:
        reason = error.reason or error
        raise InvalidConfig(
            f"--tls-cert {cert}: expected a certificate in PEM with its key, not encrypted, there "
            f"or in --tls-key: {reason}"
        ) from error
    except OSError as error:
        raise InvalidConfig(f"--tls-cert {cert}, --tls-key {key}: {error.strerror}") from error
