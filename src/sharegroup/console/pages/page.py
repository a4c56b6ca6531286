"""What a page function returns, and what it is given.

GET /group?id=billing              the page as HTML
  Accept: text/event-stream        its live parts, each time they change
GET /api/v1/group?id=billing       its data as JSON
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.settings.client_config import ClientOptions
from sharegroup.console.access.audit import ValuesSeen
from sharegroup.console.access.roles import Rights, User
from sharegroup.console.access.sight import SeenWatcher
from sharegroup.console.parameters import BadQuery, is_number
from sharegroup.console.records.contents import Contents
from sharegroup.console.records.registry_values import RegistryValues
from sharegroup.console.settings import ConsoleSettings
from sharegroup.console.watch.history import Histories
from sharegroup.jobs import Jobs
from sharegroup.share_runs.durable_runs import KeptStates


class NotThere(Exception):
    """The page's subject does not exist; the text says what to do."""


class Forbidden(Exception):
    """The user may not do or see this; the text says what is needed."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its template with context, and the same as data."""

    template: str
    title: str
    context: Mapping[str, Any]
    data: Mapping[str, Any] = field(default_factory=dict)
    """The page as values for JSON; a function is called for its value, which is large."""
    parent: str = ""
    """The path of the page in the navigation that it belongs to; empty: that of its route."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A request of a user for a page."""

    query: Mapping[str, str]
    path: str
    user: User
    rights: Rights
    """What the user may see and change."""
    admin: AdminClient
    """The user's own connection."""
    reading: Cluster
    kept_states: KeptStates
    """What the user's connection has read of the state topic."""
    options: ClientOptions
    """The options of clients that a page opens for itself: those of the user's connection."""
    jobs: Jobs
    starter: str
    """The name of the user in jobs; it says whose connection runs them."""
    runs_job: Callable[[str], None]
    """Runs a job in this console, with the connection that the user has."""
    watcher: SeenWatcher
    """Its view has what the user may see."""
    history: Histories
    settings: ConsoleSettings
    values_seen: ValuesSeen
    registry: RegistryValues | None
    """Decodes values by the schema registry; None: there is none."""
    now_ms: int
    is_live: bool
    """Whether the page is open and only its live parts are wanted: what is no part of them is not
    read again."""

    def topic(self, name: str = "topic") -> str:
        """Return the topic that a parameter names; raise `NotThere` if the user may not see it."""
        topic = self.required(name)
        if not self.rights.may_see_topic(topic):
            raise NotThere(f"There is no topic {topic!r} in this cluster, or you may not see it.")
        return topic

    def contents(self, topic: str, **place: int | None) -> Contents:
        """Return what the user may see of a topic's records, and log that they saw values.

        ``place`` is a partition and an offset, if the page shows one record.
        """
        is_shown = self.rights.may_see_values(topic)
        if is_shown:
            self.values_seen.note(self.user, topic, place, now_ms=self.now_ms)
        return Contents(topic, self.rights.masks, is_shown, self.registry if is_shown else None)

    def required(self, name: str) -> str:
        """Return a parameter; raise `BadQuery` if the address lacks it."""
        value = self.query.get(name)
        if not value:
            raise BadQuery(f"{self.path}: the address needs ?{name}=…")
        return value

    def number(self, name: str, default: int | None = None) -> int | None:
        """Return a parameter that is a whole number of 0 or more, or the default."""
        text = self.query.get(name, "")
        if not text:
            return default
        if not is_number(text):
            raise BadQuery(f"{name}: expected a whole number, found {text[:40]!r}")
        return int(text)


PageFunction = Callable[[Visit], Awaitable[Page]]
