"""Binds the ports of the listeners, and names the broker as the clients of each listener see it."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from sharegroup.broker.configuration.listeners import Listener
from sharegroup.broker.configuration.server_config import ServerConfig
from sharegroup.broker.parts import Node
from sharegroup.broker.server.sockets import Server
from sharegroup.broker.tls.listeners import TlsListeners

log = logging.getLogger(__name__)


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
