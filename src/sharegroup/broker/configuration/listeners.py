"""The listeners of a broker: where each accepts connections, and the address that it advertises.

Kafka spreads them over several keys.  ``listeners`` has the names and addresses, and
``advertised.listeners`` the addresses for clients, by name.  ``listener.security.protocol.map`` has
the protocol of each name.  Listeners for controllers (``controller.listener.names``) are not
opened: the broker is its own controller.  ``sharegroup.advertised.host`` is an older key of this
broker, for all listeners together.

A listener that other machines reach must know its clients: by SASL over TLS, or by certificates.
`_check_protection` has the rules.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from sharegroup.broker.configuration.authorizer_settings import AuthorizerSettings
from sharegroup.broker.configuration.config import Config
from sharegroup.broker.configuration.config_values import list_values
from sharegroup.broker.configuration.listener_settings import listener_settings
from sharegroup.broker.configuration.server_config import ServerConfig
from sharegroup.errors import InvalidConfig

log = logging.getLogger(__name__)

EVERY_ADDRESS = frozenset({"0.0.0.0", "::"})  # noqa: S104  Named here to be refused or narrowed.
LOOPBACK = "127.0.0.1"
CONTROLLER = "CONTROLLER"

NO_HOST_CHARACTERS = frozenset(":/[]@ ")
"""Characters of an address that is not a name, an IPv4 address or an IPv6 address in brackets."""
PORT_MAX = 65_535

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

AUTHORIZER = "authorizer.class.name"

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
    protocol: str = "PLAINTEXT"
    """One of `PROTOCOLS`."""
    needs_certificates: bool = False
    """Whether it knows its clients by certificates alone, and other machines reach it."""

    @property
    def uses_tls(self) -> bool:
        """Whether its connections are encrypted."""
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether its clients log in by SASL."""
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_listeners(
    config: Config, *, insecure: bool, is_local: Callable[[str], bool] = is_loopback
) -> tuple[Listener, ...]:
    """Return the listeners to be opened; raise InvalidConfig for values that cannot be served.

    Without ``insecure``, unprotected listeners are for this machine alone.  One on every address is
    narrowed to loopback if the address that it advertises is loopback, as in Kafka's own
    ``server.properties``: clients on other machines could not use it anyway.  ``is_local`` tells
    whether only this machine reaches an address; tests replace it.
    """
    server = config.server
    bound = _addresses("listeners", server.listeners)
    advertised = _addresses("advertised.listeners", server.advertised_listeners or "")
    controllers = {CONTROLLER, *server.controller_listeners}
    for name in advertised:
        if name not in bound and name not in controllers:
            raise InvalidConfig(
                f"advertised.listeners names {name}, but listeners={server.listeners!r} does not; "
                "advertise only listeners that exist"
            )
    client_listeners = {name: address for name, address in bound.items() if name not in controllers}
    if not client_listeners:
        raise InvalidConfig(
            f"listeners={server.listeners!r} has no listener for clients: expected {_FORM}, such "
            "as PLAINTEXT://127.0.0.1:9092"
        )
    _check_ports(server, client_listeners)
    protocols = _protocols(server, client_listeners)
    listeners = []
    for name, address in client_listeners.items():
        listener = _listener(server, name, address, advertised.get(name), protocols[name])
        narrows = not insecure and listener.protocol == "PLAINTEXT"
        if narrows and listener.host in EVERY_ADDRESS and is_local(listener.advertised_host):
            listener = replace(listener, host=LOOPBACK, is_narrowed=True)
        if not is_local(listener.host):
            _check_protection(config, listener, insecure=insecure)
            needs_certificates = listener.protocol == "SSL" and not insecure
            listener = replace(listener, needs_certificates=needs_certificates)
        _check_advertised(server, listener)
        listeners.append(listener)
    return tuple(listeners)


def metrics_host(server: ServerConfig, listener: Listener, *, insecure: bool) -> str:
    """Return the address of the metrics port, which has neither TLS nor a password.

    A listener that other machines reach does not open the metrics to them.
    """
    if server.metrics_host:
        return server.metrics_host
    return listener.host if insecure or is_loopback(listener.host) else LOOPBACK


def warn_if_everyone_is_allowed(
    settings: AuthorizerSettings, listeners: Iterable[Listener]
) -> None:
    """Log a warning if users of other machines may do everything with a resource without ACLs."""
    reached = [listener.name for listener in listeners if not is_loopback(listener.host)]
    if settings.allow_if_no_acl and reached:
        log.warning(
            "event=everyone_allowed listeners=%s reason='allow.everyone.if.no.acl.found=true: all "
            "users of other machines may do everything with a resource that has no ACL; create "
            "ACLs, then set it to false'",
            ",".join(reached),
        )


def _listener(
    server: ServerConfig,
    name: str,
    bound: tuple[str, int],
    advertised: tuple[str, int] | None,
    protocol: str,
) -> Listener:
    host, port = bound
    host = host or "0.0.0.0"  # noqa: S104  Kafka's meaning of an empty host.
    if advertised is None:
        advertised = server.advertised_host or ("" if host in EVERY_ADDRESS else host), 0
    advertised_host, advertised_port = advertised
    return Listener(name, host, port, advertised_host, advertised_port, False, protocol)


def _check_advertised(server: ServerConfig, listener: Listener) -> None:
    if not listener.advertised_host or listener.advertised_host in EVERY_ADDRESS:
        raise InvalidConfig(
            f"listeners={server.listeners!r}: listener {listener.name} listens on every address; "
            "set the host to which clients connect: "
            f"--set advertised.listeners={listener.name}://HOST:{listener.port}"
        )


def _check_protection(config: Config, listener: Listener, *, insecure: bool) -> None:
    """Raise InvalidConfig if a listener that other machines reach does not know its clients.

    ``insecure`` allows everything but SASL without TLS, which shows passwords to the network.
    """
    where = f"listeners={config.server.listeners!r}: listener {listener.name}"
    if listener.protocol == "SASL_PLAINTEXT":
        raise InvalidConfig(
            f"{where} would receive passwords from other machines without encryption; use the "
            "protocol SASL_SSL (`sharegroup certs` makes certificates for a try), or listen on "
            "127.0.0.1"
        )
    if insecure:
        return
    if listener.protocol == "PLAINTEXT":
        raise InvalidConfig(
            f"{where} accepts connections from other machines without TLS or a password; use the "
            "protocol SASL_SSL, or SSL with ssl.client.auth=required (`sharegroup certs` makes "
            "certificates for a try), listen on 127.0.0.1, advertise localhost, or give --insecure "
            "to allow this"
        )
    if listener.protocol == "SSL":
        client_auth = listener_settings(config.tls, config.given, listener.name).client_auth
        if client_auth != "required":
            raise InvalidConfig(
                f"{where} has the protocol SSL and accepts clients of other machines that have no "
                f"certificate, because ssl.client.auth={client_auth}; set "
                f"listener.name.{listener.name.lower()}.ssl.client.auth=required, use the protocol "
                "SASL_SSL, or give --insecure to allow this"
            )
    if not config.given.get(AUTHORIZER, "").strip():
        raise InvalidConfig(
            f"{where} accepts connections from other machines, but every user may do everything; "
            f"set {AUTHORIZER}=org.apache.kafka.metadata.authorizer.StandardAuthorizer and "
            "super.users, or give --insecure to allow this"
        )


def _addresses(key: str, text: str) -> dict[str, tuple[str, int]]:
    """Return host and port by the name of the listener."""
    addresses: dict[str, tuple[str, int]] = {}
    for value in list_values(text):
        name, separator, address = value.partition("://")
        host, colon, port = address.rpartition(":")
        is_bracketed = host.startswith("[") and host.endswith("]")
        host = host[1:-1] if is_bracketed else host
        is_port = port.isascii() and port.isdecimal() and int(port) <= PORT_MAX
        is_host = is_bracketed or not set(host) & NO_HOST_CHARACTERS
        if not (name and separator and colon and is_port and is_host):
            raise InvalidConfig(f"{key} must be {_FORM}, not {text[:200]!r}: see {value[:100]!r}")
        # As Kafka's `ListenerName.normalised`: case does not distinguish listeners.
        name = name.upper()
        if name in addresses:
            raise InvalidConfig(f"{key}={text[:200]!r} has two listeners named {name}")
        addresses[name] = host, int(port)
    return addresses


def _check_ports(server: ServerConfig, listeners: dict[str, tuple[str, int]]) -> None:
    # Port 0 stands for any free port, so several listeners may have it.
    ports = [port for _, port in listeners.values() if port]
    if len(set(ports)) < len(ports):
        raise InvalidConfig(f"listeners={server.listeners!r}: two listeners have the same port")


def _protocols(server: ServerConfig, listeners: dict[str, tuple[str, int]]) -> dict[str, str]:
    """Return the protocol of each listener; raise InvalidConfig for one that is not served."""
    protocols: dict[str, str] = {}
    for pair in list_values(server.security_protocols):
        name, separator, protocol = pair.partition(":")
        if not separator:
            raise InvalidConfig(
                "listener.security.protocol.map must be NAME:PROTOCOL,..., not "
                f"{server.security_protocols[:200]!r}: see {pair[:100]!r}"
            )
        protocols[name.strip().upper()] = protocol.strip().upper()
    # A listener without an entry may have the name of its protocol, as in Kafka's default map.
    chosen = {name: protocols.get(name, name) for name in listeners}
    for name, protocol in chosen.items():
        if protocol not in PROTOCOLS:
            raise InvalidConfig(
                f"listeners={server.listeners!r}: listener.security.protocol.map must say which "
                f"protocol the listener {name} has, one of {', '.join(PROTOCOLS)}; expected for "
                f"example {name}:SASL_SSL, found {server.security_protocols[:200]!r}"
            )
    return chosen
