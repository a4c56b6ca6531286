"""The console as an ASGI application: one connection to the cluster, a watcher, and pages."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Hashable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route as WebRoute
from starlette.staticfiles import StaticFiles

from sharegroup.console.access.audit import ValuesSeen
from sharegroup.console.access.connection import Connection
from sharegroup.console.access.sight import SeenHistory, SeenWatcher
from sharegroup.console.pages.page import Forbidden, NotThere, Page, Visit
from sharegroup.console.parameters import BadQuery
from sharegroup.console.records.registry_values import RegistryValues
from sharegroup.console.remember.memory import memory_of
from sharegroup.console.settings import ConsoleSettings
from sharegroup.console.watch.history import History
from sharegroup.console.watch.watcher import Watcher
from sharegroup.console.web import openapi
from sharegroup.console.web.bodies import BadBody
from sharegroup.console.web.changes import ChangeRoute, api_fields, changed, form_fields
from sharegroup.console.web.downloads import Downloads
from sharegroup.console.web.gate import EVENT_STREAM, VISITOR, Gate, base_of, own_path, visitor_of
from sharegroup.console.web.job_runs import OF_THE_CONSOLE, JobRuns
from sharegroup.console.web.live import Streams
from sharegroup.console.web.login import LoginPage
from sharegroup.console.web.rendering import Renderer, to_json
from sharegroup.console.web.routes import CHANGES, DOWNLOADS, ROUTES, DownloadRoute, Route
from sharegroup.console.web.rule_files import RuleFiles
from sharegroup.console.web.safety import Safety
from sharegroup.console.web.shared_pages import Shared
from sharegroup.console.web.visitors import Refused, Visitors
from sharegroup.errors import KafkaError, UnknownTopicOrPartition
from sharegroup.http_hosts import HttpHosts

log = logging.getLogger(__name__)

STATIC = str(Path(__file__).parent / "static")
API = "/api/v1"
LOOK_FIRST = "look whether it was done before you try again"
FRESH_SECONDS = 0.6
"""How long the first pages, also those after a time without browsers, wait for a fresh view."""
PAGE_SECONDS = 15.0
"""Time for all requests of a page to the cluster."""


class Console:
    """The parts of one running console; `application` makes its ASGI application."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self.settings = settings
        self.history = History()
        self.renderer = Renderer()
        self.streams = Streams()
        self.downloads = Downloads()
        self.visitors = Visitors(settings)
        self.parts: Shared[dict[str, str] | str] = Shared()
        self.values_seen = ValuesSeen()
        registry = settings.schema_registry
        self.registry = None if registry is None else RegistryValues(registry)
        self._clients: Connection | None = None
        self._watcher: Watcher | None = None
        self._job_runs: JobRuns | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Connect to the cluster and watch it while the body runs."""
        self._clients = Connection(self.settings.client_options)
        self._watcher = Watcher(self._clients.admin, self._clients.reading, self.history)
        tasks = [
            asyncio.create_task(self._watcher.run(), name="console watcher"),
            asyncio.create_task(self.visitors.run(), name="console sessions"),
        ]
        self._job_runs = JobRuns(self._clients.jobs)
        if self.settings.allow_changes:
            tasks.append(asyncio.create_task(self._job_runs.run(), name="console jobs"))
        rules = RuleFiles(
            self.visitors,
            self._watcher.tell,
            tokens=self.settings.token_file,
            roles=self.settings.roles_file,
        )
        tasks.append(asyncio.create_task(rules.run(), name="console rules"))
        memory = memory_of(self.settings, self.history, self._watcher)
        if memory is not None:
            tasks.append(asyncio.create_task(memory.run(), name="console history"))
        for task in tasks:
            task.add_done_callback(_tell_end)
        try:
            yield
        finally:
            await self._job_runs.stop()
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            await self._clients.close()
            if self.registry is not None:
                self.registry.close()
            self._clients = self._watcher = None

    @property
    def is_running(self) -> bool:
        """Whether it is connected, or tries to be."""
        return self._clients is not None

    async def look(self) -> None:
        """Note that somebody looks, and return when the view is fresh, or after a moment."""
        assert self._watcher is not None, "the console runs"
        self._watcher.looks_at()
        await self._watcher.wait_until_fresh(FRESH_SECONDS)

    def visit(self, request: Request, path: str, *, is_live: bool = False) -> Visit:
        """Return what a page function is given for a request; ``is_live``: for its live parts."""
        visitor = visitor_of(request)
        assert self._clients is not None, "the console runs"
        assert self._watcher is not None, "the console runs"
        assert self._job_runs is not None, "the console runs"
        clients = visitor.clients or self._clients
        view = self._watcher.view
        return Visit(
            query=dict(request.query_params),
            path=path,
            user=visitor.user,
            rights=visitor.rights,
            admin=clients.admin,
            reading=clients.reading,
            kept_states=clients.kept_states,
            options=clients.options,
            jobs=clients.jobs,
            starter=visitor.user.name
            if visitor.clients
            else f"{OF_THE_CONSOLE}{visitor.user.name}",
            runs_job=partial(self._job_runs.start, options=clients.options),
            watcher=SeenWatcher(self._watcher, visitor.sight.of(view)),
            history=SeenHistory(self.history, visitor.sight, view),
            settings=self.settings,
            values_seen=self.values_seen,
            registry=self.registry,
            now_ms=int(time.time() * 1000),
            is_live=is_live,
        )

    def context(
        self, page: Page, request: Request, *, path: str, parent: str = ""
    ) -> dict[str, Any]:
        """Return the variables of a template: the page's, and those of its frame."""
        assert self._watcher is not None, "the console runs"
        base, visitor = base_of(request), visitor_of(request)
        return {
            **page.context,
            "title": page.title,
            "base": base,
            "navigation": [
                (base + other.path, other.name, other.path in (path, page.parent or parent))
                for other in ROUTES
                if other.name
            ],
            "view": visitor.sight.of(self._watcher.view),
            "rights": visitor.rights,
            "form_token": visitor.form_token,
            "user": visitor.user.name if visitor.session_id else None,
            "settings_of_console": self.settings,
            "api": f"{base}{API}{path}?{request.url.query}",
        }


def application(
    settings: ConsoleSettings,
    *,
    hosts: HttpHosts | None = None,
    changes: Sequence[ChangeRoute] = CHANGES,
) -> Starlette:
    """Return a console as an ASGI application, which connects when it is started."""
    return application_of(Console(settings), hosts=hosts, changes=changes)


def application_of(
    console: Console,
    *,
    hosts: HttpHosts | None = None,
    changes: Sequence[ChangeRoute] = CHANGES,
) -> Starlette:
    """Return the ASGI application of a console."""
    settings = console.settings

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with console.running():
            yield

    return Starlette(
        routes=[*LoginPage(settings, console.visitors, console.renderer).routes(),
                *_routes(console, changes)],
        lifespan=lifespan,
        middleware=[
            Middleware(Safety, hosts=hosts),
            Middleware(Gate, console.visitors, is_behind_proxy=settings.is_behind_proxy),
        ],
    )  # fmt: skip


def _routes(console: Console, changes: Sequence[ChangeRoute]) -> Sequence[BaseRoute]:
    routes: list[BaseRoute] = []
    for route in ROUTES:
        routes.append(WebRoute(route.path, _page_endpoint(console, route), methods=["GET"]))
        routes.append(WebRoute(API + route.path, _api_endpoint(console, route), methods=["GET"]))
    for download in DOWNLOADS:
        endpoint = _download_endpoint(console, download)
        routes += [WebRoute(base + download.path, endpoint, methods=["GET"]) for base in ("", API)]
    routes.append(WebRoute(API + openapi.PATH, _description_endpoint(changes), methods=["GET"]))
    for change in changes:
        routes.append(WebRoute(change.path, _form_endpoint(console, change), methods=["POST"]))
        routes.append(
            WebRoute(API + change.path, _change_endpoint(console, change), methods=["POST"])
        )
    return [*routes, Mount("/static", StaticFiles(directory=STATIC), name="static")]


def _page_endpoint(console: Console, route: Route) -> Any:
    async def endpoint(request: Request) -> Response:
        if EVENT_STREAM in request.headers.get("accept", ""):
            return await _stream(console, route, request)
        page, status = await _made(console, route, request)
        context = console.context(page, request, path=route.path, parent=route.parent)
        return HTMLResponse(console.renderer.page(page.template, context), status)

    return endpoint


async def _stream(console: Console, route: Route, request: Request) -> Response:
    if console.streams.is_full:
        return Response("too many live pages are open; reload this one by hand\n", 503)

    async def made() -> dict[str, str] | str:
        page, status = await _made(console, route, request, is_live=True)
        if status != 200:
            return str(page.context["problem"])
        context = console.context(page, request, path=route.path, parent=route.parent)
        return console.renderer.live_parts(page.template, context)

    async def parts() -> dict[str, str] | str | None:
        # Somebody may have logged out, or lost rights, since; `auth` is asked once a stream.
        if console.settings.auth is None:
            try:
                visitor = await console.visitors.visitor(request, is_use=False)
            except Refused:  # Its token was withdrawn.
                return None
            if visitor is None:
                return None
            request.scope[VISITOR] = visitor
        return await console.parts.get(_address(request, route), made)

    events = console.streams.events(parts, route.live_seconds)
    return StreamingResponse(events, media_type=EVENT_STREAM)


def _download_endpoint(console: Console, download: DownloadRoute) -> Any:
    """Return the endpoint for a file; a failure before it begins is a page, or JSON."""

    async def endpoint(request: Request) -> Response:
        if console.downloads.is_full:
            return Response("too many files are being downloaded; try again in a minute\n", 503)
        await console.look()
        visit = console.visit(request, download.path)
        export, status = await _answered(download.export(visit), "try again")
        if not isinstance(export, Page):
            return console.downloads.response(export, has_body=request.method != "HEAD")
        if own_path(request).startswith(API):
            document = to_json({"error": export.context["problem"]})
            return Response(document, status, media_type="application/json")
        context = console.context(export, request, path=download.path)
        return HTMLResponse(console.renderer.page(export.template, context), status)

    return endpoint


def _api_endpoint(console: Console, route: Route) -> Any:
    async def endpoint(request: Request) -> Response:
        page, status = await _made(console, route, request)
        data = page.data if status == 200 else {"error": page.context["problem"]}
        # A thread makes it, because it may be megabytes.
        document = await asyncio.to_thread(to_json, data)
        return Response(document, status, media_type="application/json")

    return endpoint


def _description_endpoint(changes: Sequence[ChangeRoute]) -> Any:
    async def endpoint(request: Request) -> Response:
        document = openapi.openapi(base_of(request) + API, ROUTES, DOWNLOADS, changes)
        return Response(to_json(document), media_type="application/json")

    return endpoint


def _form_endpoint(console: Console, change: ChangeRoute) -> Any:
    """Return the endpoint for forms of pages, which leads to the page with the result."""

    async def perform(request: Request) -> Page | Response:
        fields = await form_fields(request, visitor_of(request))
        done = await changed(change, console.visit(request, change.path), fields)
        return RedirectResponse(f"{base_of(request)}/{done.address.lstrip('/')}", 303)

    async def endpoint(request: Request) -> Response:
        answer, status = await _answered(perform(request), LOOK_FIRST)
        if isinstance(answer, Response):
            return answer
        context = console.context(answer, request, path=change.path)
        return HTMLResponse(console.renderer.page(answer.template, context), status)

    return endpoint


def _change_endpoint(console: Console, change: ChangeRoute) -> Any:
    """Return the endpoint for programs, which answers with the result."""

    async def perform(request: Request) -> Page | Response:
        fields = await api_fields(request, visitor_of(request))
        done = await changed(change, console.visit(request, change.path), fields)
        return Response(to_json(done.data), media_type="application/json")

    async def endpoint(request: Request) -> Response:
        answer, status = await _answered(perform(request), LOOK_FIRST)
        if isinstance(answer, Response):
            return answer
        document = to_json({"error": answer.context["problem"]})
        return Response(document, status, media_type="application/json")

    return endpoint


def _address(request: Request, route: Route) -> Hashable:
    """Return what a page depends on: its address, and who sees it."""
    return base_of(request), route.path, request.url.query, visitor_of(request).reader


async def _made(
    console: Console, route: Route, request: Request, *, is_live: bool = False
) -> tuple[Page, int]:
    """Return the page and its status; a failure is a page, too."""
    await console.look()
    visit = console.visit(request, route.path, is_live=is_live)
    return await _answered(route.page(visit), "try again")


Answer = TypeVar("Answer")


async def _answered(answer: Awaitable[Answer], next_step: str) -> tuple[Answer | Page, int]:
    """Return an answer with its status; the exceptions of pages and changes become pages.

    ``next_step`` says what to do if the cluster does not answer in time.
    """
    try:
        async with asyncio.timeout(PAGE_SECONDS):
            return await answer, 200
    except NotThere as error:
        return _failure("Not there", str(error)), 404
    except UnknownTopicOrPartition as error:
        return _failure("Not there", str(error)), 404
    except Forbidden as error:
        return _failure("Not allowed", str(error)), 403
    except BadBody as error:
        return _failure("The request is not complete", str(error)), error.status
    except BadQuery as error:
        return _failure("The address is not complete", str(error)), 400
    except TimeoutError:
        text = f"The cluster did not answer within {PAGE_SECONDS:.0f} s; {next_step}."
        return _failure("No answer", text), 504
    except KafkaError as error:
        return _failure("The cluster refused", str(error)), 502


def _failure(title: str, problem: str) -> Page:
    return Page("failure.html", title, {"problem": problem})


def _tell_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("event=console.task_failed task=%r error=%r action='restart the console'",
                  task.get_name(), error)  # fmt: skip
