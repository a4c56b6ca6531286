"""Decides which connections the broker keeps: limits for all connections and for each address.

A connection beyond ``max.connections.per.ip`` is closed at once, as in Kafka, and so is one beyond
the address's quota ``connection_creation_rate``.  When
``max.connections`` are open, a new connection replaces an idle one.  The broker takes the address
with the most connections, and closes its connection that has been without a request for longest.
That connection must have been idle for `IDLE_EVICTION_MS`.  If there is no such connection, the
new one is closed.  So a peer that leaves connections open cannot keep other clients out, and
connections with requests are never closed for new ones.

A user may have only a part of all connections; a further one is closed after its login.
"""

from __future__ import annotations

import logging
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from sharegroup.core.security.principal import Principal, canonical_address
from sharegroup.errors import InvalidConfig

log = logging.getLogger(__name__)

IDLE_EVICTION_MS = 5_000
"""A connection that has been without a request for so long may be closed for a new one."""

REFUSALS_LOGGED_EVERY_MS = 1_000


class Admitted(Protocol):
    """A connection, as far as its admission is concerned."""

    @property
    def connection_id(self) -> int: ...

    @property
    def host(self) -> str: ...

    @property
    def peer(self) -> str:
        """Address and port, for the log."""
        ...

    @property
    def idle_since_ms(self) -> int | None:
        """The time at which the peer last sent bytes; None while it waits for an answer."""
        ...

    def close(self, reason: str) -> None: ...


class Admission:
    """The admitted connections of one broker, counted in total and by address."""

    __slots__ = (
        "_by_host",
        "_by_user",
        "_host_max",
        "_logged_ms",
        "_max",
        "_overrides",
        "_unlogged",
        "_user_max",
        "_users",
        "count",
        "evicted_count",
        "is_within_quota",
        "refused_count",
    )

    def __init__(
        self,
        connections_max: int,
        *,
        host_max: int,
        overrides: Mapping[str, int] | None = None,
        user_max: int | None = None,
    ) -> None:
        self._max = connections_max
        self._user_max = connections_max if user_max is None else user_max
        self._users: dict[int, Principal] = {}
        """The users of connections after their logins, by the ids of the connections."""
        self._by_user: Counter[Principal] = Counter()
        self._host_max = host_max
        self._overrides = dict(overrides or {})
        self._by_host: dict[str, dict[int, Admitted]] = {}
        self._logged_ms = -REFUSALS_LOGGED_EVERY_MS
        self._unlogged = 0
        self.is_within_quota: Callable[[str], bool] = lambda _: True
        """Counts a new connection of an address; returns False if it opens them too fast."""
        self.count = 0
        """Connections that are admitted now."""
        self.refused_count = 0
        """Connections that were refused and closed at once."""
        self.evicted_count = 0
        """Idle connections that were closed for a new one."""

    def limit_hosts_to(self, host_max: int) -> None:
        """Change the limit for one address; open connections stay."""
        self._host_max = host_max

    def admit(self, connection: Admitted, *, now_ms: int) -> bool:
        """Admit the connection if the limits allow it; return False if they do not.

        A connection whose TLS handshake was admitted under the same id takes over its place.
        """
        host = connection.host
        host_connections = self._by_host.get(host, {})
        if connection.connection_id in host_connections:
            host_connections[connection.connection_id] = connection
            return True
        host_max = self._overrides.get(host, self._host_max)
        if len(host_connections) >= host_max:
            self.refuse(connection.peer, f"max.connections.per.ip={host_max}", now_ms)
            return False
        # After the limit of the address, because this call counts the connection for its quota.
        if not self.is_within_quota(host):
            self.refuse(connection.peer, "connection_creation_rate", now_ms)
            return False
        # Last, because it closes another connection, and only one that is admitted may cause that.
        if self.count >= self._max and not self._evict(now_ms):
            self.refuse(connection.peer, f"max.connections={self._max}", now_ms)
            return False
        self._by_host.setdefault(host, {})[connection.connection_id] = connection
        self.count += 1
        return True

    def assign(self, connection: Admitted, user: Principal, *, now_ms: int) -> bool:
        """Count a connection for its user; return False if the user has too many connections."""
        # Asked only now: before the login the user of the connection is not known.
        if self._by_user[user] >= self._user_max:
            key = "sharegroup.user.connections.max"
            self.refuse(connection.peer, f"{key}={self._user_max} user={user}", now_ms)
            return False
        self._by_user[user] += 1
        self._users[connection.connection_id] = user
        return True

    def leave(self, connection: Admitted) -> None:
        """Remove a closed connection; does nothing if it was not admitted."""
        user = self._users.pop(connection.connection_id, None)
        if user is not None:
            self._by_user[user] -= 1
            if not self._by_user[user]:
                del self._by_user[user]
        host_connections = self._by_host.get(connection.host, {})
        if host_connections.pop(connection.connection_id, None) is None:
            return
        self.count -= 1
        if not host_connections:
            del self._by_host[connection.host]

    def _evict(self, now_ms: int) -> bool:
        """Close the longest idle connection of the address with the most connections.

        Returns False if no connection has been idle for long enough.
        """
        if not self._by_host:
            return False
        connections = max(self._by_host.values(), key=len)
        idlest = _idlest(connections.values())
        if idlest is None or now_ms - (idlest.idle_since_ms or 0) < IDLE_EVICTION_MS:
            return False
        self.evicted_count += 1
        # Its place is free at once.  When the transport reports the end, `leave` finds nothing.
        self.leave(idlest)
        idlest.close("idle, and a new connection needs its place")
        return True

    def refuse(self, peer: str, reason: str, now_ms: int) -> None:
        """Count a refused connection, and log at most one line per `REFUSALS_LOGGED_EVERY_MS`."""
        self.refused_count += 1
        self._unlogged += 1
        if now_ms - self._logged_ms >= REFUSALS_LOGGED_EVERY_MS:
            log.warning(
                "event=connection_refused peer=%s reason=%r count=%d", peer, reason, self._unlogged
            )
            self._logged_ms, self._unlogged = now_ms, 0


def _idlest(connections: Iterable[Admitted]) -> Admitted | None:
    """Return the connection that has been idle for longest; None if none is idle."""
    idlest, since_ms = None, 0
    for connection in connections:
        idle_since_ms = connection.idle_since_ms
        if idle_since_ms is not None and (idlest is None or idle_since_ms < since_ms):
            idlest, since_ms = connection, idle_since_ms
    return idlest


def parse_overrides(pairs: Iterable[str]) -> dict[str, int]:
    """Parse ``max.connections.per.ip.overrides``: entries ``host:number``, to limits by address."""
    limits: dict[str, int] = {}
    for pair in pairs:
        host, _, number = pair.rpartition(":")
        if not host or not number.isdecimal():
            raise InvalidConfig(
                f"max.connections.per.ip.overrides must have entries host:number, not {pair!r}"
            )
        try:
            addresses = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
        except OSError as error:
            raise InvalidConfig(
                f"max.connections.per.ip.overrides: {host!r} has no address: {error}"
            ) from error
        names = (str(address[0]) for *_, address in addresses)
        limits.update((canonical_address(name) or name, int(number)) for name in names)
    return limits
