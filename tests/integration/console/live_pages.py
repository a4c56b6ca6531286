"""Open pages with live parts; httpx's transport would show a stream when it has ended."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self

from starlette.types import ASGIApp

from tests.support.limits import HANGING_SECONDS

EVENT_STREAM = (b"accept", b"text/event-stream")
FIRST = "retry:"
"""What a stream begins with; it is no round of a page."""


class LivePage:
    """A page that is open while the body runs; ``stream`` ends when the server ends it."""

    def __init__(
        self,
        app: ASGIApp,
        path: str,
        *headers: tuple[bytes, bytes],
        query: str = "",
        **scope: Any,
    ) -> None:
        self._app = app
        self._scope = {
            "type": "http", "method": "GET", "path": path, "query_string": query.encode(),
            "scheme": "http", "http_version": "1.1", "server": ("localhost", None),
            "client": ("127.0.0.1", 5), "headers": [EVENT_STREAM, *headers], **scope,
        }  # fmt: skip
        self._rounds: asyncio.Queue[str] = asyncio.Queue()
        self.stream: asyncio.Task[None]

    async def __aenter__(self) -> Self:
        async def receive() -> Any:
            await asyncio.Event().wait()

        async def send(message: Any) -> None:
            text = message.get("body", b"").decode()
            if text and not text.startswith(FIRST):
                await self._rounds.put(text)

        self.stream = asyncio.ensure_future(self._app(self._scope, receive, send))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stream.cancel()
        await asyncio.gather(self.stream, return_exceptions=True)

    async def round(self) -> str:
        """Return what came next: an event, or a comment that nothing is new."""
        async with asyncio.timeout(HANGING_SECONDS):
            return await self._rounds.get()

    async def parts(self) -> str:
        """Return the next event with live parts."""
        while not (text := await self.round()).startswith("event: parts"):
            pass
        return text
