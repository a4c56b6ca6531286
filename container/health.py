"""The health check of the container: asks the broker that its entry point has started.

It reads the same settings as the entry point: the file that is mounted, the environment of Kafka's
image, or neither.  It needs no user and no certificate:

    a listener without required      ApiVersions, which a broker answers before a login; with TLS
    client certificates              after a handshake that verifies nothing, since this is loopback
    else, with a metrics port        an HTTP request to that port
    else                             a handshake, which the broker refuses: it answers, so it is
                                     alive, and logs a line (event=tls_handshake_failed)

The exit code is 0 if the broker answered, otherwise 1 with the reason.
"""

from __future__ import annotations

import os
import socket
import ssl
import struct
import sys
from collections.abc import Mapping
from http.client import HTTPConnection
from pathlib import Path

from sharegroup.broker.configuration.config import Config
from sharegroup.broker.configuration.listener_settings import listener_settings
from sharegroup.broker.configuration.listeners import Listener, metrics_host, parse_listeners
from sharegroup.cli.broker.kafka_environment import settings_from
from sharegroup.cli.common.properties import read_properties
from sharegroup.errors import InvalidConfig

SETTINGS = "/etc/sharegroup/server.properties"
"""Where the entry point looks for a file, unless SHAREGROUP_CONFIG names another."""

ANSWER_SECONDS_MAX = 4.0
API_VERSIONS, CORRELATION_ID = 18, 7
REQUEST = struct.pack(">hhih", API_VERSIONS, 0, CORRELATION_ID, 6) + b"health"
"""ApiVersions of version 0: header with correlation id and client id, and no body."""

LOOPBACK = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  Replaced by loopback.


OF_LISTENERS = [
    f"KAFKA_{prefix}{name}"
    for prefix in ("", "CFG_")
    for name in ("LISTENERS", "ADVERTISED_LISTENERS")
]
"""The variables one of which says that the environment is one of Kafka's image."""


class Unhealthy(Exception):
    """The broker did not answer as a broker does; the text says how."""


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with which the entry point has started the broker."""
    named = environment.get("SHAREGROUP_CONFIG")
    path = Path(named or SETTINGS)
    from_environment = {}
    if any(map(environment.get, OF_LISTENERS)):
        from_environment = settings_from(environment)
    if named or path.exists():
        return {**dict(read_properties(path)), **from_environment}
    return from_environment or {"listeners": "PLAINTEXT://0.0.0.0:9092"}


def check(values: Mapping[str, str]) -> None:
    """Raise an error unless the broker with these settings answers."""
    config = Config.parse(values)
    # The entry point decides whether a broker may be open; here that is of no importance.
    listeners = parse_listeners(config, insecure=True)
    for listener in listeners:
        if not _requires_certificate(config, listener):
            with _connected(listener) as connection:
                _ask(connection)
            return
    port = config.server.metrics_port
    if port > 0:
        _ask_metrics(metrics_host(config.server, listeners[0], insecure=False), port)
        return
    _shake_hands(listeners[0])


def _requires_certificate(config: Config, listener: Listener) -> bool:
    if not listener.uses_tls:
        return False
    return listener_settings(config.tls, config.given, listener.name).client_auth == "required"


def _connected(listener: Listener) -> socket.socket:
    host = LOOPBACK.get(listener.host, listener.host)
    connection = socket.create_connection((host, listener.port), timeout=ANSWER_SECONDS_MAX)
    if not listener.uses_tls:
        return connection
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        return context.wrap_socket(connection)
    except OSError:
        connection.close()
        raise


def _ask(connection: socket.socket) -> None:
    """Send ApiVersions; raise Unhealthy unless the answer is one to it."""
    connection.sendall(struct.pack(">i", len(REQUEST)) + REQUEST)
    answer = b""
    while len(answer) < 10:  # Size, correlation id and error code.
        received = connection.recv(4096)
        if not received:
            raise Unhealthy("the broker closed the connection without an answer to ApiVersions")
        answer += received
    correlation_id, error_code = struct.unpack_from(">ih", answer, 4)
    if (correlation_id, error_code) != (CORRELATION_ID, 0):
        raise Unhealthy(
            f"expected an answer to request {CORRELATION_ID} without an error, got one to "
            f"{correlation_id} with error code {error_code}"
        )


def _ask_metrics(host: str, port: int) -> None:
    connection = HTTPConnection(LOOPBACK.get(host, host), port, timeout=ANSWER_SECONDS_MAX)
    try:
        connection.request("GET", "/")  # Any page will do; that of the metrics can be large.
        status = connection.getresponse().status
    finally:
        connection.close()
    if status >= 500:
        raise Unhealthy(f"the metrics port {port} answered with status {status}")


def _shake_hands(listener: Listener) -> None:
    """Begin a handshake without a certificate; the alert that refuses it shows a live broker."""
    try:
        with _connected(listener) as connection:
            _ask(connection)  # With TLS 1.3 the client learns only now that it was refused.
    except ssl.SSLError as error:
        if error.reason is None or "ALERT" not in error.reason:
            raise


def main() -> int:
    """Check the broker of this container; return the exit code."""
    try:
        check(settings(os.environ))
    except (OSError, InvalidConfig, Unhealthy) as error:
        sys.stderr.write(f"the broker is not healthy: {type(error).__name__}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
