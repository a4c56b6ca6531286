"""What a page function returns, and what it is given.

GET /group?id=billing              the page as HTML
  Accept: text/event-stream        its live parts, each time they change
GET /api/v1/group?id=billing       its data as JSON
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.net.cluster import Cluster
from sharegroup.console.settings import ConsoleSettings
from sharegroup.console.watch.history import History
from sharegroup.console.watch.watcher import Watcher


class NotThere(Exception):
    """The page's subject does not exist; the text says what to do."""


class BadQuery(ValueError):
    """A parameter of the page's address is not as expected."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its template with context, and the same as data."""

    template: str
    title: str
    context: Mapping[str, Any]
    data: Mapping[str, Any] = field(default_factory=dict)
    """The page as values for JSON."""
    parent: str = ""
    """The path of the page in the navigation that it belongs to; empty: that of its route."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A request of a user for a page."""

    query: Mapping[str, str]
    path: str
    admin: AdminClient
    """The user's own connection."""
    reading: Cluster
    watcher: Watcher
    history: History
    settings: ConsoleSettings
    now_ms: int

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
        if not (text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX):
            raise BadQuery(f"{name}: expected a whole number, found {text[:40]!r}")
        return int(text)


DIGITS_MAX = 18

PageFunction = Callable[[Visit], Awaitable[Page]]


class Described(Protocol):
    """A page function with its documentation, which OpenAPI shows."""

    __doc__: str | None
