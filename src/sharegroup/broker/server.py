"""Listening: accepts connections, bounds them, watches their progress, stops cleanly."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from urllib.parse import urlsplit

from sharegroup.broker.clock import Clock, Timer
from sharegroup.broker.connection import Connection
from sharegroup.broker.parts import Parts
from sharegroup.errors import InvalidConfig

log = logging.getLogger(__name__)

PROGRESS_CHECK_MS = 1_000


class Server:
    """All connections of one listener."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._on_closed: Callable[[int], None] = lambda _: None
        self._ids = count(1)
        self._connections: dict[int, Connection] = {}
        self._listener: asyncio.Server | None = None
        self._timer: Timer | None = None
        self._connections_max = 0
        self.opened_count = 0
        """Connections that were accepted."""
        self.refused_count = 0
        """Connections that were closed at once, because there were too many."""
        self._all_closed = asyncio.Event()
        self._all_closed.set()

    @property
    def connection_count(self) -> int:
        """Connections that are open."""
        return len(self._connections)

    async def listen(self, host: str, port: int) -> int:
        """Take the port, without accepting yet; returns the port that was taken."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            self._connection, host, port, backlog=512, start_serving=False
        )
        port_taken: int = self._listener.sockets[0].getsockname()[1]
        return port_taken

    async def serve(self, parts: Parts, on_closed: Callable[[int], None]) -> None:
        """Accept connections from now on; ``on_closed`` is told the id of each that ends."""
        assert self._listener is not None
        self._parts = parts
        self._on_closed = on_closed
        self._connections_max = parts.config.server.connections_max
        await _begin(self._listener)
        self._check_progress()

    async def stop(self) -> None:
        """Close the listener and every connection."""
        if self._timer is not None:
            self._timer.cancel()
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections.values()):
            connection.close("the broker stops")
        await self._all_closed.wait()

    def opened(self, connection: Connection) -> bool:
        if len(self._connections) >= self._connections_max:
            log.warning(
                "event=connection_refused peer=%s reason=max.connections=%d",
                connection.peer,
                self._connections_max,
            )
            self.refused_count += 1
            return False
        self.opened_count += 1
        self._connections[connection.connection_id] = connection
        self._all_closed.clear()
        return True

    def closed(self, connection: Connection) -> None:
        if self._connections.pop(connection.connection_id, None) is not None:
            self._on_closed(connection.connection_id)
        if not self._connections:
            self._all_closed.set()

    def _connection(self) -> Connection:
        return Connection(self, self._parts, next(self._ids))

    def _check_progress(self) -> None:
        now_ms = self._clock.now_ms()
        for connection in list(self._connections.values()):
            connection.check_progress(now_ms)
        self._timer = self._clock.call_at_ms(now_ms + PROGRESS_CHECK_MS, self._check_progress)


async def _begin(listener: asyncio.Server) -> None:
    """Listen; raise OSError when somebody else does since the port was taken.

    A port is bound before what there is to load, and many may be bound to it until one of them
    listens.  uvloop then closes the others' sockets and says nothing, hence duplicates to ask.
    """
    with ExitStack() as held:
        sockets = [
            held.enter_context(socket.socket(fileno=os.dup(bound.fileno())))
            for bound in listener.sockets
        ]
        await listener.start_serving()
        for one in sockets:
            if not one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                host, port = one.getsockname()[:2]
                raise OSError(
                    errno.EADDRINUSE,
                    f"{host}:{port} was taken while the broker started, by another process or by "
                    "its own sharegroup.metrics.port",
                )


def parse_listener(text: str, *, insecure: bool) -> tuple[str, int]:
    """Host and port of ``PLAINTEXT://host:port``; beyond loopback only when told so."""
    brokers = [one for one in text.split(",") if not one.startswith("CONTROLLER://")]
    parsed = urlsplit(brokers[0] if len(brokers) == 1 else "")
    try:
        port = parsed.port
    except ValueError:  # No number, or above 65,535.
        port = None
    if parsed.scheme.upper() != "PLAINTEXT" or port is None:
        raise InvalidConfig(f"listeners must be one PLAINTEXT://host:port, not {text!r}")
    host = parsed.hostname or "0.0.0.0"  # noqa: S104  Kafka's meaning of an empty host.
    if not insecure and not _is_loopback(host):
        raise InvalidConfig(
            f"listeners={text!r} is open to other machines without TLS or a password; "
            "listen on 127.0.0.1, or say --insecure if that is what you want"
        )
    return host, port


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
