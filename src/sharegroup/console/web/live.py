"""Server-sent events: the live parts of a page, each time one of them changes.

    event: parts
    data: {"live_groups": "<table>…", …}

A stream ends after `STREAM_SECONDS`, and the browser opens it again, so nothing is kept for a tab
that is gone without a word.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable

STREAM_SECONDS = 300.0
STREAMS_MAX = 200
"""Streams of all browsers together."""
PAUSE_SECONDS = 1.0
RETRY_MS = 2_000

Parts = Callable[[], Awaitable[dict[str, str] | None]]
"""Returns the live parts of a page; None ends the stream, because the user has logged out."""


class Streams:
    """Counts the streams that are open, and makes their events."""

    def __init__(self) -> None:
        self._count = 0

    @property
    def is_full(self) -> bool:
        """Whether there are as many streams as there may be."""
        return self._count >= STREAMS_MAX

    async def events(self, parts: Parts, shown: dict[str, str]) -> AsyncIterator[bytes]:
        """Yield an event for each change of the parts; ``shown`` is what the page has already."""
        self._count += 1
        end = time.monotonic() + STREAM_SECONDS
        try:
            yield f"retry: {RETRY_MS}\n\n".encode()
            while time.monotonic() < end:
                new = await parts()
                if new is None:
                    break
                changed = {name: html for name, html in new.items() if shown.get(name) != html}
                if changed:
                    shown = new
                    yield f"event: parts\ndata: {json.dumps(changed)}\n\n".encode()
                else:
                    yield b": nothing new\n\n"
                await asyncio.sleep(PAUSE_SECONDS)
        finally:
            self._count -= 1
