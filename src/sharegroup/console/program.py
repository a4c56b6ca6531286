"""Runs the console as a program: uvicorn on one port, until a signal ends it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import uvicorn

from sharegroup.console.application import application
from sharegroup.console.settings import ConsoleSettings
from sharegroup.http_hosts import HttpHosts

STOP_SECONDS = 2
"""Time for open streams and requests at a stop."""
CONNECTIONS_MAX = 500
"""Connections of all browsers together."""


def run(
    settings: ConsoleSettings, host: str, port: int, *, say: Callable[[str], object] = print
) -> None:
    """Serve the console on an address until SIGINT or SIGTERM; OSError if the port is taken."""
    with socket.create_server((host, port), family=_family(host), reuse_port=False) as listener:
        bound_host, bound_port = listener.getsockname()[:2]
        hosts = HttpHosts.of(host, [bound_host], os.environ)
        server = uvicorn.Server(
            uvicorn.Config(
                application(settings, hosts=hosts),
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=CONNECTIONS_MAX,
                timeout_graceful_shutdown=STOP_SECONDS,
            )
        )
        shown = f"[{host}]" if ":" in host else host
        say(f"ready console=http://{shown}:{bound_port}")
        server.run(sockets=[listener])


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
