"""Runs the console as a program: uvicorn on one port, until a signal ends it."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import uvicorn

from sharegroup.console.access.exposure import Listening
from sharegroup.console.application import application
from sharegroup.console.settings import ConsoleSettings
from sharegroup.errors import InvalidConfig
from sharegroup.http_hosts import HttpHosts
from sharegroup.stop_signals import heeded

STOP_SECONDS = 2
"""Time for open streams and requests at a stop."""
END_SECONDS = 5
"""Time to stop after the end of the standard input."""
CONNECTIONS_MAX = 500
"""Connections of all browsers together."""


def run(
    settings: ConsoleSettings, listening: Listening, *, say: Callable[[str], object] = print
) -> None:
    """Serve the console until SIGINT or SIGTERM.

    Raises InvalidConfig if it must not listen there like this, and OSError if the port is taken.
    """
    refusal = listening.refusal(has_login=settings.has_login)
    if refusal is not None:
        raise InvalidConfig(refusal)
    settings = replace(settings, is_behind_proxy=bool(listening.proxies))
    for number in heeded():
        # uvicorn stops in order and then raises the signal again, which ends here.
        signal.signal(number, _end)
    host = listening.host
    with socket.create_server(
        (host, listening.port), family=_family(host), reuse_port=False
    ) as listener:
        bound_host, bound_port = listener.getsockname()[:2]
        hosts = HttpHosts.of(host, [bound_host], os.environ)
        hosts = replace(hosts, names=hosts.names | {name.lower() for name in listening.names})
        server = uvicorn.Server(
            uvicorn.Config(
                application(settings, hosts=hosts),
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=bool(listening.proxies),
                forwarded_allow_ips=list(listening.proxies),
                ssl_certfile=listening.tls_cert,
                ssl_keyfile=listening.tls_key,
                limit_concurrency=CONNECTIONS_MAX,
                timeout_graceful_shutdown=STOP_SECONDS,
            )
        )
        shown = f"[{host}]" if ":" in host else host
        scheme = "http" if listening.tls_cert is None else "https"
        say(f"ready console={scheme}://{shown}:{bound_port}")
        server.run(sockets=[listener])


def _end(number: int, _: object) -> None:
    raise SystemExit(0) if number != signal.SIGINT else KeyboardInterrupt


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
