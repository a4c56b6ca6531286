"""What every request and answer has to keep: names of the port, no foreign origin, headers."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sharegroup.http_hosts import HttpHosts

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
POLICY = "; ".join((
    "default-src 'none'", "style-src 'self'", "script-src 'self'", "img-src 'self'",
    "connect-src 'self'", "form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'",
))  # fmt: skip
"""No inline script or style, nothing of others, in no frame."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not no-referrer: with that, browsers send forms with "Origin: null".
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Safety:
    """Refuses requests under foreign names or from foreign origins, and adds the headers."""

    def __init__(self, app: ASGIApp, hosts: HttpHosts | None) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            answer = PlainTextResponse(f"{refusal}\n", status_code=403)
            await answer(scope, receive, send_safely)
            return
        await self._app(scope, receive, send_safely)

    def _refusal(self, scope: Scope) -> str | None:
        if self._hosts is None:
            return None
        headers = Headers(scope=scope)
        return self._hosts.refusal(
            headers.getlist("host"),
            headers.getlist("origin"),
            changes=scope["method"] not in SAFE_METHODS,
        )


def all_headers() -> Iterable[str]:
    """Return the names of the headers that every answer has."""
    return HEADERS.keys()
