"""The logins of a broker: what each listener accepts, limits before a login, and counts."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sharegroup.broker.access.peer import Peer
from sharegroup.broker.load.log_limit import LinesByAddress

if TYPE_CHECKING:
    from sharegroup.broker.access.mechanisms import Exchange

    # Its library is imported only by brokers that accept tokens.
    from sharegroup.broker.access.token_keys import TokenKeys

log = logging.getLogger(__name__)


# Limits the connections that are not logged in yet, in total and for each address.
#
# A new connection is always accepted. Beyond a limit it replaces the oldest unauthenticated
# connection: of its own address, or of the address with the most of them. So a peer that opens
# connections without logging in mostly closes its own. A login takes a few milliseconds, so clients
# at the same address get through as long as their connections do not become the oldest before.


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


NO_MECHANISM = ""
"""The mechanism of a login that failed before it named one."""

REASON_CHARACTERS_MAX = 500
"""Number of characters of the reason for a failed login in a log line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedLogins:
    """The logins that a listener accepts."""

    exchanges: Mapping[str, Callable[[], Exchange]]
    """Begins a login, by the name of the mechanism; in the order of the configuration."""
    session_ms: Mapping[str, int]
    """The time after which clients must log in again, by mechanism; 0: no limit (KIP-368)."""
    frame_bytes_max: int
    """Maximum size of a message with a token; other messages before a login have a lower limit."""
    login_ms: int
    """Time in which a login must be complete."""
    failure_delay_ms: int
    """Time after which a failed login is answered, so that guessing is slow."""


class Logins:
    """The logins of all listeners, and their counts."""

    __slots__ = (
        "_listeners",
        "expired_count",
        "failed",
        "failures",
        "pending",
        "renewed",
        "succeeded",
        "token_keys",
    )

    def __init__(
        self,
        listeners: Mapping[str, AcceptedLogins],
        pending: PendingLogins,
        token_keys: tuple[TokenKeys, ...] = (),
    ) -> None:
        self._listeners = listeners
        self.token_keys = token_keys
        """The key sets of OAUTHBEARER."""
        self.pending = pending
        self.failures = LinesByAddress()
        """The log lines about failed logins."""
        self.succeeded: Counter[tuple[str, str]] = Counter()
        """First logins of connections that succeeded, by listener and mechanism."""
        self.renewed: Counter[tuple[str, str]] = Counter()
        """Further logins of connections that succeeded (KIP-368)."""
        self.failed: Counter[tuple[str, str]] = Counter()
        """Logins that failed; the mechanism is empty if it was not named yet."""
        self.expired_count = 0
        """Connections that were closed because their session had expired."""

    async def load(self) -> None:
        """Read the key sets at start; raise InvalidConfig if a file of keys cannot be read."""
        for keys in self.token_keys:
            await keys.load()

    async def keep_keys(self) -> None:
        """Read the key sets whenever they are due, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for keys in self.token_keys:
                tasks.create_task(keys.run())

    def of_listener(self, listener: str) -> AcceptedLogins | None:
        """Return what a listener accepts, or None if it has no SASL."""
        return self._listeners.get(listener)

    def failed_login(self, peer: Peer, mechanism: str, reason: str, *, now_ms: int) -> None:
        """Count a failed login and log it, unless the address has a line in this second."""
        self.failed[peer.listener, mechanism] += 1
        unlogged = self.failures.unlogged(peer.host, now_ms)
        if unlogged is not None:
            log.warning(
                "event=authentication_failed peer=%s listener=%s mechanism=%s reason=%r "
                "unlogged=%d",
                peer,
                peer.listener,
                mechanism or "none",
                reason[:REASON_CHARACTERS_MAX],
                unlogged,
            )
