"""The listeners of a broker: where each accepts connections, and the address that it advertises.

Kafka spreads them over several keys.  ``listeners`` has the names and addresses, and
``advertised.listeners`` the addresses for clients, by name.  ``listener.security.protocol.map`` has
the protocol of each name.  Listeners for controllers (``controller.listener.names``) are not
opened: the broker is its own controller.  ``sharegroup.advertised.host`` is an older key of this
broker, for all listeners together.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from sharegroup.broker.configuration.config_values import list_values
from sharegroup.broker.configuration.server_config import ServerConfig
from sharegroup.errors import InvalidConfig

EVERY_ADDRESS = frozenset({"0.0.0.0", "::"})  # noqa: S104  Named here to be refused or narrowed.
LOOPBACK = "127.0.0.1"
CONTROLLER = "CONTROLLER"

NO_HOST_CHARACTERS = frozenset(":/[]@ ")
"""Characters of an address that is not a name, an IPv4 address or an IPv6 address in brackets."""
PORT_MAX = 65_535

_FORM = "NAME://host:port,..."


@dataclass(frozen=True, slots=True)
class Listener:
    """One listener; port 0 stands for a free port, as an advertised port for the bound one."""

    name: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int
    is_narrowed: bool
    """Whether it was configured for every address, but its clients can only be on this machine."""


def parse_listeners(server: ServerConfig, *, insecure: bool) -> tuple[Listener, ...]:
    """Return the listeners to be opened; raise InvalidConfig for values that cannot be served.

    Without ``insecure`` only this machine may connect.  A listener on every address is narrowed to
    loopback if the address that it advertises is loopback, as in Kafka's own ``server.properties``:
    clients on other machines could not use it anyway.
    """
    bound = _addresses("listeners", server.listeners)
    advertised = _addresses("advertised.listeners", server.advertised_listeners or "")
    controllers = {CONTROLLER, *server.controller_listeners}
    for name in advertised:
        if name not in bound and name not in controllers:
            raise InvalidConfig(
                f"advertised.listeners names {name}, but listeners={server.listeners!r} does not; "
                "advertise only listeners that exist"
            )
    found = {name: address for name, address in bound.items() if name not in controllers}
    if not found:
        raise InvalidConfig(
            f"listeners={server.listeners!r} has no listener for clients: expected {_FORM}, such "
            "as PLAINTEXT://127.0.0.1:9092"
        )
    _check_ports(server, found)
    _check_protocols(server, found)
    return tuple(
        _listener(server, name, address, advertised.get(name), insecure=insecure)
        for name, address in found.items()
    )


def _listener(
    server: ServerConfig,
    name: str,
    bound: tuple[str, int],
    advertised: tuple[str, int] | None,
    *,
    insecure: bool,
) -> Listener:
    host, port = bound
    host = host or "0.0.0.0"  # noqa: S104  Kafka's meaning of an empty host.
    if advertised is None:
        advertised = server.advertised_host or ("" if host in EVERY_ADDRESS else host), 0
    advertised_host, advertised_port = advertised
    is_narrowed = host in EVERY_ADDRESS and not insecure and is_loopback(advertised_host)
    if is_narrowed:
        host = LOOPBACK
    if not insecure and not is_loopback(host):
        raise InvalidConfig(
            f"listeners={server.listeners!r}: listener {name} accepts connections from other "
            "machines without TLS or a password; listen on 127.0.0.1, advertise localhost, or give "
            "--insecure to allow this"
        )
    if not advertised_host or advertised_host in EVERY_ADDRESS:
        raise InvalidConfig(
            f"listeners={server.listeners!r}: listener {name} listens on every address; set the "
            f"host to which clients connect: --set advertised.listeners={name}://HOST:{port}"
        )
    return Listener(name, host, port, advertised_host, advertised_port, is_narrowed)


def _addresses(key: str, text: str) -> dict[str, tuple[str, int]]:
    """Return host and port by the name of the listener."""
    found: dict[str, tuple[str, int]] = {}
    for value in list_values(text):
        name, separator, address = value.partition("://")
        host, colon, port = address.rpartition(":")
        is_bracketed = host.startswith("[") and host.endswith("]")
        host = host[1:-1] if is_bracketed else host
        is_port = port.isascii() and port.isdecimal() and int(port) <= PORT_MAX
        is_host = is_bracketed or not set(host) & NO_HOST_CHARACTERS
        if not (name and separator and colon and is_port and is_host):
            raise InvalidConfig(f"{key} must be {_FORM}, not {text[:200]!r}: see {value[:100]!r}")
        name = name.upper()
        if name in found:
            raise InvalidConfig(f"{key}={text[:200]!r} has two listeners named {name}")
        found[name] = host, int(port)
    return found


def _check_ports(server: ServerConfig, found: dict[str, tuple[str, int]]) -> None:
    ports = [port for _, port in found.values() if port]
    if len(set(ports)) < len(ports):
        raise InvalidConfig(f"listeners={server.listeners!r}: two listeners have the same port")


def _check_protocols(server: ServerConfig, found: dict[str, tuple[str, int]]) -> None:
    """Raise InvalidConfig unless each listener is plain text."""
    protocols: dict[str, str] = {}
    for pair in list_values(server.security_protocols):
        name, separator, protocol = pair.partition(":")
        if not separator:
            raise InvalidConfig(
                "listener.security.protocol.map must be NAME:PROTOCOL,..., not "
                f"{server.security_protocols[:200]!r}: see {pair[:100]!r}"
            )
        protocols[name.strip().upper()] = protocol.strip().upper()
    for name in found:
        protocol = protocols.get(name, name)
        if protocol in ("SSL", "SASL_PLAINTEXT", "SASL_SSL"):
            raise InvalidConfig(
                f"listeners={server.listeners!r}: listener {name} has the protocol {protocol}, but "
                "this broker serves only PLAINTEXT"
            )
        if protocol != "PLAINTEXT":
            raise InvalidConfig(
                f"listeners={server.listeners!r}: listener.security.protocol.map must say which "
                f"protocol the listener {name} has; expected {name}:PLAINTEXT, found "
                f"{server.security_protocols[:200]!r}"
            )


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
