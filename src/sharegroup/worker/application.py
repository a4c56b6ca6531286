"""The protocol through which the packages of the worker use an application.

`app.App` implements it and connects the packages.  None of them imports `app`, so each can be read
and tested without the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

from sharegroup.worker.declarations.route import Route
from sharegroup.worker.declarations.schedules import DeclaredSchedule
from sharegroup.worker.declarations.topics import Replication, TopicDeclaration
from sharegroup.worker.events import Events
from sharegroup.worker.middleware import Middleware
from sharegroup.worker.ports import Outbox, WorkerClock
from sharegroup.worker.routed import Routed
from sharegroup.worker.sender import Outlet
from sharegroup.worker.stores.store import Store

if TYPE_CHECKING:
    from sharegroup.client.settings.cluster_choice import ClusterChoice


class Application(Protocol):
    """An application as the packages of the worker see it: its declarations, and `opened`."""

    name: str
    client_options: dict[str, Any]
    events: Events
    middlewares: list[Middleware]
    outlet: Outlet
    schedule_list: tuple[DeclaredSchedule, ...]
    replication: Replication
    is_watched: bool
    announce: bool
    prepare: bool
    """Whether the start creates missing topics and settings."""

    @property
    def cluster(self) -> ClusterChoice:
        """The cluster that the application talks to."""

    @property
    def topic_list(self) -> tuple[TopicDeclaration, ...]: ...

    @property
    def route_list(self) -> tuple[Route, ...]: ...

    @property
    def handlers(self) -> Sequence[Routed[Any, Any]]: ...

    @property
    def store(self) -> Store | None:
        """The store that the application declares."""

    def opened(
        self, outbox: Outbox, clock: WorkerClock, store: Store | None = None
    ) -> AbstractAsyncContextManager[None]:
        """A context with senders connected, startup hooks run and handler classes opened.

        Leaving it closes them again.
        """
