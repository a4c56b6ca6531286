"""Runs the console as a program: uvicorn on one port, until a signal ends it."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable

import uvicorn

from sharegroup.console.application import application
from sharegroup.console.settings import ConsoleSettings
from sharegroup.http_hosts import HttpHosts

STOP_SECONDS = 2
"""Time for open streams and requests at a stop."""
END_SECONDS = 5
"""Time to stop after the end of the standard input."""
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


def end_with_input() -> None:
    """Stop this process when its standard input is closed, as by the death of its parent.

    A process that does not stop within `END_SECONDS` is ended.
    """
    threading.Thread(target=_end_with_input, name="console input", daemon=True).start()


def _end_with_input() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(END_SECONDS)
    os._exit(1)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
