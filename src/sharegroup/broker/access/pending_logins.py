"""Limits the connections that are not logged in yet, in total and for each address.

A new connection is always accepted.  Beyond a limit it replaces the oldest unauthenticated
connection: of its own address, or of the address with the most of them.  So a peer that opens
connections without logging in mostly closes its own.  A login takes a few milliseconds, so clients
at the same address get through as long as their connections do not become the oldest before.
"""

from __future__ import annotations

from typing import Protocol


class Unauthenticated(Protocol):
    """A connection that is not logged in yet."""

    @property
    def connection_id(self) -> int: ...

    @property
    def host(self) -> str: ...

    def close(self, reason: str) -> None: ...


class PendingLogins:
    """The unauthenticated connections by address, the oldest first."""

    __slots__ = ("_by_host", "_host_max", "_max", "count", "evicted_count")

    def __init__(self, connections_max: int, *, host_max: int) -> None:
        self._max = connections_max
        self._host_max = host_max
        self._by_host: dict[str, dict[int, Unauthenticated]] = {}
        self.count = 0
        """Connections that are not logged in."""
        self.evicted_count = 0
        """Connections that were closed for a new one."""

    def begin(self, connection: Unauthenticated) -> None:
        """Count a new connection; close an older one if there are too many."""
        pending = self._by_host.get(connection.host, {})
        if len(pending) >= self._host_max:
            self._evict(pending)
        elif self.count >= self._max:
            self._evict(max(self._by_host.values(), key=len))
        self._by_host.setdefault(connection.host, {})[connection.connection_id] = connection
        self.count += 1

    def end(self, connection: Unauthenticated) -> None:
        """Forget a connection that is logged in or closed; does nothing if it was forgotten."""
        pending = self._by_host.get(connection.host, {})
        if pending.pop(connection.connection_id, None) is None:
            return
        self.count -= 1
        if not pending:
            del self._by_host[connection.host]

    def _evict(self, pending: dict[int, Unauthenticated]) -> None:
        oldest = next(iter(pending.values()))
        # Before it is closed, which takes a while: its place is free for the new connection at
        # once.
        self.end(oldest)
        self.evicted_count += 1
        oldest.close("not logged in, and a new connection needs its place")
