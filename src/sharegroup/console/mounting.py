"""The console as a part of somebody's own application.

    from sharegroup.console import User, console

    async def who(request) -> User | None:
        ...                                # the user that the application knows, or None

    queues = console(bootstrap_servers="127.0.0.1:9092", auth=who, allow_changes=True)

    @asynccontextmanager
    async def lifespan(app):
        async with queues.running():       # an application that is mounted has no lifespan
            yield

    app = FastAPI(lifespan=lifespan)       # or Starlette
    app.mount("/queues", queues)

A server can also run it by itself (``uvicorn module:queues``), because then it has a lifespan.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Unpack

from sharegroup.errors import MissingExtra
from sharegroup.installation import pip_install

try:
    from starlette.responses import PlainTextResponse
    from starlette.types import Receive, Scope, Send

    from sharegroup.console.application import Console, application_of
except ModuleNotFoundError as error:
    raise MissingExtra(f"the console needs an extra: {pip_install('console')}") from error

from sharegroup.client.settings.client_config import ClientOptions
from sharegroup.console.access.roles import ONLY_LOOKS, Roles
from sharegroup.console.access.roles_file import read_roles
from sharegroup.console.settings import Auth, ConsoleSettings

NOT_RUNNING = (
    "this console is mounted, but does not run: its application has to run it in its lifespan, "
    "by: async with console.running(): yield\n"
)


class MountedConsole:
    """An ASGI application, and the context in which it runs."""

    __slots__ = ("_app", "_console")

    def __init__(self, settings: ConsoleSettings) -> None:
        self._console = Console(settings)
        self._app = application_of(self._console)

    def running(self) -> AbstractAsyncContextManager[None]:
        """Return the context in which the console is connected; for the lifespan of its owner."""
        return self._console.running()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; 503 if the console does not run."""
        if scope["type"] == "http" and not self._console.is_running:
            await PlainTextResponse(NOT_RUNNING, 503)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def console(
    *,
    auth: Auth | None = None,
    allow_changes: bool = False,
    roles: str | Path | None = None,
    metrics_url: str | None = None,
    schema_registry: str | None = None,
    form_secret: str | None = None,
    remember: bool = False,
    history_file: str | Path | None = None,
    **client_options: Unpack[ClientOptions],
) -> MountedConsole:
    """Return a console to mount; ``client_options`` are those of its connection.

    ``auth`` is an async function that returns the `User` of a request, or None for nobody.  Without
    it everybody who reaches the console sees groups and topics, but no values, and nobody changes
    anything, whatever ``allow_changes`` says.

    ``roles`` is the file of roles for users that have no grants of their own; without a file they
    only look, and see no values.  ``form_secret`` has to be the same in all processes of an
    application that has several.

    With ``schema_registry``, an address, values are decoded by its schemas.

    With ``remember`` the history of groups is kept in topics of the cluster, which all consoles
    share; with ``history_file`` in this file, which only one process may have.
    """
    own_roles = Roles.of_everybody(ONLY_LOOKS) if roles is None else read_roles(Path(roles))
    return MountedConsole(
        ConsoleSettings(
            client_options=client_options,
            allow_changes=allow_changes and auth is not None,
            metrics_url=metrics_url,
            schema_registry=schema_registry,
            roles=own_roles,
            roles_file=None if roles is None else Path(roles),
            auth=auth,
            form_secret=form_secret,
            remember=remember,
            history_file=None if history_file is None else lambda _: Path(history_file),
        )
    )
