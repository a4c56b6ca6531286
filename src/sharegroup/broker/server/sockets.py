"""The listeners of a broker: accept, limit and check connections, and stop cleanly."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from sharegroup.broker.clock import Clock, TimerHandle
from sharegroup.broker.configuration.listeners import Listener
from sharegroup.broker.configuration.server_config import ServerConfig
from sharegroup.broker.handler_contract import HandlerOf
from sharegroup.broker.load.admission import Admission
from sharegroup.broker.load.answer_budget import AnswerBudget
from sharegroup.broker.load.log_limit import LinesByAddress
from sharegroup.broker.load.request_budget import RequestBudget
from sharegroup.broker.parts import Node, Parts
from sharegroup.broker.server.connection import Budgets, Connection
from sharegroup.broker.server.turns import Turns
from sharegroup.broker.tls.handshakes import Handshakes
from sharegroup.broker.tls.listeners import TlsListeners
from sharegroup.core.security.principal import Principal

if TYPE_CHECKING:
    from sharegroup.broker.tls.listener import TlsListener
    from sharegroup.broker.tls.transport import Buffers

log = logging.getLogger(__name__)


PROGRESS_CHECK_MS = 1_000

ACCEPT_TURNS = 4
"""Turns of the event loop in which asyncio makes the task, the transport and the protocol of an
accepted connection, and closes it if it is refused."""


class Server:
    """All connections of a broker's listeners."""

    def __init__(self, clock: Clock, admission: Admission, handshakes: Handshakes) -> None:
        self._clock = clock
        self.admission = admission
        self.handshakes = handshakes
        self._buffers: Buffers | None = None
        """What TLS connections receive into; None while there was none."""
        self._on_closed: Callable[[int], None] = lambda _: None
        self._ids = count(1)
        self._connections: dict[int, Connection] = {}
        self._listeners: list[asyncio.Server] = []
        self._parts: list[Parts] = []
        self._timer: TimerHandle | None = None
        self._is_stopping = False
        self.tls_listeners: list[TlsListener] = []
        """TLS of the encrypted listeners."""
        self.opened_count = 0
        """Connections that were accepted."""
        self._all_closed = asyncio.Event()
        self._all_closed.set()

    def share(self, budgets: Budgets) -> None:
        """Set the budgets that all connections share; to be called before `serve`."""
        self.budgets = budgets

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    async def listen(self, host: str, port: int, tls: TlsListener | None = None) -> int:
        """Bind a port without accepting connections yet; return the port that was bound.

        With ``tls`` its connections are encrypted.
        """
        number = len(self._listeners)
        if tls is not None:
            tls.on_empty = self._check_all_closed
            self.tls_listeners.append(tls)
        listener = await asyncio.get_running_loop().create_server(
            lambda: self._accepted(number, tls), host, port, backlog=512, start_serving=False
        )
        self._listeners.append(listener)
        port_taken: int = listener.sockets[0].getsockname()[1]
        return port_taken

    async def serve(
        self,
        parts: list[Parts],
        handlers: Callable[[], HandlerOf],
        on_closed: Callable[[int], None],
    ) -> None:
        """Accept connections from now on; ``on_closed`` is called with the id of each that ends.

        ``parts`` has the parts of the broker as the connections of each listener see them, in the
        order of `listen`.  ``handlers`` is called with each connection, so the table of handlers
        need not be imported before the first.
        """
        assert len(parts) == len(self._listeners), "every listener has its view of the parts"
        self._parts = parts
        self._handlers = handlers
        self._on_closed = on_closed
        for listener in self._listeners:
            await _begin(listener)
        self._check_progress()

    async def stop(self) -> None:
        """Close the listener and every connection, also those that are being accepted."""
        self._is_stopping = True
        if self._timer is not None:
            self._timer.cancel()
        for listener in self._listeners:
            await self._stop_accepting(listener)
        self.handshakes.stop()
        for connection in list(self._connections.values()):
            if not connection.is_lost:  # What it has sent before is decided, as in Kafka.
                connection.close("the broker stops")
        self._check_all_closed()
        await self._all_closed.wait()

    async def _stop_accepting(self, listener: asyncio.Server) -> None:
        """Close the listener when the connections that it has accepted are refused.

        If asyncio closes a listener while it makes the transport of an accepted connection, it
        leaves the transport and the socket open.
        """
        loop = asyncio.get_running_loop()
        for bound in listener.sockets:
            if bound.fileno() >= 0:  # It is -1 if the listener could not begin to listen.
                loop.remove_reader(bound.fileno())
        for _ in range(ACCEPT_TURNS):
            await asyncio.sleep(0)
        listener.close()

    def opened(self, connection: Connection) -> bool:
        """Register a new connection; return False if it must be closed.

        It is refused while the server stops, and by the limits of `Admission`.
        """
        if self._is_stopping:
            return False
        if not self.admission.admit(connection, now_ms=self._clock.now_ms()):
            return False
        self.opened_count += 1
        self._connections[connection.connection_id] = connection
        self._all_closed.clear()
        return True

    def logged_in(self, connection: Connection, user: Principal) -> bool:
        """Count a connection for its user; return False if the user has too many connections."""
        return self.admission.assign(connection, user, now_ms=self._clock.now_ms())

    def closed(self, connection: Connection) -> None:
        """Forget a closed connection, which may be one that `opened` has refused."""
        self.admission.leave(connection)
        if self._connections.pop(connection.connection_id, None) is not None:
            self._on_closed(connection.connection_id)
        self._check_all_closed()

    def _check_all_closed(self) -> None:
        if self._connections or not self.handshakes.is_empty:
            self._all_closed.clear()
        else:
            self._all_closed.set()

    def _accepted(self, listener: int, tls: TlsListener | None) -> asyncio.BaseProtocol:
        connection_id = next(self._ids)
        if tls is None:
            return self._connection(listener, connection_id)
        # Imported by brokers with TLS only, and no longer than the first time.
        from sharegroup.broker.tls.transport import Buffers, TlsLayer

        if self._buffers is None:
            self._buffers = Buffers()
        return TlsLayer(
            tls,
            partial(self._connection, listener),
            self._buffers,
            connection_id=connection_id,
            now_ms=self._clock.now_ms(),
        )

    def _connection(self, listener: int, connection_id: int) -> Connection:
        parts = self._parts[listener]
        return Connection(self, parts, self._handlers(), self.budgets, connection_id)

    def _check_progress(self) -> None:
        """Check the progress of all connections, and schedule the next check."""
        now_ms = self._clock.now_ms()
        for connection in list(self._connections.values()):
            connection.check_progress(now_ms)
        self.handshakes.check_progress(now_ms)
        self._timer = self._clock.call_at_ms(now_ms + PROGRESS_CHECK_MS, self._check_progress)


def budgets_of(parts: Parts) -> Budgets:
    """Make the budgets that all connections of a broker share, from its configuration."""
    server = parts.config.server
    return Budgets(
        RequestBudget(
            parts.clock,
            bytes_max=server.queued_request_bytes_max,
            frame_bytes_max=server.request_bytes_max,
            progress_ms=server.frame_progress_ms,
            user_percent=server.user_bytes_percent,
        ),
        AnswerBudget(
            parts.clock,
            parts.waiting.wake,
            bytes_max=server.answer_bytes_max,
            connection_bytes_max=server.connection_answer_bytes_max,
            progress_ms=server.frame_progress_ms,
            user_percent=server.user_bytes_percent,
        ),
        Turns(parts.requests.clock),
        LinesByAddress(),
        LinesByAddress(),
    )


async def _begin(listener: asyncio.Server) -> None:
    """Start to listen; raise OSError if another process has listened since the port was bound.

    The port is bound before the data is loaded, and several sockets may be bound to it until one of
    them listens.  uvloop then closes the other sockets without an error, so duplicates of the
    sockets are asked.
    """
    with ExitStack() as duplicates:
        sockets = [
            duplicates.enter_context(socket.socket(fileno=os.dup(bound.fileno())))
            for bound in listener.sockets
        ]
        await listener.start_serving()
        for duplicate in sockets:
            if not duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                host, port = duplicate.getsockname()[:2]
                raise OSError(
                    errno.EADDRINUSE,
                    f"{host}:{port} is in use by another process, or by sharegroup.metrics.port of "
                    "this broker",
                )


# Binds the ports of the listeners, and names the broker as the clients of each listener see it.


async def listen(
    server: Server,
    listeners: Iterable[Listener],
    tls: TlsListeners,
    config: ServerConfig,
) -> tuple[list[Node], str]:
    """Bind the ports; return the node of each listener, and the bound addresses as a setting."""
    nodes, bound = [], []
    for listener in listeners:
        port = await server.listen(listener.host, listener.port, tls.of(listener.name))
        nodes.append(_node(config, listener, port))
        bound.append(f"{listener.name}://{bracketed(listener.host)}:{port}")
    return nodes, ",".join(bound)


def _node(config: ServerConfig, listener: Listener, port: int) -> Node:
    """Return this broker as the clients of a listener see it, which is bound to ``port``."""
    if listener.is_narrowed:
        log.warning(
            "event=listener_narrowed listener=%s address=%s:%d advertised=%s reason=%r",
            listener.name,
            listener.host,
            port,
            listener.advertised_host,
            "only this machine can use the advertised address; --insecure opens every address",
        )
    advertised_port = listener.advertised_port or port
    return Node(config.node_id, listener.advertised_host, advertised_port, config.rack)


def bracketed(host: str) -> str:
    """Return a host as it stands in an address: an IPv6 address needs brackets."""
    return f"[{host}]" if ":" in host else host
