"""The page by which users log in, and the way out.

GET  /login?next=/groups    the form
POST /login                 begins a session, and leads to the page that was wanted
POST /logout                ends it
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from sharegroup.console.settings import ConsoleSettings
from sharegroup.console.web.bodies import BadBody, form_of
from sharegroup.console.web.changes import has_form_token
from sharegroup.console.web.gate import LOGIN, base_of, visitor_of
from sharegroup.console.web.rendering import Renderer
from sharegroup.console.web.visitors import (
    Refused,
    Visitors,
    address_of,
    cookie_name,
    is_encrypted,
)

NEXT_CHARACTERS_MAX = 2_000


class LoginPage:
    """The pages of logging in and out."""

    def __init__(self, settings: ConsoleSettings, visitors: Visitors, renderer: Renderer) -> None:
        self._settings, self._visitors, self._renderer = settings, visitors, renderer

    def routes(self) -> Sequence[BaseRoute]:
        """Return the routes; none if the console has no login of its own."""
        if not self._settings.has_login:
            return ()
        return (
            Route(LOGIN, self._form, methods=["GET"]),
            Route(LOGIN, self._log_in, methods=["POST"]),
            Route("/logout", self._log_out, methods=["POST"]),
        )

    async def _form(self, request: Request) -> Response:
        return self._page(request, request.query_params.get("next", ""))

    async def _log_in(self, request: Request) -> Response:
        try:
            fields = await form_of(request)
        except BadBody as error:
            return self._page(request, "", problem=str(error), status=error.status)
        wanted = fields.get("next", "")
        try:
            session_id = await self._visitors.log_in(fields, address_of(request))
        except Refused as error:
            return self._page(request, wanted, problem=str(error), status=error.status)
        answer = RedirectResponse(base_of(request) + local(wanted), 303)
        answer.set_cookie(
            cookie_name(request), session_id,
            httponly=True, samesite="strict", secure=is_encrypted(request), path="/",
        )  # fmt: skip
        return answer

    async def _log_out(self, request: Request) -> Response:
        visitor = visitor_of(request)
        try:
            is_own = has_form_token(visitor, await form_of(request))
        except BadBody as error:
            return self._page(request, "", problem=str(error), status=error.status)
        if not is_own:
            return self._page(request, "", problem="log out by the button", status=403)
        await self._visitors.log_out(visitor)
        answer = RedirectResponse(base_of(request) + LOGIN, 303)
        answer.delete_cookie(
            cookie_name(request), path="/",
            httponly=True, samesite="strict", secure=is_encrypted(request),
        )  # fmt: skip
        return answer

    def _page(
        self, request: Request, wanted: str, *, problem: str = "", status: int = 200
    ) -> Response:
        context: dict[str, Any] = {
            "title": "Log in",
            "base": base_of(request),
            "next": local(wanted),
            "problem": problem,
            "has_tokens": self._settings.tokens is not None,
            "mechanism": self._settings.login_mechanism,
        }
        return HTMLResponse(self._renderer.page("login.html", context), status)


def local(wanted: str) -> str:
    """Return the path within the console that a user wanted; ``/`` for any other address.

    >>> local("/groups?page=2"), local("https://example.com/"), local("//example.com")
    ('/groups?page=2', '/', '/')
    """
    is_local = (
        wanted[:1] == "/"
        and wanted[1:2] not in ("/", "\\")
        and wanted.isprintable()
        and len(wanted) <= NEXT_CHARACTERS_MAX
    )
    return wanted if is_local else "/"
