"""The clients of one user, or of the console itself, and the names that they list."""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import dataclass, field

from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.settings.client_config import ClientOptions, ReadingConfig, config_from
from sharegroup.console.access.audit import quoted
from sharegroup.console.access.roles import NOTHING, Visible
from sharegroup.errors import AuthorizationException, KafkaError, SaslAuthenticationFailed
from sharegroup.jobs import Jobs
from sharegroup.share_runs.durable_runs import KeptStates

log = logging.getLogger(__name__)

FRESH_SECONDS = 30.0
"""The age at which the list of visible names is read again."""
STALE_SECONDS = 90.0
"""The age from which names are hidden because the list could not be read again."""
LIST_SECONDS = 5.0
RETRY_SECONDS = 5.0
"""The pause after a list that could not be read, so that pages do not wait for each other."""


class Connection:
    """Clients with the same credentials."""

    __slots__ = ("admin", "jobs", "kept_states", "options", "reading")

    def __init__(self, options: ClientOptions) -> None:
        """Make the clients, which connect when they are first used."""
        self.options = options
        self.admin = AdminClient(**options)
        self.reading = Cluster(config_from(ReadingConfig, {**options}))
        # One for all pages: it reads only what is new of the topic of jobs.
        self.jobs = Jobs(**options)
        self.kept_states = KeptStates()

    async def close(self) -> None:
        """Close all connections."""
        self.reading.close()
        await self.jobs.close()
        await self.admin.close()


@dataclass(slots=True)
class UserConnection:
    """A user's own clients, and what they list."""

    clients: Connection
    visible: Visible = NOTHING
    listed_at: float | None = None
    """The monotonic time of the list; None before the first."""
    _retry_at: float = -math.inf
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def list_names(self, now: float) -> None:
        """Read the list of names; raises KafkaError if that fails."""
        admin = self.clients.admin
        topics = await admin.list_topics(internal=True, timeout=LIST_SECONDS)
        groups = await admin.list_groups(timeout=LIST_SECONDS)
        visible = Visible(frozenset(group.group_id for group in groups), frozenset(topics))
        if visible != self.visible:
            self.visible = visible  # The same object means the same names.
        self.listed_at = now

    async def refresh(self, now: float) -> None:
        """Read the list again if it is old; what can no longer be listed is hidden."""
        async with self._lock:
            age = STALE_SECONDS if self.listed_at is None else now - self.listed_at
            if age < FRESH_SECONDS:
                return
            if age >= STALE_SECONDS:
                self.visible = NOTHING
            if now < self._retry_at:
                return
            self._retry_at = now + RETRY_SECONDS
            try:
                await self.list_names(now)
            except (AuthorizationException, SaslAuthenticationFailed):
                self.visible = NOTHING
            except KafkaError as error:
                # A broker that restarts is no reason to hide everything at once.
                log.warning(
                    "event=console.names_unknown user=%s error=%s action='look at the brokers'",
                    quoted(self.clients.admin.principal or ""), error,
                )  # fmt: skip
