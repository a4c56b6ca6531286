"""The console as an ASGI application: one connection to the cluster, a watcher, and pages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route as WebRoute
from starlette.staticfiles import StaticFiles

from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.settings.client_config import ReadingConfig, config_from
from sharegroup.console.pages.page import BadQuery, NotThere, Page, Visit
from sharegroup.console.settings import ConsoleSettings
from sharegroup.console.watch.history import History
from sharegroup.console.watch.watcher import Watcher
from sharegroup.console.web.live import Streams
from sharegroup.console.web.rendering import Renderer, to_json
from sharegroup.console.web.routes import ROUTES, Route
from sharegroup.console.web.safety import Safety
from sharegroup.console.web.shared_pages import Shared
from sharegroup.errors import KafkaError
from sharegroup.http_hosts import HttpHosts

STATIC = str(Path(__file__).parent / "static")
API = "/api/v1"
EVENT_STREAM = "text/event-stream"
FIRST_LOOK_SECONDS = 0.8
"""How long the first pages wait for the first look at the cluster."""
PAGE_SECONDS = 15.0
"""Time for all requests of a page to the cluster."""


class Console:
    """The parts of one running console; `application` makes its ASGI application."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self.settings = settings
        self.history = History()
        self.renderer = Renderer()
        self.streams = Streams()
        self.pages: Shared[tuple[Page, int]] = Shared()
        self.parts: Shared[dict[str, str] | str] = Shared()
        self._admin: AdminClient | None = None
        self._reading: Cluster | None = None
        self._watcher: Watcher | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Connect to the cluster and watch it while the body runs."""
        options = self.settings.client_options
        self._reading = Cluster(config_from(ReadingConfig, {**options}))
        async with AdminClient(**options) as admin:
            self._admin = admin
            self._watcher = Watcher(admin, self._reading, self.history)
            task = asyncio.create_task(self._watcher.run(), name="console watcher")
            try:
                yield
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
                self._reading.close()

    def visit(self, request: Request, path: str) -> Visit:
        """Return what a page function is given for a request."""
        assert self._admin is not None, "the console runs"
        assert self._reading is not None, "the console runs"
        assert self._watcher is not None, "the console runs"
        self._watcher.looks_at()
        return Visit(
            query=dict(request.query_params),
            path=path,
            admin=self._admin,
            reading=self._reading,
            watcher=self._watcher,
            history=self.history,
            settings=self.settings,
            now_ms=int(time.time() * 1000),
        )

    def context(self, route: Route, page: Page, request: Request) -> dict[str, Any]:
        """Return the variables of a template: the page's, and those of its frame."""
        assert self._watcher is not None, "the console runs"
        base = str(request.scope.get("root_path", "")).rstrip("/")
        return {
            **page.context,
            "title": page.title,
            "base": base,
            "navigation": [
                (
                    base + other.path,
                    other.name,
                    other.path in (route.path, page.parent or route.parent),
                )
                for other in ROUTES
                if other.name
            ],
            "view": self._watcher.view,
            "settings_of_console": self.settings,
            "api": f"{base}{API}{route.path}?{request.url.query}",
        }


def application(settings: ConsoleSettings, *, hosts: HttpHosts | None = None) -> Starlette:
    """Return the console as an ASGI application, which connects when it is started."""
    console = Console(settings)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with console.running():
            yield

    return Starlette(
        routes=list(_routes(console)),
        lifespan=lifespan,
        middleware=[Middleware(Safety, hosts=hosts)],
    )


def _routes(console: Console) -> Sequence[BaseRoute]:
    pages: list[BaseRoute] = []
    for route in ROUTES:
        pages.append(WebRoute(route.path, _page_endpoint(console, route), methods=["GET"]))
        pages.append(WebRoute(API + route.path, _api_endpoint(console, route), methods=["GET"]))
    return [*pages, Mount("/static", StaticFiles(directory=STATIC), name="static")]


def _page_endpoint(console: Console, route: Route) -> Any:
    async def endpoint(request: Request) -> Response:
        if EVENT_STREAM in request.headers.get("accept", ""):
            return await _stream(console, route, request)
        page, status = await _made(console, route, request)
        html = console.renderer.page(page.template, console.context(route, page, request))
        return HTMLResponse(html, status)

    return endpoint


async def _stream(console: Console, route: Route, request: Request) -> Response:
    if console.streams.is_full:
        return Response("too many live pages are open; reload this one by hand\n", 503)

    async def made() -> dict[str, str] | str:
        page, status = await _made(console, route, request)
        if status != 200:
            return str(page.context["problem"])
        context = console.context(route, page, request)
        return console.renderer.live_parts(page.template, context)

    async def parts() -> dict[str, str] | str:
        return await console.parts.get(_address(request, route), made)

    return StreamingResponse(console.streams.events(parts), media_type=EVENT_STREAM)


def _api_endpoint(console: Console, route: Route) -> Any:
    async def endpoint(request: Request) -> Response:
        page, status = await _made(console, route, request)
        data = page.data if status == 200 else {"error": page.context["problem"]}
        return Response(to_json(data), status, media_type="application/json")

    return endpoint


def _address(request: Request, route: Route) -> tuple[str, str, str]:
    """Return what a page depends on; it is the same for all browsers of this address.

    A page that depended on its reader would need the reader here.
    """
    return str(request.scope.get("root_path", "")), route.path, request.url.query


async def _made(console: Console, route: Route, request: Request) -> tuple[Page, int]:
    """Return the page and its status, made once for all who ask for it within a second."""
    return await console.pages.get(_address(request, route), lambda: _make(console, route, request))


async def _make(console: Console, route: Route, request: Request) -> tuple[Page, int]:
    """Make a page; a failure is a page, too."""
    visit = console.visit(request, route.path)
    await visit.watcher.wait_first_look(FIRST_LOOK_SECONDS)
    try:
        async with asyncio.timeout(PAGE_SECONDS):
            return await route.page(visit), 200
    except NotThere as error:
        return _failure("Not there", str(error)), 404
    except BadQuery as error:
        return _failure("The address is not complete", str(error)), 400
    except TimeoutError:
        text = f"The cluster did not answer within {PAGE_SECONDS:.0f} s; try again."
        return _failure("No answer", text), 504
    except KafkaError as error:
        return _failure("The cluster refused", str(error)), 502


def _failure(title: str, problem: str) -> Page:
    return Page("failure.html", title, {"problem": problem})
