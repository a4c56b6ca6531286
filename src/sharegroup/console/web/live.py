"""Server-sent events: the live parts of a page, each time one of them changes.

    event: parts
    data: {"live_groups": "<table>…", …}

    event: problem
    data: "There is no group …"

    event: end
    data: null

A stream ends after `STREAM_SECONDS`, and the browser opens it again at once.  So nothing is kept
for a tab that is gone without a word, and a server that stops does not wait for open pages: it
closes its connections before it tells its applications that it stops.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable

STREAM_SECONDS = 30.0
STREAMS_MAX = 200
"""Streams of all browsers together."""
PAUSE_SECONDS = 1.0
PAUSE_FACTOR = 4
"""A page whose parts take long is made less often: this many times as long passes between two."""
PAUSE_SECONDS_MAX = 5.0
RETRY_MS = 2_000

Parts = Callable[[], Awaitable[dict[str, str] | str | None]]
"""Returns the live parts by the ids of their elements, or why there are none.

None ends the stream, because the user has logged out.
"""


class Streams:
    """Counts the streams that are open, and makes their events."""

    def __init__(self, stream_seconds: float = STREAM_SECONDS) -> None:
        self._stream_seconds = stream_seconds
        self._count = 0

    @property
    def is_full(self) -> bool:
        """Whether there are as many streams as there may be."""
        return self._count >= STREAMS_MAX

    async def events(
        self, parts: Parts, pause_seconds: float = PAUSE_SECONDS
    ) -> AsyncIterator[bytes]:
        """Yield an event for each change of the parts, and for a problem with them.

        Between two looks at the parts are ``pause_seconds`` or more.
        """
        self._count += 1
        end = time.monotonic() + self._stream_seconds
        shown: dict[str, str] = {}
        problem: str | None = None
        try:
            yield f"retry: {RETRY_MS}\n\n".encode()
            while time.monotonic() < end:
                began = time.monotonic()
                new = await parts()
                pause = pause_after(time.monotonic() - began, pause_seconds)
                if new is None:
                    break
                event = b": nothing new\n\n"
                if isinstance(new, str):
                    if new != problem:
                        event = _event("problem", new)
                    problem = new
                else:
                    changed = {name: html for name, html in new.items() if shown.get(name) != html}
                    if changed or problem is not None:
                        event = _event("parts", changed)
                    shown, problem = new, None
                yield event
                next_at = min(end, time.monotonic() + pause)
                while (left := next_at - time.monotonic()) > 0:
                    await asyncio.sleep(min(PAUSE_SECONDS, left))
                    if _server_stops():
                        return
            else:
                yield _event("end", None)
        finally:
            self._count -= 1


def pause_after(seconds: float, least: float = PAUSE_SECONDS) -> float:
    """Return the time until the parts are made again, if making them took ``seconds``."""
    return max(least, min(PAUSE_SECONDS_MAX, PAUSE_FACTOR * seconds))


def _server_stops() -> bool:
    """Return whether this process is a uvicorn server that was asked to stop.

    ASGI does not say it before all connections are closed, and uvicorn waits for those of streams.
    The handler of its signals is a method of the server.
    """
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return getattr(server, "should_exit", False) is True


def _event(name: str, content: object) -> bytes:
    return f"event: {name}\ndata: {json.dumps(content)}\n\n".encode()
