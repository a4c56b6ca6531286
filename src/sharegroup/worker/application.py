"""What the wings of the worker know of an application: what it declared, and how it is opened.

`app.App` is one, and puts the wings together; none of them imports it, so that each can be read,
and tried, without all the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from sharegroup.worker.declared.route import Route
from sharegroup.worker.declared.topic import Topic
from sharegroup.worker.events import Events
from sharegroup.worker.middleware import Middleware
from sharegroup.worker.ports import Clock, Outbox
from sharegroup.worker.routed import Routed
from sharegroup.worker.sender import Outlet


class Application(Protocol):
    """See the module's text."""

    name: str
    bootstrap: str | list[str]
    client_options: dict[str, Any]
    events: Events
    middlewares: list[Middleware]
    outlet: Outlet
    topic_list: tuple[Topic, ...]
    is_watched: bool

    @property
    def route_list(self) -> tuple[Route, ...]: ...

    @property
    def handlers(self) -> Sequence[Routed[Any, Any]]: ...

    def opened(self, outbox: Outbox, clock: Clock) -> AbstractAsyncContextManager[None]:
        """Its senders connected, its hooks run and its classes opened; and closed after."""
