"""Lets requests in that have a visitor; everything but the login page and static files needs one.

It stands before all routes, so a route that is added is closed until somebody has logged in.
"""

from __future__ import annotations

import json
import math
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sharegroup.console.web.visitors import Refused, Visitor, Visitors, is_encrypted

VISITOR = "sharegroup.visitor"
"""The key of the visitor in the scope of a request."""
LOGIN = "/login"
OPEN = (LOGIN,)
OPEN_FOLDER = "/static/"
API_FOLDER = "/api/"
PROGRAMS = "requests of programs have a token: Authorization: Bearer TOKEN"
EVENT_STREAM = "text/event-stream"


class Gate:
    """Adds the visitor to requests, and answers those that have none."""

    def __init__(self, app: ASGIApp, visitors: Visitors, *, is_behind_proxy: bool) -> None:
        self._app, self._visitors = app, visitors
        self._is_behind_proxy = is_behind_proxy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        answer = await self._answer(request)
        await (answer or self._app)(scope, receive, send)

    async def _answer(self, request: Request) -> Response | None:
        """Return the answer to a request that is not let in; None if it is."""
        if self._is_behind_proxy and not is_encrypted(request):
            return PlainTextResponse(
                "this console is behind a proxy: expected X-Forwarded-Proto: https from an "
                "address that --behind-proxy names\n",
                403,
            )
        path = own_path(request)
        if path in OPEN or path.startswith(OPEN_FOLDER):
            return None
        is_page = not path.startswith(API_FOLDER)
        try:
            visitor = await self._visitors.visitor(request)
        except Refused as error:
            return refusal(error, is_page=is_page)
        if visitor is not None:
            request.scope[VISITOR] = visitor
            return None
        can_log_in = self._visitors.credentials
        if not can_log_in:
            return refusal(Refused("log in to the application first", 401), is_page=is_page)
        is_stream = EVENT_STREAM in request.headers.get("accept", "")
        if not is_page or is_stream or request.method not in ("GET", "HEAD"):
            return refusal(Refused(f"log in with {can_log_in}; {PROGRAMS}", 401), is_page=is_page)
        wanted = f"{path}?{request.url.query}" if request.url.query else path
        return RedirectResponse(f"{base_of(request)}{LOGIN}?{urlencode({'next': wanted})}", 303)


def visitor_of(request: Request) -> Visitor:
    """Return the visitor of a request that the gate has let in."""
    visitor = request.scope[VISITOR]
    assert isinstance(visitor, Visitor), "the gate is before all routes"
    return visitor


def base_of(request: Request) -> str:
    """Return the path under which the console is mounted; empty if it is at the root."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def own_path(request: Request) -> str:
    """Return the path of a request within the console."""
    path = request.scope["path"]
    base = base_of(request)
    return str(path[len(base) :] if base and path.startswith(base + "/") else path)


def refusal(error: Refused, *, is_page: bool) -> Response:
    """Return the answer for a refused request."""
    headers = {}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if error.retry_s is not None:
        headers["Retry-After"] = str(math.ceil(error.retry_s))
    if is_page:
        return PlainTextResponse(f"{error}\n", error.status, headers)
    body = json.dumps({"error": str(error)})
    return Response(body, error.status, headers, media_type="application/json")
