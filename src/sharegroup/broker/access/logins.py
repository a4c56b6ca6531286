"""The logins of a broker: what each listener accepts, limits before a login, and counts."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sharegroup.broker.access.peer import Peer
from sharegroup.broker.access.pending_logins import PendingLogins
from sharegroup.broker.load.lines_by_address import LinesByAddress

if TYPE_CHECKING:
    # Only brokers with SASL import it.
    from sharegroup.broker.access.mechanisms import Exchange

    # Its library is imported only by brokers that accept tokens.
    from sharegroup.broker.access.token_keys import TokenKeys

log = logging.getLogger(__name__)

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
