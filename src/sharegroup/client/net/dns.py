"""The canonical names of bootstrap servers (``client_dns_lookup``)."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

log = logging.getLogger(__name__)

Address = tuple[str, int]
GetAddresses = Callable[..., Awaitable[list[Any]]]
GetName = Callable[..., Awaitable[tuple[str, str]]]


async def canonical_addresses(
    servers: Iterable[Address],
    *,
    get_addresses: GetAddresses | None = None,
    get_name: GetName | None = None,
) -> tuple[Address, ...]:
    """Return each address of each server by its canonical name, as reverse DNS has it.

    A server whose name cannot be resolved now stays as it is, and connecting to it says why.
    """
    loop = asyncio.get_running_loop()
    get_addresses, get_name = get_addresses or loop.getaddrinfo, get_name or loop.getnameinfo
    addresses: dict[Address, None] = {}
    for host, port in servers:
        try:
            for *_, socket_address in await get_addresses(host, port, type=socket.SOCK_STREAM):
                name, _ = await get_name(socket_address)  # type: ignore[arg-type]  # TCP has these.
                addresses[name, port] = None
        except OSError as error:
            log.info('event=dns.failed host=%s error="%s"', host, error)
            addresses[host, port] = None
    return tuple(addresses)
